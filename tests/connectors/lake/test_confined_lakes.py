"""Lakehouse tables whose files must lie in some folders: neither links nor what their logs say lead a library elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sqlstream.catalog import Column, Table
from sqlstream.connectors.delta.location import Location
from sqlstream.connectors.delta.reading import DeltaSplit, read_versions
from sqlstream.connectors.delta.schema import create
from sqlstream.connectors.delta.versions import DeltaDiscovery
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.iceberg.catalogs import CatalogTable
from sqlstream.errors import DataError
from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.jobs import run

LEADS_OUTSIDE = "leads outside of where its files may be"
KEYS, SECRET = pa.table({"k": pa.array([1], pa.int64())}), pa.table({"k": pa.array([4711], pa.int64())})
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Delta table with two versions in the folder that is allowed, and one in another folder."""
    for folder, rows in (("in", KEYS), ("private", SECRET)):
        write_deltalake(tmp_path / folder / "t", rows, configuration=FEED)
        write_deltalake(tmp_path / folder / "t", rows, mode="append")
    pq.write_table(SECRET, tmp_path / "private" / "x.parquet")
    return tmp_path


def confined(project: Path, **options: str) -> Table:
    table = Table("t", (Column("k", "BIGINT"),), options={"connector": "delta", "path": "in/t", **options})
    return replace(table, within=(os.path.realpath(project / "in"),))


def discovery_of(project: Path, table: Table) -> DeltaDiscovery:
    context = DiscoveryContext(str(project), Warehouse(f"{project}/w"), "", 1, True, lambda name, value: value)
    return DeltaDiscovery(table, Offsets(), context)


def rows_of(project: Path, table: Table) -> list[Any]:
    """Read the table as a job does: its snapshot, or the changes of each version."""
    ends = {"scan.startup.mode": "version", "scan.startup.version": "0"} if table.has_changes else {}
    table = replace(table, options={**table.options, **ends})
    discovery = discovery_of(project, table)
    discovery.poll()
    splits = list(discovery.next_batch() or ())
    location = Location.of(table, str(project))
    with duckdb.connect() as con:
        plan = read_versions(con, splits, table, location)
        return con.execute(f"SELECT k FROM ({plan.sql}) ORDER BY k").fetchall()


def log_file(project: Path, version: int = 2) -> Path:
    return project / "in" / "t" / "_delta_log" / f"{version:020d}.json"


def add_version(project: Path, **actions: Any) -> None:
    """Append a version to the log that names a file as no writer of Delta would."""
    of_all: dict[str, Any] = {"partitionValues": {}, "size": 500}
    lines = [{kind: {**of_all, "dataChange": kind != "cdc", **named}} for kind, named in actions.items()]
    log_file(project).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


ELSEWHERE = {
    "absolute": "{private}/x.parquet",
    "uri": "file://{private}/x.parquet",
    "short uri": "file:{private}/x.parquet",
    "above": "../../private/x.parquet",
    "encoded": "..%2F..%2Fprivate/x.parquet",
    "encoded dots": "%2e%2e/%2e%2e/private/x.parquet",
    "encoded twice": "%252e%252e/%252e%252e/private/x.parquet",
    "backslashes": "..\\..\\private\\x.parquet",
    "tabs": ".\t./.\t./private/x.parquet",
    "a store": "s3://private/x.parquet",
}
CHANGES = {"scan.change-data-feed": "true"}


SCRIPT = """
CREATE TABLE given (k BIGINT, p STRING) WITH ('connector' = 'filesystem', 'path' = 'in/*.json', 'format' = 'json');
CREATE TABLE o (k BIGINT, p STRING{key}) PARTITIONED BY (p)
    WITH ('connector' = '{connector}', 'path' = 'in/o', '{option}' = '{value}');
INSERT INTO o SELECT k, p FROM given
"""
KEY = ", PRIMARY KEY (k, p) NOT ENFORCED"
DELTA, FILES = ("delta", "sink.create-table", "true"), ("filesystem", "format", "json")


def write(project: Path, kind: tuple[str, str, str], key: str = "") -> None:
    connector, option, value = kind
    script = SCRIPT.format(key=key, connector=connector, option=option, value=value)
    run(str(project), script, within=(os.path.realpath(project / "in"),))


@pytest.mark.parametrize("key", ["", KEY], ids=["appended", "merged"])
def test_a_confined_table_is_read_and_written(project: Path, key: str) -> None:
    assert rows_of(project, confined(project)) == [(1,), (1,)]
    assert rows_of(project, confined(project, **CHANGES)) == [(1,), (1,)]
    (project / "in" / "x.json").write_text('{"k": 1, "p": "a"}\n{"k": 2, "p": "x: y/%2F"}\n')
    write(project, DELTA, key)
    table = confined(project, path="in/o")
    assert rows_of(project, replace(table, columns=(*table.columns, Column("p", "VARCHAR")))) == [(1,), (2,)]
    found = pa.table(DeltaTable(str(project / "in" / "o")).to_pyarrow_table()).sort_by("k")
    assert found.to_pylist() == [{"k": 1, "p": "a"}, {"k": 2, "p": "x: y/%2F"}]


