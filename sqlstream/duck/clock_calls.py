"""Reads of the clock in expressions. A module apart from `time_variables`, which state queries import without sqlglot."""

from __future__ import annotations

from sqlglot import exp

from sqlstream.duck.time_variables import NOW_VARIABLE

CLOCK_NODES: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.Localtimestamp: "localtimestamp",
    exp.Localtime: "localtime",
}


def variables_in(bound: exp.Expr) -> set[str]:
    """Return the names of the clock's variables that a bound expression reads; it can read no other variables."""
    calls = (call for call in bound.find_all(exp.Anonymous) if call.name.lower() == "getvariable")
    return {call.expressions[0].name for call in calls}


def is_now(bound: exp.Expr) -> bool:
    """Return whether a bound expression is the processing time itself, and not computed from it."""
    # NOW is a cast of the variable; a computation has that cast further inside.
    inner = bound.this if isinstance(bound, exp.Cast) else None
    return isinstance(inner, exp.Anonymous) and variables_in(inner) == {NOW_VARIABLE}
