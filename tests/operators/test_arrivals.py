"""The rows of a batch of a process function: the order in which those of a key come."""

from __future__ import annotations

from typing import cast

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import FILE_ORDER
from sqlstream.operators.operator import Port
from sqlstream.operators.process.arrivals import Arrivals
from sqlstream.operators.process.inputs import InputPlan
from sqlstream.storage.bucket import Bucket

KEY, VALUE = Column("k0", "VARCHAR"), Column("x", "BIGINT")
INPUT = InputPlan("t", "t", ("k",), ("k",), ((VALUE, "x"),), None, FILE_ORDER)
# Modified, path, row: in this order they come. A file that was written again has one path and two times.
PLACES = (
    (5, "z", 1 << 33),
    (5, "z", (1 << 33) + 1),
    (6, "", 7),
    (6, "a/10", 0),
    (6, "a/9", 0),
    (6, "aé", 3),
    (6, "z", 2),
    (7, "Z", 0),
)


def test_rows_of_a_key_come_by_file_and_row() -> None:
    # Two tasks bring the rows of the files of theirs.
    shuffled = [5, 2, 7, 0], [3, 6, 1, 4]
    arrived = [pa.Table.from_pylist([row(i) for i in part]) for part in shuffled]
    with duckdb.connect() as con:
        arrivals = Arrivals(con, [INPUT], (KEY,), gives_times=False)
        arrivals.take(cast(Bucket, None), [(Port("t", True), table) for table in arrived], None)
        assert arrivals.touch([]) == 1
        assert arrivals.rows(0).column("c0").to_pylist() == list(range(len(PLACES)))


def row(number: int) -> dict[str, object]:
    return {"k0": "a", "c0": number} | {f"o{i}": value for i, value in enumerate(PLACES[number])}
