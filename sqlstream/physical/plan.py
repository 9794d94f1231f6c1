"""The physical plan: three kinds of things, nothing else.

A *fragment* is everything stateless between two exchanges, as DuckDB SQL. An *exchange* sends its rows, in frames, to the
bucket that the hash of the key columns picks. A *stateful stage* is an operator over one bucket, and the fragment after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream.catalog import Table
from sqlstream.operators.step import Operator, Port


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where rows go next: the stage (by its place in the plan), the columns whose hash picks the bucket, a port per part."""

    stage: int
    keys: tuple[str, ...]
    ports: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Stateless work: `rows` is a SELECT over `_input`; each part, by name, is a SELECT over `_rows`.

    With several parts `rows` is computed once. Without an exchange the one part is what the sink stores.
    """

    rows: str
    parts: tuple[tuple[str, str], ...]
    exchange: Exchange | None


@dataclass(frozen=True, slots=True)
class ScanStage:
    """Reads splits of a table and runs a fragment over them.

    `columns` is a SELECT over `_input` that adds the computed columns; rows whose `time_column` is NULL are dropped and
    counted; `watermark` is an expression over those columns. `by_clock` says that it is the batch's time.
    """

    name: str
    table: Table
    columns: str
    time_column: str | None
    watermark: str | None
    fragment: Fragment
    by_clock: bool = False


@dataclass(frozen=True, slots=True)
class StatefulStage:
    """A stateful operator and the fragment that its changes go through; `time_column` is the time attribute of those.

    `view_sql` is the SELECT of the current result over the state tables, `count_sql` that of the number of open windows.
    """

    name: str
    operator: Operator
    ports: tuple[Port, ...]
    fragment: Fragment
    key_columns: tuple[str, ...]
    view_sql: str
    view_columns: tuple[tuple[str, str], ...]
    count_sql: str
    bound: str
    hash_columns: tuple[str, ...]
    time_column: str | None = None


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What becomes of the rows: the table they go to, and the names and types that it stores."""

    table: Table
    columns: tuple[tuple[str, str], ...]
    limit: int | None = None

    @property
    def kind(self) -> str:
        return self.table.connector or "table"


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A job: scans, then stateful stages in an order in which every stage comes after those that feed it, then one sink."""

    scans: tuple[ScanStage, ...]
    stages: tuple[StatefulStage, ...]
    sink: SinkPlan

    @property
    def watched(self) -> tuple[int, ...]:
        """The scans whose watermarks make that of the job: of those whose rows come to an operator."""
        return tuple(i for i, s in enumerate(self.scans) if s.watermark is not None and s.fragment.exchange is not None)

    def feeding(self, stage: int | None) -> Iterator[ScanStage | StatefulStage]:
        """Yield the scans and stages whose rows go to a stage (None: to the sink)."""
        nodes: list[ScanStage | StatefulStage] = [*self.scans, *self.stages]
        for node in nodes:
            exchange = node.fragment.exchange
            if (exchange.stage if exchange else None) == stage:
                yield node
