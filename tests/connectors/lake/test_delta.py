"""Delta tables: what is written is what the library reads, once, whatever happens meanwhile; versions are read as a stream."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from sqlstream.catalog import Column, Table
from sqlstream.connectors.delta.commits import Transactions
from sqlstream.connectors.delta.location import Location
from sqlstream.connectors.interface import SinkContext
from sqlstream.errors import SqlStreamError
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.jobs import run
from tests.kinds import of_type

COLUMNS = (
    "k BIGINT, name STRING, ts TIMESTAMP(3), at_ TIMESTAMP_LTZ(3), day DATE, amount DECIMAL(7, 2), tags ARRAY<STRING>,"
    " b BOOLEAN, f DOUBLE, u BIGINT"
)
ROWS = [
    (1, "a,b", "2026-01-01 10:00:00", "2026-01-01 10:00:00+00", "2026-01-01", "1.50", ["x", "y"], True, 0.5, 7),
    (2, "", None, None, None, None, None, None, None, None),
    (3, None, "2026-01-02 00:00:00", "2026-01-02 12:00:00+02", "2026-01-02", "-3", [], False, -1e-7, 1),
    (4, 'say "so"', "2026-01-03 00:00:00", "2026-01-03 12:00:00+00", "2026-01-02", "0", ["ü/=%"], False, 1e30, 2),
]


def of_delta(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Query a Delta table as the library reads it."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("delta", DeltaTable(str(path)).to_pyarrow_table())
        return con.execute(sql).fetchall()


def read(project: Path, script: str, sql: str) -> list[tuple[Any, ...]]:
    """Run jobs, or go on with them, and query what they have written into the warehouse."""
    run(str(project), script)
    return open_query(Warehouse(f"{project}/warehouse"), sql).fetchall()


def put(path: Path, keys: range | list[int], **options: Any) -> None:
    write_deltalake(str(path), pa.table({"k": pa.array(list(keys), pa.int64())}), mode="append", **options)


@pytest.mark.parametrize("clause", ["", "PARTITIONED BY (day, b)", "PARTITIONED BY (name)"])
def test_what_is_written_is_what_others_and_jobs_read(tmp_path: Path, clause: str) -> None:
    # Delta has no unsigned and no huge integers, and no empty text in a partition.
    options = f"WITH ('connector' = 'delta', 'path' = '{tmp_path}/t', 'sink.create-table' = 'true')"
    table = COLUMNS.replace("u BIGINT", "u HUGEINT")
    script = f"CREATE TABLE given ({COLUMNS}); CREATE TABLE t ({table}) {clause} {options}; INSERT INTO t SELECT * FROM given"
    with Stream(script) as stream:
        stream.batch("given", ROWS[:2])
        stream.restart()
        stream.batch("given", ROWS[2:])
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        types = [
            "BIGINT",
            "VARCHAR",
            "TIMESTAMP",
            "TIMESTAMPTZ",
            "DATE",
            "DECIMAL(7,2)",
            "VARCHAR[]",
            "BOOLEAN",
            "DOUBLE",
            "BIGINT",
        ]
        rows = [con.execute(f"SELECT {', '.join(f'?::{t}' for t in types)}", list(r)).fetchone() for r in ROWS]
    if "name" in clause:
        rows[1] = (2, None, *of_type(tuple, rows[1])[2:])
    assert of_delta(tmp_path / "t", "FROM delta ORDER BY k") == rows
    assert DeltaTable(str(tmp_path / "t")).version() == 2
    back = f"CREATE TABLE t WITH ('connector' = 'delta', 'path' = '{tmp_path}/t'); CREATE TABLE back ({COLUMNS});"
    found = read(tmp_path, f"{back} INSERT INTO back SELECT * FROM t", "SELECT * FROM back ORDER BY k")
    assert found == rows


def test_readers_skip_files_by_what_is_said_of_them(tmp_path: Path) -> None:
    options = f"WITH ('connector' = 'delta', 'path' = '{tmp_path}/t', 'sink.create-table' = 'true')"
    with Stream(
        f"CREATE TABLE given ({COLUMNS}); CREATE TABLE t ({COLUMNS}) {options}; INSERT INTO t SELECT * FROM given"
    ) as stream:
        for row in ROWS:
            stream.batch("given", [row])
    delta = DeltaTable(str(tmp_path / "t"))
    adds = {add["min.k"]: add for add in pa.table(delta.get_add_actions(flatten=True)).to_pylist()}
    assert [add["num_records"] for add in adds.values()] == [1] * 4
    assert (adds[3]["min.at_"], adds[3]["max.amount"], adds[3]["null_count.name"]) == (
        datetime(2026, 1, 2, 10, tzinfo=UTC),
        -3,
        1,
    )
    for column, value in (("k", 3), ("f", 1e30), ("name", "a,b"), ("day", date(2026, 1, 2))):
        assert len(delta.file_uris(file_pruning_predicate=[(column, "=", value)])) < 4, column
        assert delta.to_pyarrow_dataset().count_rows(filter=pa.compute.field(column) == value) in (1, 2)


KEYED = """
CREATE TABLE given (k BIGINT, p STRING, v BIGINT);
CREATE TABLE sums (k BIGINT, p STRING, s BIGINT, PRIMARY KEY (k, p) NOT ENFORCED) {clause}
WITH ('connector' = 'delta', 'path' = '{path}', 'sink.create-table' = 'true', 'delta.enableChangeDataFeed' = 'true');
INSERT INTO sums SELECT k, p, SUM(v) FROM given GROUP BY k, p HAVING SUM(v) < 50
"""


@pytest.mark.parametrize("clause", ["", "PARTITIONED BY (p)"])
def test_rows_take_the_place_of_those_with_their_key(tmp_path: Path, clause: str) -> None:
    path = tmp_path / "sums"
    with Stream(KEYED.format(path=path, clause=clause)) as stream:
        stream.batch("given", [(1, "a", 10), (2, "b", 20), (None, None, 3), (4, "b", 1)])
        stream.restart()
        # One is changed, one goes, one changes to what it was, and one is new.
        stream.batch("given", [(1, "a", 5), (2, "b", 40), (None, None, 1), (4, "b", 1), (4, "b", -1), (3, "a", 7)])
    assert of_delta(path, "SELECT k, p, s FROM delta ORDER BY k, s") == [
        *((1, "a", 15), (3, "a", 7), (4, "b", 1), (None, None, 4))
    ]
    delta = DeltaTable(str(path))
    assert delta.version() == 2, "a batch is one version"
    feed = f"""
        CREATE TABLE feed (k BIGINT, p STRING, s BIGINT) WITH ('connector' = 'delta', 'path' = '{path}',
            'scan.change-data-feed' = 'true', 'scan.startup.mode' = 'version', 'scan.startup.version' = '1');
        CREATE TABLE totals (p STRING, n BIGINT, s BIGINT);
        INSERT INTO totals SELECT p, COUNT(*), CAST(SUM(s) AS BIGINT) FROM feed GROUP BY p;
        CREATE TABLE keyed (k BIGINT, p STRING, s BIGINT, PRIMARY KEY (k, p) NOT ENFORCED) WITH ('connector' = 'delta',
            'path' = '{path}', 'scan.change-data-feed' = 'true', 'scan.startup.mode' = 'version', 'scan.startup.version' = '1');
        CREATE TABLE highest (h BIGINT);
        INSERT INTO highest SELECT MAX(s) FROM keyed;
    """
    # Changes of both versions are read in one batch.
    assert read(tmp_path, feed, "SELECT * FROM totals ORDER BY p") == [("a", 2, 22), ("b", 1, 1), (None, 1, 4)]
    assert read(tmp_path, feed, "SELECT * FROM highest") == [(15,)]


def transactions(path: Path, records: Path, committed: int = -1) -> Transactions:
    table = Table("t", (Column("k", "BIGINT"),), options={"connector": "delta", "path": str(path)})
    context = SinkContext(LocalFilesystem(), "/", str(records), committed, "job")
    return Transactions(Location.of(table, "/"), context)


def test_a_batch_is_written_once_and_again_when_another_writer_was_faster(tmp_path: Path) -> None:
    path = tmp_path / "t"
    put(path, range(10))
    ours, tries = transactions(path, tmp_path / "records"), []

    def merge(delta: Any, properties: CommitProperties) -> None:
        tries.append(1)
        if len(tries) == 1:
            # Between our reading of the table and our commit somebody rewrites the same file.
            DeltaTable(str(path)).delete("k = 3")
        source = pa.table({"k": pa.array([4, 100])})
        merge = delta.merge(source, "t.k = s.k", source_alias="s", target_alias="t", commit_properties=properties)
        merge.when_matched_delete().when_not_matched_insert_all().execute()

    assert ours.commit(0, merge)
    assert len(tries) == 2, "a conflict is met with a fresh handle"
    assert not ours.commit(0, merge)
    assert sorted(k for (k,) in of_delta(path, "FROM delta")) == [0, 1, 2, 5, 6, 7, 8, 9, 100]
    # A process that died before its job knew of the commit comes back.
    assert not transactions(path, tmp_path / "records").commit(0, merge)
    # A copy of the warehouse writes on under the same name.
    shutil.copytree(tmp_path / "records", tmp_path / "copy")
    copy = transactions(path, tmp_path / "copy", committed=0)
    assert copy.commit(1, lambda delta, properties: put(path, [200], commit_properties=properties))
    assert copy.commit(2, lambda delta, properties: put(path, [201], commit_properties=properties))
    assert ours.commit(3, lambda delta, properties: put(path, [300], commit_properties=properties))
    with pytest.raises(SqlStreamError, match="another process has written batch 3 of this job"):
        copy.commit(3, merge)
    with pytest.raises(SqlStreamError, match=r"up to 3, but the job goes on behind batch 1"):
        transactions(path, tmp_path / "copy", committed=1).recover()


def test_files_of_a_batch_that_was_not_committed_go(tmp_path: Path) -> None:
    options = f"WITH ('connector' = 'delta', 'path' = '{tmp_path}/t', 'sink.create-table' = 'true')"
    script = f"CREATE TABLE given (k BIGINT); CREATE TABLE t (k BIGINT) {options}; INSERT INTO t SELECT * FROM given"
    with Stream(script) as stream:
        stream.batch("given", [(1,)])
        [file] = (tmp_path / "t").glob("*.parquet")
        left = file.with_name(file.name.replace("-0000000000-", "-0000000001-"))
        other = file.with_name("part-00000000-0000000001-of-another-job.parquet")
        for copy in (left, other):
            shutil.copy(file, copy)
        stream.restart()
        assert (left.exists(), other.exists(), file.exists()) == (False, True, True)
        stream.batch("given", [(2,)])
    assert of_delta(tmp_path / "t", "FROM delta ORDER BY k") == [(1,), (2,)]


def partitioned(path: Path) -> None:
    write_deltalake(str(path), pa.table({"k": [1], "v": ["a"]}), partition_by=["v"])


def with_rule(path: Path) -> None:
    write_deltalake(str(path), pa.table({"k": [1], "v": ["a"]}))
    DeltaTable(str(path)).alter.add_constraint({"small": "k < 5"})


def needing(path: Path) -> None:
    schema = pa.schema(
        [pa.field("k", pa.int64()), pa.field("v", pa.string()), pa.field("w", pa.string(), nullable=False)]
    )
    DeltaTable.create(str(path), schema)


def plain(path: Path) -> None:
    write_deltalake(str(path), pa.table({"k": [1], "v": ["a"]}))


@pytest.mark.parametrize(
    ("make", "columns", "message"),
    [
        (lambda path: None, "k BIGINT", "there is no Delta table at"),
        (plain, "k BIGINT, w STRING", 'the Delta table has no column "w"'),
        (plain, "k BIGINT, v BIGINT", 'column "v" is BIGINT here and VARCHAR in the Delta table'),
        (plain, "k BIGINT, v STRING) PARTITIONED BY (v", "the Delta table is not at all"),
        (partitioned, "k BIGINT, v STRING) PARTITIONED BY (k", "the Delta table is by v"),
        (with_rule, "k BIGINT, v STRING", 'has the property "delta.constraints.small"'),
        (needing, "k BIGINT, v STRING", 'column "w" of the Delta table must not be NULL, and is not declared'),
    ],
)
def test_tables_that_cannot_be_written_are_refused_at_the_start(
    tmp_path: Path, make: Callable[[Path], None], columns: str, message: str
) -> None:
    make(tmp_path / "t")
    names = [c.split()[0] for c in columns.partition(")")[0].split(", ")]
    script = f"""CREATE TABLE given ({columns.partition(")")[0]});
        CREATE TABLE t ({columns}) WITH ('connector' = 'delta', 'path' = '{tmp_path}/t');
        INSERT INTO t SELECT {", ".join(names)} FROM given"""
    with pytest.raises(SqlStreamError) as e, Stream(script):
        pass
    assert message in str(e.value)


def test_changes_need_a_key(tmp_path: Path) -> None:
    script = f"""CREATE TABLE given (k BIGINT);
        CREATE TABLE t (k BIGINT, n BIGINT) WITH ('connector' = 'delta', 'path' = '{tmp_path}/t');
        INSERT INTO t SELECT k, COUNT(*) FROM given GROUP BY k"""
    with pytest.raises(SqlStreamError, match="without a PRIMARY KEY"), Stream(script):
        pass


# -- as a source

FOLLOWED = """
CREATE TABLE t WITH ('connector' = 'delta', 'path' = '{path}', {options});
CREATE TABLE seen (k BIGINT);
INSERT INTO seen SELECT k FROM t
"""
FOLLOW = "'source.monitor-interval' = '0 s'"


def test_versions_are_read_once_in_batches_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in range(3):
        put(path, range(number * 10, number * 10 + 10))
    # A file at a time: a job stops in the middle of the first version, and of later ones.
    script = FOLLOWED.format(path=path, options=f"{FOLLOW}, 'source.max-bytes-per-batch' = '1 B'")
    assert read(tmp_path, script, "SELECT count(*), sum(k) FROM seen") == [(30, 435)]
    partitions = pa.table({"k": pa.array(range(30, 40), pa.int64())})
    write_deltalake(str(path), partitions, mode="append")
    DeltaTable(str(path)).optimize.compact()
    put(path, range(40, 50))
    assert read(tmp_path, script, "SELECT count(*), sum(k) FROM seen") == [(50, 1225)]
    descriptors = list((tmp_path / "warehouse" / "jobs" / "seen").rglob("splits/*.json"))
    assert descriptors, "the position is that of the batches"
    DeltaTable(str(path)).delete("k < 5")
    with pytest.raises(SqlStreamError, match=r"version 6 of the Delta table has rows that it takes away"):
        read(tmp_path, script, "SELECT 1")


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [
        ("'scan.version' = '1'", 20, 20),
        (f"'scan.startup.mode' = 'latest', {FOLLOW}", 0, 10),
        (f"'scan.startup.mode' = 'version', 'scan.startup.version' = '1', {FOLLOW}", 20, 30),
    ],
)
def test_where_reading_begins_and_ends(tmp_path: Path, options: str, first: int, later: int) -> None:
    path = tmp_path / "t"
    for number in range(3):
        put(path, range(number * 10, number * 10 + 10))
    script, count = FOLLOWED.format(path=path, options=options), "SELECT count(*) FROM seen"
    if first:
        assert read(tmp_path, script, count) == [(first,)]
    else:
        run(str(tmp_path), script)
    put(path, range(30, 40))
    assert read(tmp_path, script, count) == [(later,)]


@pytest.mark.parametrize("lost", ["file", "version"])
def test_what_the_table_no_longer_has_is_named(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "t"
    put(path, range(10))
    script = FOLLOWED.format(path=path, options=FOLLOW)
    assert read(tmp_path, script, "SELECT count(*) FROM seen") == [(10,)]
    put(path, range(10))
    log = path / "_delta_log" / f"{1:020d}.json"
    [added] = [json.loads(line)["add"]["path"] for line in log.read_text().splitlines() if '"add"' in line]
    if lost == "version":
        DeltaTable(str(path)).create_checkpoint()
    os.remove(path / added if lost == "file" else log)
    said = (
        "of version 1 of the Delta table is gone"
        if lost == "file"
        else "version 1 of the Delta table is no longer in its log"
    )
    with pytest.raises(SqlStreamError, match=said):
        read(tmp_path, script, "SELECT 1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'scan.version' = '9'", "has no version 9; the newest is 0"),
        ("'scan.version' = '0', 'source.monitor-interval' = '1 s'", '"scan.version" does not go with'),
        ("'scan.startup.mode' = 'newest'", '"newest" is not one of snapshot, latest, version'),
        (
            "'scan.startup.mode' = 'version'",
            '"scan.startup.mode" = "version" needs the option "scan.startup.version"',
        ),
        (
            "'scan.startup.version' = '0'",
            'the option "scan.startup.version" needs "scan.startup.mode" = "version"',
        ),
        ("'scan.change-data-feed' = 'true'", "the Delta table has no change data feed"),
        ("'storages' = 'x'", 'option "storages" does not exist'),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: str, message: str) -> None:
    put(tmp_path / "t", range(10))
    with pytest.raises(SqlStreamError) as e:
        run(str(tmp_path), FOLLOWED.format(path=tmp_path / "t", options=options))
    assert message in str(e.value)