@pytest.mark.parametrize("kind", ["folder", "file", "last file", "sidecars"])
def test_a_log_that_is_a_link_is_not_opened(project: Path, kind: str) -> None:
    log, private = project / "in" / "t" / "_delta_log", project / "private" / "t" / "_delta_log"
    table, location = confined(project), Location.of(confined(project), str(project))
    discovery = discovery_of(project, table)
    if kind == "folder":
        shutil.rmtree(log)
        log.symlink_to(private)
    elif kind == "file":
        log_file(project, 0).unlink()
        log_file(project, 0).symlink_to(private / log_file(project, 0).name)
    elif kind == "last file":
        log_file(project).symlink_to(private / log_file(project, 1).name)
    else:
        (log / "_sidecars").symlink_to(private)
    uses: list[Callable[[], object]] = [
        location.open,
        location.exists,
        discovery.poll,
        lambda: create(location, table, {}),
        lambda: rows_of(project, table),
    ]
    for use in uses:
        with pytest.raises(DataError, match=LEADS_OUTSIDE):
            use()
    # A table of anybody else follows links.
    assert replace(location, table=replace(table, within=())).exists()


@pytest.mark.parametrize("options", [{}, CHANGES], ids=["rows", "changes"])
@pytest.mark.parametrize("path", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_file_that_the_log_names_elsewhere_is_not_read(project: Path, path: str, options: dict[str, str]) -> None:
    private = os.path.realpath(project / "private")
    add_version(project, add={"path": path.format(private=private), "modificationTime": 0})
    split = DeltaSplit(2, 1, True, "" if options else path.format(private=private), 500, {})
    table = confined(project, **options)
    with duckdb.connect() as con, pytest.raises(DataError, match=LEADS_OUTSIDE):
        read_versions(con, [split], table, Location.of(table, str(project)))


@pytest.mark.parametrize("path", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("kind", ["cdc", "remove", "vector"])
def test_changes_that_the_log_names_elsewhere_are_not_read(project: Path, path: str, kind: str) -> None:
    path = path.format(private=os.path.realpath(project / "private"))
    first, _ = pa.table(DeltaTable(str(project / "in" / "t")).get_add_actions())["path"].to_pylist()
    add = {"path": first, "modificationTime": 0}
    if kind == "vector":
        add["deletionVector"] = {"storageType": "p", "pathOrInlineDv": path, "sizeInBytes": 4, "cardinality": 1}
        add_version(project, add=add)
    else:
        add_version(project, add=add, **{kind: {"path": path, "deletionTimestamp": 0}})
    table = confined(project, **CHANGES)
    with duckdb.connect() as con, pytest.raises(DataError, match=LEADS_OUTSIDE):
        read_versions(con, [DeltaSplit(2, 1, True, "", 500, {})], table, Location.of(table, str(project)))


def test_a_deletion_vector_elsewhere_is_not_read(project: Path) -> None:
    first, _ = pa.table(DeltaTable(str(project / "in" / "t")).get_add_actions())["path"].to_pylist()
    features = ["deletionVectors", "changeDataFeed"]
    path = f"{os.path.realpath(project / 'private')}/x.parquet"
    vector = {"storageType": "p", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features[:1],
        "writerFeatures": features,
    }
    add = {"path": first, "size": 500, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
    lines = [{"protocol": protocol}, {"add": {**add, "deletionVector": vector}}]
    log_file(project).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        rows_of(project, confined(project))


def test_a_folder_of_changes_that_is_a_link_is_not_read(project: Path) -> None:
    (project / "in" / "t" / "_change_data").symlink_to(project / "private")
    add_version(project, cdc={"path": "_change_data/x.parquet"})
    table = confined(project, **CHANGES)
    with duckdb.connect() as con, pytest.raises(DataError, match=LEADS_OUTSIDE):
        read_versions(con, [DeltaSplit(2, 1, True, "", 500, {})], table, Location.of(table, str(project)))


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_sidecar_elsewhere_is_not_read(project: Path, kind: str) -> None:
    checkpoint = f"{log_file(project, 1).with_suffix('')}.checkpoint.0123.{kind}"
    sidecar = {"path": "../../../../private/x.parquet", "sizeInBytes": 500, "modificationTime": 0}
    if kind == "json":
        Path(checkpoint).write_text(json.dumps({"sidecar": sidecar}))
    else:
        pq.write_table(pa.Table.from_pylist([{"sidecar": None}, {"sidecar": sidecar}]), checkpoint)
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        Location.of(confined(project), str(project)).open()


@pytest.mark.parametrize(("kind", "key"), [(DELTA, ""), (DELTA, KEY), (FILES, "")], ids=["appended", "merged", "files"])
def test_a_partition_that_is_a_link_is_not_written(project: Path, kind: tuple[str, str, str], key: str) -> None:
    (project / "in" / "x.json").write_text('{"k": 1, "p": "a"}\n')
    (project / "in" / "o").mkdir()
    (project / "in" / "o" / "p=a").symlink_to(project / "private")
    before = sorted(os.listdir(project / "private"))
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        write(project, kind, key)
    assert sorted(os.listdir(project / "private")) == before


def test_an_iceberg_table_cannot_be_confined(project: Path) -> None:
    # Its metadata may name files anywhere; SQL of the role submit cannot declare one.
    table = replace(confined(project), options={"connector": "iceberg", "table": "db.t"})
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        CatalogTable.of(table, str(project))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_confined_job_publishes_its_tables(project: Path, kind: str) -> None:
    (project / "in" / "x.json").write_text('{"k": 1, "p": "a"}\n')
    script = f"""
    CREATE TABLE given (k BIGINT, p STRING) WITH ('connector' = 'filesystem', 'path' = 'in/*.json', 'format' = 'json');
    CREATE TABLE o (k BIGINT, p STRING) WITH ('sqlstream.publish' = '{kind}');
    INSERT INTO o SELECT k, p FROM given"""
    run(str(project), script, within=(os.path.realpath(project / "in"),))
    assert open_query(Warehouse(f"{project}/warehouse"), "FROM o").fetchall() == [(1, "a")]
    assert (project / "warehouse" / "published" / "o").is_dir()
