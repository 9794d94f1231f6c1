"""Why a job has no output: which rows were dropped, which source holds the watermark, or what its windows wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlstream.catalog import IDLE_TIMEOUT
from sqlstream.runtime.commits import Totals
from sqlstream.runtime.times import END_OF_INPUT

# A job is silent when nothing has come out for so long, and meanwhile it did not just work on one large batch.
SILENCE = 10.0
BATCHES = 2

Sources = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Hint:
    """One line about a silent job; those with the same subject say the same with other numbers."""

    subject: str
    text: str


def dropped(totals: Totals, before: Totals) -> Hint | None:
    """Say that rows were dropped, if all that came since `before` were: for want of an event time, or as late."""
    for name, source in totals.sources.items():
        if source["rows"] and source["null_rows"] == source["rows"]:
            return Hint(
                f"null {name}",
                f'all {source["rows"]:,} rows of source "{name}" were dropped, because their event time is NULL.'
                " Check the column that WATERMARK FOR names: its name in the data, its format, its cast.",
            )
    late = _sum(totals, "late_rows") - _sum(before, "late_rows")
    if late and not _sum(totals, "state_rows"):
        return Hint(
            "late",
            f"all {late:,} rows that came were dropped as late: the watermark is at {watermark_text(totals.watermark)}, and their"
            " windows had closed. Let WATERMARK FOR subtract more than rows may be late by.",
        )
    return None


def held(totals: Totals, windows: int | None) -> Hint | None:
    """Name the source without which the next of the open windows would have closed.

    Where no operator has windows (None), the next of the rows that wait for the watermark would have left.
    """
    watched, end = _watched(totals.sources), totals.wake_at
    if end is None or windows == 0:
        return None
    behind = {name: s for name, s in watched.items() if s["watermark"] is None or s["watermark"] < end}
    ahead = [name for name in watched if name not in behind]
    if not behind or not ahead:
        return None
    name = min(behind, key=lambda n: (behind[n]["watermark"] is not None, behind[n]["watermark"] or 0))
    mark, timeout = behind[name]["watermark"], behind[name]["idle_timeout"]
    newest = max(ahead, key=lambda n: int(watched[n]["max_event_time"] or 0))
    if mark is None:
        what = f'source "{name}" has had no row with an event time, and without one there is no watermark'
    else:
        far = span_text((watched[newest]["max_event_time"] or end) - mark)
        what = (
            f'source "{name}" holds the watermark at {watermark_text(mark)}, {far} behind the newest row of "{newest}"'
        )
    advice = f"If its rows may stay away for long, set '{IDLE_TIMEOUT}' on its table."
    if timeout:
        advice = f"When it has had no row for {span_text(timeout * 1000)} it no longer does."
    waiting = _waiting(totals, windows)
    return Hint(f"held {name}", f"{what}. {waiting[:1].upper()}{waiting[1:]}. {advice}")


def awaited(totals: Totals, windows: int | None) -> Hint | None:
    """Say which rows the open windows of a job wait for, or rows that wait for their place."""
    watched = _watched(totals.sources)
    if not totals.rows_in:
        names = " and ".join(f'"{name}"' for name in totals.sources)
        return Hint("nothing", f"no row has come from {names} yet.")
    source = next((s for s in watched.values() if s["holds_minimum"]), None)
    end = totals.wake_at
    if source is None or source["watermark"] is None or windows == 0 or end is None or end <= source["watermark"]:
        return None
    if end >= END_OF_INPUT:
        return Hint("awaited", "rows wait for those after them: LEAD and FOLLOWING need as many of the same key.")
    needed = watermark_text(end + source["max_event_time"] - source["watermark"])
    newest = watermark_text(source["max_event_time"])
    return Hint(
        "awaited",
        f"{_waiting(totals, windows)}, when a row has come that is as late as {needed}; the newest so far is of {newest}.",
    )


def _waiting(totals: Totals, windows: int | None) -> str:
    if windows is None:
        return f"rows wait until the watermark has passed them, the next one leaves at {watermark_text(totals.wake_at)}"
    some = f"{windows:,} windows wait" if windows != 1 else "1 window waits"
    return f"{some}, the next one closes at {watermark_text(totals.wake_at)}"


def _watched(sources: Sources) -> Sources:
    return {name: s for name, s in sources.items() if s["idle_timeout"] is not None and s["watermark"] != END_OF_INPUT}


def _sum(totals: Totals, key: str) -> int:
    return sum(values.get(key, 0) for values in totals.operators().values())


@dataclass
class Silence:
    """Watches a job that has no end: `look` says why nothing has come out since a while, and `news` says it once.

    `count_windows` tells how many windows are open, which may take a moment; None where no operator has windows.
    """

    count_windows: Callable[[], int | None]
    _since: float | None = None
    _before: Totals = field(default_factory=Totals)
    _seen: tuple[int, float] = (-2, 0.0)
    _hint: Hint | None = None
    _told: set[str] = field(default_factory=set)

    def look(self, totals: Totals, now: float, *, waits: bool) -> Hint | None:
        """Return why the job is silent, if it is; `waits` says that it has read all there is."""
        if self._since is None or totals.rows_out != self._before.rows_out:
            self._since, self._before, self._hint, self._seen = now, totals, None, (-2, now)
        busy = not waits and totals.version < self._before.version + BATCHES
        version, at = self._seen
        if not busy and totals.version != version and now - max(at, self._since) >= SILENCE:
            self._seen = (totals.version, now)
            windows = self.count_windows()
            self._hint = dropped(totals, self._before) or held(totals, windows)
            if self._hint is None and waits:
                self._hint = awaited(totals, windows)
        return self._hint

    def news(self, totals: Totals, now: float, *, waits: bool) -> Hint | None:
        """Return what `look` does, unless the same was told before."""
        hint = self.look(totals, now, waits=waits)
        if hint is None or hint.subject in self._told:
            return None
        self._told.add(hint.subject)
        return hint


def watermark_text(watermark: int | None) -> str:
    """Return an event time (microseconds) as people read it."""
    if watermark is None:
        return "none yet"
    if watermark >= END_OF_INPUT:
        return "end of input"
    return datetime.fromtimestamp(watermark / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span_text(micros: int) -> str:
    """Return a span of time in its two largest units.

    >>> span_text(3_600_000_000 * 30), span_text(61_000_000), span_text(250_000)
    ('1 d 6 h', '1 min 1 s', '250 ms')
    """
    parts: list[str] = []
    for unit, length in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        count, micros = divmod(micros, length)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(p for p in parts[:2] if p) or f"{micros // 1000} ms"
