"""Why a job has no output: dropped rows, a source that holds back the watermark, or windows that wait for rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from sqlstream.catalog import IDLE_TIMEOUT
from sqlstream.jobs.progress import Progress, SourceProgress

# A job is silent if nothing has come out for this many seconds, and it has not just worked on one large batch.
SILENCE = 10.0
BATCHES = 2
# The distance between two adjacent event times.
_STEP = timedelta(microseconds=1)
# The last millisecond of Python's calendar, as the end of windows that end after it.
_LATEST = datetime.max - timedelta(microseconds=999)


@dataclass(frozen=True, slots=True)
class Hint:
    """Why a job is silent. Hints with the same subject differ in numbers only."""

    subject: str
    text: str


def dropped(progress: Progress, before: Progress) -> Hint | None:
    """Return a hint if all rows since `before` were dropped, as they had no event time or were late; otherwise None."""
    for name, source in progress.sources.items():
        if source.rows and source.null_rows == source.rows:
            return Hint(
                f"null {name}",
                f'{_all(source.rows)} of source "{name}" had no event time and {_were(source.rows)} dropped.'
                " Check the column that WATERMARK FOR names: is it called so in the data, and does its format fit?",
            )
    late = progress.late_rows - before.late_rows
    if late and not any(operator.state_rows for operator in progress.operators.values()):
        watermarks = [o.watermark for o in progress.operators.values() if o.late_rows and o.watermark is not None]
        return Hint(
            "late",
            f"{_all(late)} that came {_were(late)} late and dropped: their windows had closed, because the watermark is at"
            f" {time_text(max(watermarks, default=progress.watermark))}. Let WATERMARK FOR subtract a longer interval.",
        )
    return None


def _all(count: int) -> str:
    return f"all {count:,} rows" if count != 1 else "the only row"


def _were(count: int) -> str:
    return "were" if count != 1 else "was"


def held(progress: Progress, windows: int | None) -> Hint | None:
    """Return a hint about the source whose watermark keeps the next window open; None if no source does.

    `windows` is the number of open windows. If no operator has windows (None), the hint is about the next row that waits for the
    watermark.
    """
    if windows == 0:
        return None
    return next(filter(None, (_held(due, windows) for due in _dues(progress))), None)


def _held(due: _NextOutput, windows: int | None) -> Hint | None:
    watched, end = due.watched, due.end
    behind = {name: s for name, s in watched.items() if s.watermark is None or s.watermark < end}
    ahead = [name for name in watched if name not in behind]
    if not behind or not ahead:
        return None
    name = min(behind, key=lambda n: behind[n].watermark or datetime.min)
    watermark, timeout = behind[name].watermark, behind[name].idle_timeout
    newest = max(ahead, key=lambda n: watched[n].newest_event_time or datetime.min)
    if watermark is None:
        what = f'source "{name}" holds it back: no row with an event time has come from it yet'
    else:
        far = span_text((watched[newest].newest_event_time or end) - watermark)
        what = f'source "{name}" holds it back at {time_text(watermark)}, {far} behind the newest row of "{newest}"'
    advice = f"If it may be idle for long, set '{IDLE_TIMEOUT}' on its table."
    if timeout:
        advice = f"It does so until it has had no row for {span_text(timeout)}."
    reached = f"is after {time_text(end - _STEP)}" if _is_after(end) else f"reaches {time_text(end)}"
    text = f"{_waiting(windows, due.of)} when the watermark {reached}, but {what}. {advice}"
    return Hint(f"held {name}", text)


def awaited(progress: Progress, windows: int | None) -> Hint | None:
    """Return a hint about the input that would let the next window close or the next row leave; None if nothing waits."""
    if not progress.rows_in:
        names = " or ".join(f'"{name}"' for name in progress.sources)
        return Hint("nothing", f"no row has come from {names} yet.")
    if windows == 0:
        return None
    return next(filter(None, (_awaited(due, windows) for due in _dues(progress))), None)


def _awaited(due: _NextOutput, windows: int | None) -> Hint | None:
    holders, end = [s for s in due.watched.values() if s.holds_watermark], due.end
    source = min(holders, key=lambda s: s.watermark or datetime.min, default=None)
    if source is None or source.watermark is None or source.newest_event_time is None or end <= source.watermark:
        return None
    if end == datetime.max:
        text = "each row waits for later rows of its key, which LEAD or FOLLOWING looks at, and none has come yet."
        return Hint("awaited", text)
    newest, delay = source.newest_event_time, source.newest_event_time - source.watermark
    needed = end + min(delay, _LATEST - end)
    event_time = f"after {time_text(needed - _STEP)}" if _is_after(needed) else f"{time_text(needed)} or later"
    text = f"{_waiting(windows, due.of)} when a row with event time {event_time} arrives (newest: {time_text(newest)})."
    return Hint("awaited", text)


def _is_after(time: datetime) -> bool:
    """Return whether a time means "after its millisecond", when rows that wait for their turn leave: 1 µs past a millisecond."""
    return time.microsecond % 1000 == 1


def _waiting(windows: int | None, of: str) -> str:
    if windows is None:
        return f"rows wait for the watermark; the next one{of} is emitted"
    return f"{windows:,} windows are open; the next one{of} closes" if windows != 1 else "1 window is open; it closes"


@dataclass(frozen=True, slots=True)
class _NextOutput:
    """When the next window closes or the next row leaves: the event time `end`, and the sources that must reach it (`watched`).

    `of` names the operator if the operators of the job wait for different sources, else it is empty.
    """

    end: datetime
    watched: Mapping[str, SourceProgress]
    of: str = ""


def _dues(progress: Progress) -> Iterator[_NextOutput]:
    """Yield what is due next, for each set of sources that operators wait for; the earliest comes first."""
    several = len({o.waits_for for o in progress.operators.values() if o.waits_for}) > 1
    waiting = [(o.next_close, name, o.waits_for) for name, o in progress.operators.items() if o.next_close is not None]
    sets = set[tuple[str, ...]]()
    for end, name, waits_for in sorted(waiting):
        if waits_for not in sets:
            sets.add(waits_for)
            names = waits_for or progress.sources
            watched = {
                n: s
                for n, s in progress.sources.items()
                if n in names and s.has_watermark and s.watermark != datetime.max
            }
            yield _NextOutput(end, watched, f' of operator "{name}"' if several else "")


@dataclass
class SilenceWatch:
    """Watches an unbounded job: `look` says why nothing has come out for a while, and `news` says it once.

    `count_windows` returns the number of open windows, which may take a moment; None if no operator has windows.
    """

    count_windows: Callable[[], int | None]
    _since: float | None = None
    _before: Progress = field(default_factory=Progress)
    _seen: tuple[int, float] = (-2, 0.0)
    _hint: Hint | None = None
    _subjects: set[str] = field(default_factory=set)

    def look(self, progress: Progress, now: float, *, waits: bool) -> Hint | None:
        """Return why the job is silent at the time `now` (seconds), or None; `waits`: it has read all input that there is."""
        if self._since is None or progress.rows_out != self._before.rows_out:
            self._since, self._before, self._hint, self._seen = now, progress, None, (-2, now)
        batch = _number(progress)
        busy = not waits and batch < _number(self._before) + BATCHES
        seen, at = self._seen
        if not busy and batch != seen and now - max(at, self._since) >= SILENCE:
            self._seen = (batch, now)
            windows = self.count_windows()
            # A source that always has rows never waits; its windows do.
            hint = dropped(progress, self._before) or held(progress, windows) or awaited(progress, windows)
            self._hint = hint and Hint(
                hint.subject, f"No {'new result' if progress.rows_out else 'result yet'}: {hint.text}"
            )
        return self._hint

    def news(self, progress: Progress, now: float, *, waits: bool) -> Hint | None:
        """Return the hint of `look`, unless one with its subject was returned before."""
        hint = self.look(progress, now, waits=waits)
        if hint is None or hint.subject in self._subjects:
            return None
        self._subjects.add(hint.subject)
        return hint


def _number(progress: Progress) -> int:
    return -1 if progress.batch is None else progress.batch


def today() -> date:
    """Return the day, in UTC, whose event times are shown without a date."""
    return datetime.now(UTC).date()


def time_text(time: datetime | None) -> str:
    """Return an event time for people: without the date if it is today, with a fraction of a second only if it has one."""
    if time is None:
        return "none yet"
    if time == datetime.max:
        return "end of input"
    text = time.strftime("%H:%M:%S") if time.date() == today() else time.replace(microsecond=0).isoformat(" ")
    return text + (f".{time.microsecond:06d}".rstrip("0") if time.microsecond else "")


def span_text(span: timedelta) -> str:
    """Return a span of time in its two largest units.

    >>> span_text(timedelta(hours=30)), span_text(timedelta(seconds=61)), span_text(timedelta(milliseconds=250))
    ('1 d 6 h', '1 min 1 s', '250 ms')
    """
    micros = span // timedelta(microseconds=1)
    parts: list[str] = []
    for unit, length in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        count, micros = divmod(micros, length)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(p for p in parts[:2] if p) or f"{micros // 1000} ms"
