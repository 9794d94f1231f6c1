"""Iceberg tables through a REST catalog: rows are appended and take the place of others, and are read as a stream."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.iceberg_rest import started
from tests.connectors.lake.jobs import run

SCRIPT = """
CREATE TABLE given (k BIGINT, g BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.monitor-interval' = '0 s');
CREATE TABLE added (k BIGINT, g BIGINT) PARTITIONED BY (g)
WITH ('table' = 'db.added', 'source.monitor-interval' = '0 s', {rest});
CREATE TABLE sums (g BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (g) NOT ENFORCED) WITH ('table' = 'db.sums', {rest});
CREATE TABLE back (k BIGINT, g BIGINT);
INSERT INTO added SELECT k, g FROM given;
INSERT INTO sums SELECT g, COUNT(*), SUM(v) FROM given GROUP BY g HAVING SUM(v) % 3 > 0;
INSERT INTO back SELECT k, g FROM added;
"""
FILES, ROWS = 2, 10


@pytest.mark.slow
@pytest.mark.thorough
def test_tables_of_a_rest_catalog_are_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    with started(tmp_path) as url:
        rest = (
            f"'connector' = 'iceberg', 'catalog.type' = 'rest', 'catalog.uri' = '{url}', 'sink.create-table' = 'true'"
        )
        for number in range(FILES):
            keys = range(number * ROWS, (number + 1) * ROWS)
            rows = {"k": keys, "g": [k % 4 for k in keys], "v": [k * 7 % 11 for k in keys]}
            pq.write_table(pa.table(rows), tmp_path / "given" / f"{number}.parquet")
            # It goes on where it was.
            run(str(tmp_path), SCRIPT.format(rest=rest))
        catalog = load_catalog("default", type="rest", uri=url)
        tables = {name: catalog.load_table(f"db.{name}") for name in ("added", "sums")}
        found = {name: rows_of(table.scan().to_arrow()) for name, table in tables.items()}
    keys = range(FILES * ROWS)
    groups = [[k * 7 % 11 for k in keys if k % 4 == g] for g in range(4)]
    assert found["added"] == [(k, k % 4) for k in keys]
    assert found["sums"] == [(g, len(v), sum(v)) for g, v in enumerate(groups) if sum(v) % 3]
    assert len(tables["added"].snapshots()) == FILES
    assert open_query(Warehouse(f"{tmp_path}/warehouse"), "FROM back ORDER BY ALL").fetchall() == found["added"]


def rows_of(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())
