"""What sources and sinks declare about repeated batches and savepoints, and the end-to-end guarantee of a job.

The manual shows the guarantees as a table, EXPLAIN shows a job's as a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

EXACTLY, AT_LEAST, AT_MOST, NO_GUARANTEE = "exactly once", "at least once", "at most once", "no guarantee"


class Replay(Enum):
    """Whether a repeated batch reads the same rows."""

    # The source stores its rows, and returns the rows between two positions again.
    REPLAYABLE = "replayable"
    # Rows are computed from their positions.
    DETERMINISTIC = "deterministic"
    # Rows that the job does not receive in time are lost.
    AT_MOST_ONCE = "at-most-once"

    @property
    def times(self) -> str:
        """How often each row is read, in words: AT_MOST or EXACTLY."""
        return AT_MOST if self is Replay.AT_MOST_ONCE else EXACTLY


class Delivery(Enum):
    """How a sink writes a batch, and what writing it again does."""

    # The rows of a batch become visible together, when it is committed.
    TRANSACTIONAL = "transactional"
    # Writing a batch again changes nothing.
    IDEMPOTENT = "idempotent"
    # Writing a batch again duplicates rows.
    AT_LEAST_ONCE = "at-least-once"
    # Rows may be lost or duplicated.
    NONE = "none"

    @property
    def times(self) -> str:
        """How often each row arrives, in words: EXACTLY, AT_LEAST or NO_GUARANTEE."""
        return {Delivery.AT_LEAST_ONCE: AT_LEAST, Delivery.NONE: NO_GUARANTEE}.get(self, EXACTLY)


class Rollback(Enum):
    """What happens to rows written after a savepoint, when the job goes back to the savepoint."""

    # The table stores no rows.
    NO_ROWS = "no rows"
    # The sink removes the rows of batches after `SinkContext.committed`, when the job starts.
    ROWS_REMOVED = "rows removed"
    # The rows stay, and the job writes them again.
    ROWS_STAY = "rows stay"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee at one end of a job: how often each row counts, why, and which end it is, such as `source s`.

    `times` is EXACTLY, AT_LEAST, AT_MOST or NO_GUARANTEE.
    """

    times: str
    reason: str
    where: str = ""


def guarantee(parts: Iterable[Guarantee]) -> str:
    """Return a job's guarantee in a line: how often each input row counts in the output, and why.

    `parts` are the guarantees of its sources and of its sink.

    >>> guarantee([Guarantee(AT_MOST, "lines are lost", "source s"), Guarantee(EXACTLY, "rows are committed", "sink t")])
    'at most once: lines are lost (source s)'
    """
    all_parts = list(parts)
    weak = [g for g in all_parts if g.times != EXACTLY]
    if not weak:
        conditions = [f"{g.reason} ({g.where})" for g in all_parts if g.reason.startswith("if ")]
        return ", ".join([EXACTLY, *conditions])
    times = {g.times for g in weak}
    # With at least once at one end and at most once at the other, a row may be lost or duplicated.
    answer = times.pop() if len(times) == 1 else NO_GUARANTEE
    return f"{answer}: {'; '.join(f'{g.reason} ({g.where})' for g in weak)}"


def matrix(sources: Sequence[tuple[str, Guarantee]], sinks: Sequence[tuple[str, Guarantee]]) -> str:
    """Return the manual's tables of guarantees, as Markdown. Sources and sinks come as (name to show, guarantee)."""
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
