"""What to write where the event time of a process function's result is asked for, and its call gives it none."""

from __future__ import annotations

from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import ROWTIME, Process


def without_rowtime(*nodes: Node) -> dict[str, str]:
    """Return the hint for the column `rowtime`, by this name, where a call below lacks on_time; empty where none does."""
    calls = (one for node in nodes for one in walk(node) if isinstance(one, Process) and not one.has_rowtime)
    hint = next(map(_hint, calls), None)
    return {} if hint is None else {ROWTIME: hint}


def _hint(call: Process) -> str | None:
    times = list(dict.fromkeys(one.time_attribute for one in call.inputs))
    if None in times:
        return None
    given = ", ".join(str(time) for time in times)
    return (
        f"Rows of {call.function.name}(..) have an event time, {ROWTIME}, if the call says which it is: "
        f"on_time => DESCRIPTOR({given})."
    )
