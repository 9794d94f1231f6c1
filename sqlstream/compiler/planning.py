"""Optimizes the bound plans of a job, decides by which rule it breaks ties, and makes its physical plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from sqlstream.compiler.planned_job import JobPlans
from sqlstream.logical.bind.hints import with_session_ttl
from sqlstream.logical.plan.arrival import decided, reads_arrival
from sqlstream.logical.plan.graph import shared
from sqlstream.logical.plan.late_rows import united, with_late_reads
from sqlstream.logical.plan.rules import optimize
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.units import Duration


@dataclass(frozen=True, slots=True)
class Planning:
    """The plans of a job in which the order of arrival decides ties.

    `rules` are the names of the rules that changed a plan. `other_plans` makes the plans in which the values of columns decide
    ties; it is None if these are the same (see `PlannedJob.ties`).
    """

    plans: JobPlans
    rules: tuple[str, ...]
    other_plans: Callable[[], JobPlans] | None


def planning(logical: Sequence[ResultSink], ttl: Duration, *, keeps_malformed: bool) -> Planning:
    """Plan the bound plans of a job; `ttl` is the session's time to live, `keeps_malformed` is as in `planner.plan`."""
    # Imported late: a state query only declares tables, and starts faster without the operators.
    from sqlstream.physical.planner import plan

    optimized, rules = list[ResultSink](), dict[str, None]()
    for sink in with_late_reads(logical):
        better, applied = optimize(with_session_ttl(sink, ttl))
        assert isinstance(better, ResultSink)
        optimized.append(better)
        rules |= dict.fromkeys(applied)
    by_columns = tuple(shared(united(optimized)))
    by_arrival = tuple(decided(by_columns))
    plans = JobPlans("arrival", by_arrival, plan(by_arrival, keeps_malformed=keeps_malformed))

    @cache
    def other_plans() -> JobPlans:
        return JobPlans("columns", by_columns, plan(by_columns, keeps_malformed=keeps_malformed))

    return Planning(plans, tuple(rules), other_plans if reads_arrival(by_arrival) else None)
