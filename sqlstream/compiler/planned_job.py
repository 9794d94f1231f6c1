"""A job as the compiler plans it, before anything of it runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlstream.catalog import DuckFunction
from sqlstream.compiler.declarations import Script
from sqlstream.compiler.table_options import lasting
from sqlstream.connectors.tables import is_bounded
from sqlstream.errors import StatementWarning, UnboundedState
from sqlstream.logical.plan.batch_order import divided
from sqlstream.logical.plan.bounds import unbounded
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.options import Options
from sqlstream.physical.plan import PhysicalPlan
from sqlstream.sql.nodes import Insert, Select, StatementSet


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job as its statement asks for it: plans at every stage, the options and functions in force, and its identity.

    `script` is what it needs of its script beside the statement; None where that has secrets.
    """

    name: str
    statement: Insert | StatementSet | Select
    logical: tuple[ResultSink, ...]
    optimized: tuple[ResultSink, ...]
    rules: tuple[str, ...]
    physical: PhysicalPlan
    options: Options
    functions: tuple[DuckFunction, ...] = ()
    script: Script | None = None

    @property
    def warnings(self) -> tuple[UnboundedState | StatementWarning, ...]:
        """What its owner should know: what state grows without a bound, and what depends on how rows fall into batches."""
        allows = self.options.text("sqlstream.unbounded-state").lower() == "allow"
        return (*(() if allows else unbounded(self.optimized, is_bounded)), *divided(self.optimized))

    @property
    def sql(self) -> str:
        """The statement as it was written, without secrets."""
        return self.statement.span.written

    @property
    def is_query(self) -> bool:
        """Whether it is a bare SELECT, of which nothing stays."""
        return isinstance(self.statement, Select)

    @property
    def appends(self) -> bool:
        """Whether it is INSERT .. VALUES: it adds its rows whenever it runs."""
        return isinstance(self.statement, Insert) and self.statement.appends

    @property
    def is_immediate(self) -> bool:
        """Whether all its rows stand in the query, so that this process can run it at once."""
        return not self.physical.stages and all(s.table.is_values for s in self.physical.scans)

    @property
    def bounded(self) -> bool:
        return all(is_bounded(s.table) for s in self.physical.scans)

    @property
    def plan_text(self) -> str:
        """The plan in words, but for how fast it reads, and where: it is for people, and tells no job from another."""
        return "\n".join(map(logical_text, lasting(self.optimized)))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.plan_text.encode()).hexdigest()
