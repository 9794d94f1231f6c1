"""What sources and sinks declare about repeated batches and savepoints, and the promise that a job makes of it.

The manual has it as a table, and EXPLAIN as a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

EXACTLY, AT_LEAST, AT_MOST, NO_GUARANTEE = "exactly once", "at least once", "at most once", "no guarantee"


class Replay(Enum):
    """What a repeated batch reads."""

    # The source keeps its rows, and gives those between two positions again.
    REPLAYABLE = "replayable"
    # Rows are made of their positions again.
    DETERMINISTIC = "deterministic"
    # A row that was not read in time is lost.
    AT_MOST_ONCE = "at-most-once"

    @property
    def times(self) -> str:
        return AT_MOST if self is Replay.AT_MOST_ONCE else EXACTLY


class Delivery(Enum):
    """What becomes of the rows of a batch that is repeated."""

    # Rows of a batch appear together, when it is committed.
    TRANSACTIONAL = "transactional"
    # A batch that is written again changes nothing.
    IDEMPOTENT = "idempotent"
    # A batch may be written again.
    AT_LEAST_ONCE = "at-least-once"
    # Rows may be lost, and a batch may be written again.
    NONE = "none"

    @property
    def times(self) -> str:
        return {Delivery.AT_LEAST_ONCE: AT_LEAST, Delivery.NONE: NO_GUARANTEE}.get(self, EXACTLY)


class Rollback(Enum):
    """What becomes of the rows that a job has written after a savepoint, when it goes back to that."""

    # The table keeps no rows of any job.
    NO_ROWS = "no rows"
    # The sink removes them when the job starts: those of batches after `SinkContext.committed`.
    ROWS_REMOVED = "rows removed"
    # They stay, and would come again.
    ROWS_STAY = "rows stay"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How often a row counts at one end of a job, why, and where that is: `source s`."""

    times: str
    reason: str
    where: str = ""


def guarantee(parts: Iterable[Guarantee]) -> str:
    """Return the line for a job: how often each row that it reads counts in what it writes, and why not exactly once.

    >>> guarantee([Guarantee(AT_MOST, "lines are lost", "source s"), Guarantee(EXACTLY, "rows are committed", "sink t")])
    'at most once: lines are lost (source s)'
    """
    all_parts = list(parts)
    weak = [g for g in all_parts if g.times != EXACTLY]
    if not weak:
        conditions = [f"{g.reason} ({g.where})" for g in all_parts if g.reason.startswith("if ")]
        return ", ".join([EXACTLY, *conditions])
    times = {g.times for g in weak}
    # What is at least once at one end and at most once at the other may be lost, and may come twice.
    answer = times.pop() if len(times) == 1 else NO_GUARANTEE
    return f"{answer}: {'; '.join(f'{g.reason} ({g.where})' for g in weak)}"


def matrix(sources: Sequence[tuple[str, Guarantee]], sinks: Sequence[tuple[str, Guarantee]]) -> str:
    """Return the manual's table of sources and sinks, each a name as it is shown with what it promises."""
    lines = ["| source | can be read again | |", "|---|---|---|"]
    for name, g in sources:
        lines.append(f"| {name} | {'yes' if g.times == EXACTLY else 'no'} | {g.reason} |")
    lines += ["", "| from, into | " + " | ".join(name for name, _ in sinks) + " |", f"|---|{'---|' * len(sinks)}"]
    lossy = [name for name, g in sources if g.times == AT_MOST]
    for row, times in (("a source that can be read again", EXACTLY), (", ".join(lossy), AT_MOST)):
        lines.append(f"| {row} | {' | '.join(_both(times, g.times) for _, g in sinks)} |")
    lines += ["", *(f"- {name}: {g.reason}." for name, g in sinks if g.times != EXACTLY)]
    return "\n".join(lines)


def _both(source: str, sink: str) -> str:
    return sink if source == EXACTLY else source if sink in (source, EXACTLY) else NO_GUARANTEE
