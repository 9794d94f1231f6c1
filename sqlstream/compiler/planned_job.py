"""The job that the compiler makes of a statement, before it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlstream.catalog import DuckFunction
from sqlstream.compiler.declarations import Script
from sqlstream.compiler.table_options import lasting
from sqlstream.connectors.tables import is_bounded
from sqlstream.errors import StatementWarning, UnboundedState
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.plan_warnings import divided, unaligned, unbounded
from sqlstream.logical.plan.state_settings import Semantics, Ties
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.options import Options
from sqlstream.physical.plan import PhysicalPlan
from sqlstream.sql.nodes import Insert, Select, StatementSet


@dataclass(frozen=True, slots=True)
class JobPlans:
    """The plans of a job under one rule for ties: an optimized plan per INSERT, and the physical plan."""

    ties: Ties
    optimized: tuple[ResultSink, ...]
    physical: PhysicalPlan


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A compiled job: its statement, its plans at every stage, and the options and functions that apply to it.

    `logical` and `optimized` have a plan per INSERT; `rules` are the names of the optimizer rules that changed a plan. `script`
    holds the declarations and options of its script that the job needs, or is None if these contain secrets.

    `ties` is the rule for rows that are equal in an ORDER BY: the order of arrival, or the values of their columns, decides which
    one is first. `optimized` and `physical` depend on it, `logical` does not. `other_plans` makes the plans under the other rule;
    it is None if both rules give the same plans. `semantics` says whether expressions have Flink's values or DuckDB's.
    `in_duckdbs` is the same job under DuckDB's semantics, None if that does not differ. `notices` are warnings about expressions.
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
    ties: Ties = "arrival"
    other_plans: Callable[[], JobPlans] | None = field(default=None, compare=False, repr=False)
    semantics: Semantics = "flink"
    in_duckdbs: PlannedJob | None = field(default=None, compare=False, repr=False)
    notices: tuple[StatementWarning, ...] = field(default=(), compare=False, repr=False)

    @property
    def depends_on_ties(self) -> bool:
        """Whether its plans depend on the rule for ties."""
        return self.other_plans is not None

    def decided_by(self, ties: Ties) -> PlannedJob:
        """Return the job under the rule `ties`; the job itself if that is its rule, or if its plans do not depend on it."""
        if ties == self.ties or self.other_plans is None:
            return self
        own, other = JobPlans(self.ties, self.optimized, self.physical), self.other_plans()
        return replace(
            self, ties=other.ties, optimized=other.optimized, physical=other.physical, other_plans=lambda: own
        )

    @property
    def has_semantics(self) -> bool:
        """Whether its plans differ between Flink's and DuckDB's semantics of expressions."""
        return self.in_duckdbs is not None

    def under(self, ties: Ties, semantics: Semantics) -> PlannedJob:
        """Return the job under older rules. This job must be as the compiler has planned it, under the newest rules."""
        if semantics == "flink" or self.in_duckdbs is None:
            return self.decided_by(ties)
        # A fork has another name.
        return replace(self.in_duckdbs, name=self.name).decided_by(ties)

    @property
    def warnings(self) -> tuple[UnboundedState | StatementWarning, ...]:
        """Warnings for the job's owner: unbounded state, results that depend on the division into batches, joins without matches.

        If 'sqlstream.unbounded-state' is 'allow', there is no warning about unbounded state.
        """
        allows = self.options.text("sqlstream.unbounded-state").lower() == "allow"
        growing = () if allows else unbounded(self.optimized, is_bounded)
        return (*self.notices, *growing, *divided(self.optimized), *unaligned(self.optimized))

    @property
    def sql(self) -> str:
        """The text of the statement, in which variables of the environment are not replaced."""
        return self.statement.span.written

    @property
    def is_query(self) -> bool:
        """Whether it is a bare SELECT, which writes nothing."""
        return isinstance(self.statement, Select)

    @property
    def appends(self) -> bool:
        """Whether it is INSERT .. VALUES: it adds its rows whenever it runs."""
        return isinstance(self.statement, Insert) and self.statement.appends

    @property
    def is_immediate(self) -> bool:
        """Whether it reads nothing but VALUES and keeps no state, so that this process can run it at once."""
        if any(sink.table.overwrites is not None for sink in self.physical.sinks):
            # Its rows must not come twice.
            return False
        return not self.physical.stages and all(s.table.is_values for s in self.physical.scans)

    @property
    def bounded(self) -> bool:
        """Whether the input of all its tables ends."""
        return all(is_bounded(s.table) for s in self.physical.scans)

    @property
    def plan_text(self) -> str:
        """The plans as text for users, without options that may change while the job lives."""
        return "\n".join(map(logical_text, lasting(self.optimized)))

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of `plan_text`, in hexadecimal."""
        return hashlib.sha256(self.plan_text.encode()).hexdigest()
