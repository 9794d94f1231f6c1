"""The graph of a job: what reads what, and what is done to rows on their way."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sqlstream.server.overview import graph_of
from sqlstream.testing import Stream
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from tests.kinds import of_type

TABLES = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE clicks (page STRING, ms INT);
CREATE TABLE pages (page STRING PRIMARY KEY NOT ENFORCED, n BIGINT);
CREATE TABLE slow (page STRING, ms INT);
CREATE TABLE slowest (page STRING, ms INT);
"""
SET = """
BEGIN STATEMENT SET;
INSERT INTO pages SELECT page, COUNT(*) FROM clicks WHERE ms < 50 GROUP BY page HAVING COUNT(*) > 1;
INSERT INTO slow SELECT page, ms FROM clicks WHERE ms > 90;
INSERT INTO slowest SELECT UPPER(page), ms FROM clicks WHERE ms > 90;
END
"""


def record_of(sql: str) -> JobRecord:
    with Stream(TABLES + sql) as stream:
        stream.batch("clicks", [("a", 1), ("a", 95)])
        warehouse = Warehouse(stream.warehouse)
        [job] = warehouse.jobs()
        return of_type(JobRecord, read_record(warehouse.fs, warehouse.job(job)))


def edges(graph: dict[str, Any]) -> set[tuple[str, str]]:
    return {(edge["from"], edge["to"]) for edge in graph["edges"]}


def test_filters_are_fragments_between_what_they_are_between() -> None:
    graph = graph_of(record_of(SET))
    fragments = {node["id"]: node["steps"] for node in graph["nodes"] if node["kind"] == "fragment"}
    assert fragments == {
        "fragment 1": ['WHERE "ms" < 50'],
        "fragment 2": ["WHERE (COUNT(*)) > 1"],
        "fragment 3": ['WHERE "ms" > 90'],
    }
    assert edges(graph) == {
        ("clicks", "fragment 1"),
        ("fragment 1", "aggregate_1"),
        ("aggregate_1", "fragment 2"),
        ("fragment 2", "sink pages"),
        # Two tables get the rows that it lets pass.
        ("clicks", "fragment 3"),
        ("fragment 3", "sink slow"),
        ("fragment 3", "sink slowest"),
    }
    assert len(graph["edges"]) == len(edges(graph))


def test_what_only_computes_columns_is_no_fragment() -> None:
    graph = graph_of(record_of("INSERT INTO slow SELECT UPPER(page), ms * 2 FROM clicks"))
    assert [node["kind"] for node in graph["nodes"]] == ["source", "sink"]
    assert edges(graph) == {("clicks", "sink slow")}


def test_a_job_of_an_early_version_has_the_inputs_of_its_operators() -> None:
    record = record_of("INSERT INTO pages SELECT page, COUNT(*) FROM clicks WHERE ms < 50 GROUP BY page")
    [operator] = record.operators
    assert operator.shape is not None
    early = replace(operator, shape=replace(operator.shape, paths=()))
    assert ("clicks", "aggregate_1") in edges(graph_of(replace(record, operators=(early,))))


def test_rows_come_from_the_scan_that_reads_them() -> None:
    """One name may be that of several scans, and of an operator."""
    values = "SELECT * FROM (VALUES ('a', 1)) UNION ALL SELECT * FROM (VALUES ('b', 2)) WHERE col1 > 1"
    graph = graph_of(record_of(f"INSERT INTO slow {values}"))
    assert edges(graph) == {("values", "sink slow"), ("values_2", "fragment 1"), ("fragment 1", "sink slow")}
    labels = {node["id"]: node["label"] for node in graph["nodes"] if node["kind"] == "source"}
    assert labels == {"values": "values", "values_2": "values as values_2"}
    counts = "WITH clicks AS (SELECT page, COUNT(*) AS n FROM clicks AS c GROUP BY page) SELECT page, n FROM clicks"
    graph = graph_of(record_of(f"INSERT INTO pages {counts}"))
    assert edges(graph) == {("c", "clicks"), ("clicks", "sink pages")}


def test_a_job_of_an_early_version_does_not_know_which_scan_it_is() -> None:
    record = record_of("INSERT INTO slow SELECT * FROM (VALUES ('a', 1)) UNION ALL SELECT * FROM (VALUES ('b', 2))")
    [sink] = record.sinks
    early = replace(sink, paths=tuple(replace(path, scan="") for path in sink.paths))
    assert edges(graph_of(replace(record, sinks=(early,)))) == {("values", "sink slow"), ("values_2", "sink slow")}
