"""Hints for queries that name `rowtime` of a process function whose call lacks on_time."""

from __future__ import annotations

from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import ROWTIME, Process


def without_rowtime(*nodes: Node) -> dict[str, str]:
    """Return a hint by the name of the missing column, `rowtime`, if a process function below has no on_time; else {}."""
    calls = (one for node in nodes for one in walk(node) if isinstance(one, Process) and not one.has_rowtime)
    hint = next(map(_hint, calls), None)
    return {} if hint is None else {ROWTIME: hint}


def _hint(call: Process) -> str | None:
    times = list(dict.fromkeys(one.time_attribute for one in call.inputs))
    if None in times:
        return None
    columns = ", ".join(str(time) for time in times)
    return (
        f"Rows of {call.function.name}(..) have an event time, {ROWTIME}, if the call says which it is: "
        f"on_time => DESCRIPTOR({columns})."
    )
