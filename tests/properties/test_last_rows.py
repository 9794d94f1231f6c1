"""Rows that are only added to a table with a PRIMARY KEY: it has the last one of each key, however files are cut."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.catalog import Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.testing import Stream, write_rows
from tests.properties.examples import examples
from tests.properties.model import bag, limits
from tests.properties.test_changes import KEYS, TEXTS, VALUES

pytestmark = pytest.mark.slow

Row = tuple[int | None, int | None, str | None]
SCRIPT = """
CREATE TABLE a (k BIGINT, x BIGINT, s STRING) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'a');
CREATE TABLE out (k BIGINT, s STRING, x BIGINT, PRIMARY KEY (k, s) NOT ENFORCED);
INSERT INTO out SELECT k, s, -x FROM (SELECT * FROM a WHERE x IS DISTINCT FROM 2)
"""


@examples(30)
@given(
    st.data(),
    st.lists(st.lists(st.tuples(KEYS, VALUES, TEXTS), min_size=1, max_size=6), max_size=12),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_last_row_of_a_key_counts_however_files_are_cut(
    data: st.DataObject, files: list[list[Row]], parallelism: int, small: bool
) -> None:
    expected: dict[object, tuple[object, ...]] = {}
    with limits(small=small), TemporaryDirectory() as folder, Stream(SCRIPT, parallelism=parallelism) as stream:
        table = stream.compiler.catalog.relation("a")
        assert isinstance(table, Table)
        number = 0
        while number < len(files):
            taken = data.draw(st.integers(1, 4))
            splits = []
            for rows in files[number : number + taken]:
                number += 1
                path = str(Path(folder) / f"{number:06}.parquet")
                write_rows(table, rows, path)
                # Some files are equally old: then their names tell which comes first.
                splits.append(FileSplit(path, 1, number // 2, number))
                expected |= {(k, s): (k, s, None if x is None else -x) for k, x, s in rows if x != 2}
            if data.draw(st.booleans()):
                stream.restart()
            # Tasks take them in any order.
            stream.runs["out"].batch({0: data.draw(st.permutations(splits))})
            assert bag(stream.rows("out")) == bag(expected.values())
