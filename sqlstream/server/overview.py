"""Information about the jobs of a warehouse, from the tables `sqlstream.*`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import duckdb
import msgspec

from sqlstream.duck.sql import quote_name
from sqlstream.errors import UsageError
from sqlstream.jobs import ending
from sqlstream.queries.query import Sandbox, list_relations
from sqlstream.server.messages import JobDetails, Jobs, JobSummary, QueryableRelation, RelationList, Savepoints
from sqlstream.server.states import states_of, window_of
from sqlstream.warehouse.jobs import TABLE, JobRecord, RowPath, readable_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import LOST, RESTARTING


class Overview:
    """Answers requests about jobs from one small database. `supervised` says how the server supervises a job, None if not."""

    def __init__(self, warehouse: Warehouse, supervised: Callable[[str], str | None]):
        self._warehouse, self._supervised = warehouse, supervised
        self._sandbox = Sandbox(warehouse)
        self._one_at_a_time = threading.Lock()

    def jobs(self) -> Jobs:
        """Return all jobs of the warehouse, including jobs that other processes run."""
        return Jobs([self._summary(row) for row in self._rows("SELECT * FROM sqlstream.jobs ORDER BY job")])

    def job(self, name: str) -> JobDetails:
        """Return all information about a job. Raises UsageError if it does not exist."""
        ending.existing(self._warehouse, name)
        tables = ("jobs", "operators", "watermarks", "restarts", "checks")
        # Counting state takes long for all jobs, and a damaged job must not hide another.
        rows = {table: self._rows(f"SELECT * FROM sqlstream.{table}", only=name) for table in tables}
        if not rows["jobs"]:
            # It was dropped in the meantime.
            raise UsageError(f'job "{name}" does not exist')
        record = readable_record(self._warehouse.fs, self._warehouse.job(name))
        return JobDetails(
            job=self._summary(rows["jobs"][0]),
            operators=rows["operators"],
            watermarks=rows["watermarks"],
            restarts=rows["restarts"],
            checks=rows["checks"],
            plan=record.plan_text if record is not None else None,
            graph=graph_of(record) if record is not None else {"nodes": [], "edges": []},
            states=list(states_of(record)) if record is not None else [],
        )

    def savepoints(self) -> Savepoints:
        """Return the savepoints of the warehouse."""
        return Savepoints(self._rows("SELECT * FROM sqlstream.savepoints ORDER BY taken_at, savepoint"))

    def relations(self) -> RelationList:
        """Return the relations that a query can read in the warehouse, with their columns."""
        with self._one_at_a_time:
            rows = self._sandbox.query("SHOW ALL TABLES").fetchall()
        described = {str(row[0]): str(row[1]) for row in rows}
        paths = [(".".join(path), path) for path in list_relations(self._warehouse)]
        return RelationList([QueryableRelation(name, described.get(name, ""), list(path)) for name, path in paths])

    def _summary(self, row: dict[str, Any]) -> JobSummary:
        fields = {name: row[name] for name in JobSummary.__struct_fields__ if name in row}
        supervised = self._supervised(row["job"])
        if supervised is not None and fields["status"] == LOST:
            # Its process has died, and the server starts another one.
            fields["status"] = RESTARTING
        return msgspec.convert({**fields, "supervised": supervised}, JobSummary)

    def _rows(self, sql: str, only: str | None = None) -> list[dict[str, Any]]:
        """Return rows by column, of all jobs or of one; times are texts."""
        with self._one_at_a_time:
            relation = self._sandbox.query(sql, only=only)
            shown = relation.project(", ".join(_shown(relation)))
            return [dict(zip(relation.columns, row, strict=True)) for row in shown.fetchall()]

    def close(self) -> None:
        """Close the database."""
        self._sandbox.close()


def _shown(relation: duckdb.DuckDBPyRelation) -> Sequence[str]:
    """Return the columns of a relation as SQL, with times as text."""
    columns = []
    for name, kind in zip(relation.columns, relation.types, strict=True):
        sql = quote_name(name)
        columns.append(f"CAST({sql} AS VARCHAR) AS {sql}" if str(kind).startswith("TIMESTAMP") else sql)
    return columns


def graph_of(record: JobRecord) -> dict[str, Any]:
    """Return the graph of a job. Nodes are sources, fragments, operators and sinks; an edge leads from a node to its reader.

    A fragment is a sequence of stateless steps on rows, such as filters and lookups, without projections. Records of early
    versions have no steps, only the names of an operator's inputs.
    """
    graph = _Graph(record)
    for operator in record.operators:
        node = {"kind": operator.kind, "keys": operator.key_columns, "bound": operator.bound}
        graph.nodes.append({"id": operator.name, **node, "window": window_of(operator)})
        shape = operator.shape
        if shape is not None:
            graph.connect(shape.paths or [RowPath(name) for name in shape.inputs], operator.name)
    for sink in record.sinks:
        id = f"sink {sink.table}"
        connector = "" if sink.kind == TABLE else sink.kind
        graph.nodes.append({"id": id, "kind": "sink", "table": sink.table, "connector": connector})
        graph.connect(sink.paths, id)
    return {"nodes": graph.nodes, "edges": graph.edges}


class _Graph:
    """The graph of a job while it is made; rows with the same steps share a fragment."""

    def __init__(self, record: JobRecord):
        self._record = record
        self._fragments: dict[tuple[str, tuple[str, ...]], str] = {}
        self.nodes: list[dict[str, Any]] = [
            {"id": s.name, "kind": "source", "table": s.table, "label": record.label(s)} for s in record.scans
        ]
        self.edges: list[dict[str, str]] = []

    def connect(self, paths: Iterable[RowPath], target: str) -> None:
        """Add the edges of the rows that an operator or a sink reads."""
        for path in paths:
            for source in self._record.origins(path):
                self._add(self._fragment(source, path.steps) if path.steps else source, target)

    def _fragment(self, source: str, steps: tuple[str, ...]) -> str:
        if (source, steps) not in self._fragments:
            id = self._fragments[source, steps] = f"fragment {len(self._fragments) + 1}"
            self.nodes.append({"id": id, "kind": "fragment", "steps": list(steps)})
            self._add(source, id)
        return self._fragments[source, steps]

    def _add(self, source: str, target: str) -> None:
        if (edge := {"from": source, "to": target}) not in self.edges:
            self.edges.append(edge)
