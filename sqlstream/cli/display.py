"""The display of `sqlstream run`: on a terminal a table with a line per job, otherwise a line per job every few seconds."""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import duckdb
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sqlstream.cli.silent_jobs import SilenceWatch, dropped, span_text, time_text
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import SqlStreamError, wrapped
from sqlstream.jobs.job import Job
from sqlstream.jobs.progress import Progress
from sqlstream.session.job_texts import ended_text, losses
from sqlstream.session.session import Session

# The least time between two lines of a job without a terminal, and the time over which a rate is measured; in seconds.
LINE_SECONDS = 5.0
RATE_SECONDS = 10.0
# The least time between two counts of the rows of a job's state, in seconds; counting takes at most one part in this many.
COUNT_SECONDS = 2.0
COUNT_SHARE = 20

_COLUMNS = ("job", "rows in", "rows/s", "rows out", "watermark", "lag", "state")

# Returns the number of rows in the state of a job, by its name; None if they cannot be counted now.
Count = Callable[[str], int | None]


class Display:
    """Shows the progress of jobs."""

    def __init__(self, console: Console, live: Live | None, count_state: Count | None = None):
        self.console, self.live = console, live
        self._rates: dict[str, Rate] = {}
        self._silences: dict[str, SilenceWatch] = {}
        self._last_lines: dict[str, tuple[int | None, float]] = {}
        self._states = StateCounts(count_state) if count_state else None

    @property
    def width(self) -> int | None:
        """The width of the terminal in columns; None without a terminal."""
        return self.console.width if self.console.is_terminal else None

    def say(self, text: str) -> None:
        """Print a text above the table."""
        for line in text.split("\n"):
            for part in wrapped(line, self.width):
                self.console.print(part, highlight=False, soft_wrap=True, markup=False)

    def warn(self, job: str, warning: SqlStreamError | str) -> None:
        """Show a warning about a job."""
        self.say(f"{job}: {f'warning: {warning}' if isinstance(warning, str) else warning.render(self.width)}")

    def wait_for(self, job: Job, count_windows: Callable[[], int | None]) -> None:
        """Watch an unbounded job: `update` says why it is silent. `count_windows` returns the number of its open windows."""
        self._silences[job.name] = SilenceWatch(count_windows)

    def update(self, jobs: Sequence[Job]) -> None:
        """Show changes; call it several times a second."""
        now = time.monotonic()
        job_progress = [(job, job.progress) for job in jobs]
        for job, progress in job_progress:
            self._rates.setdefault(job.name, Rate()).add(progress.rows_in, now)
        if self.live is not None:
            self.live.update(self._group(job_progress, now))
            return
        for job, progress in job_progress:
            silence = self._silences.get(job.name)
            if silence is not None and (hint := silence.news(progress, now, waits=job.is_waiting)):
                self.say(f"{job.name}: {hint.text}")
            batch, at = self._last_lines.get(job.name, (None, float("-inf")))
            if progress.batch != batch and now - at >= LINE_SECONDS:
                self._last_lines[job.name] = (progress.batch, now)
                self.say(self._line(job.name, progress, now))

    def ended(self, job: Job) -> None:
        """Print a summary of a job that has ended."""
        text, progress = ended_text(job), job.progress
        if not text:
            return
        self.say(text)
        if not progress.rows_out and (hint := dropped(progress, Progress())):
            self.say(f"{job.name}: No result: {hint.text}")

    def _line(self, name: str, progress: Progress, now: float) -> str:
        rate = self._rates[name].per_second(now)
        parts = [
            f"batch {progress.batch}",
            f"{progress.rows_in:,} rows in" + (f" ({rate:,.0f}/s)" if rate else ""),
            f"{progress.rows_out:,} out",
            *([f"watermark {time_text(progress.watermark)}"] if has_watermark(progress) else []),
            *([f"lag {far}"] if (far := lag_text(progress, datetime.now(UTC))) else []),
            *([f"{rows:,} rows in state"] if (rows := self._state(name, progress, now)) is not None else []),
            *losses(progress),
        ]
        return f"{name}: {', '.join(parts)}"

    def _group(self, jobs: Sequence[tuple[Job, Progress]], now: float) -> RenderableType:
        notes = []
        for job, progress in jobs:
            if lost := losses(progress):
                notes.append(Text(f"{job.name}: {', '.join(lost)}", style="yellow"))
            silence = self._silences.get(job.name)
            if silence is not None and (hint := silence.look(progress, now, waits=job.is_waiting)):
                notes.append(Text(f"{job.name}: {hint.text}"))
        return Group(self._table(jobs, now), *notes)

    def _table(self, jobs: Sequence[tuple[Job, Progress]], now: float) -> Table:
        rows = [_COLUMNS, *(self._cells(job, progress, now) for job, progress in jobs)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = Table(box=None, pad_edge=False, header_style="bold")
        # On a narrow terminal only names of jobs are cut off.
        room = self.console.width - sum(widths[1:]) - 2 * len(widths[1:])
        table.add_column(_COLUMNS[0], no_wrap=True, overflow="ellipsis", width=max(min(widths[0], room), 8))
        for name, width in zip(_COLUMNS[1:], widths[1:], strict=True):
            table.add_column(name, justify="right", no_wrap=True, width=width)
        for row in rows[1:]:
            table.add_row(*row)
        return table

    def _cells(self, job: Job, progress: Progress, now: float) -> tuple[str, ...]:
        state = self._state(job.name, progress, now)
        return (
            job.name,
            count_text(progress.rows_in),
            count_text(round(self._rates[job.name].per_second(now))),
            count_text(progress.rows_out),
            short_time(progress) if has_watermark(progress) else "-",
            lag_text(progress, datetime.now(UTC)) or "-",
            "-" if state is None else count_text(state),
        )

    def _state(self, name: str, progress: Progress, now: float) -> int | None:
        if self._states is None or progress.batch is None or not progress.operators:
            return None
        return self._states.of(name, now)


@dataclass
class Rate:
    """The number of rows per second, over the last ten seconds."""

    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, rows: int, now: float) -> None:
        """Add the number of rows up to a time, which is in seconds."""
        self._samples.append((now, rows))
        # One older sample stays: it has the number of rows when the ten seconds began.
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.popleft()

    def per_second(self, now: float) -> float:
        """Return the rate in rows per second.

        >>> rate = Rate()
        >>> for second in range(100):
        ...     rate.add(second * (5 if second < 50 else 7), float(second))
        >>> rate.per_second(99.0)
        7.0
        """
        first, rows = self._samples[0]
        return (self._samples[-1][1] - rows) / (now - first) if now > first else 0.0


class StateCounts:
    """The numbers of rows in the states of jobs, as their views show them; another thread counts them now and then."""

    def __init__(self, count: Count):
        self._count = count
        self._counts: dict[str, int | None] = {}
        self._due: dict[str, float] = {}

    def of(self, job: str, now: float) -> int | None:
        """Return the last count, None before the first; begin a new count if it is time for one."""
        if now >= self._due.get(job, float("-inf")):
            self._due[job] = float("inf")
            threading.Thread(target=self._look, args=(job,), name=f"sqlstream-count-{job}", daemon=True).start()
        return self._counts.get(job)

    def _look(self, job: str) -> None:
        began = time.monotonic()
        try:
            rows = self._count(job)
            if rows is not None:
                self._counts[job] = rows
        finally:
            took = time.monotonic() - began
            self._due[job] = time.monotonic() + max(COUNT_SECONDS, COUNT_SHARE * took)


def has_watermark(progress: Progress) -> bool:
    """Return whether a job has a watermark that rows can move."""
    return progress.watermark is not None or any(s.has_watermark for s in progress.sources.values())


def lag_text(progress: Progress, now: datetime) -> str:
    """Return how far the watermark is behind the clock; behind the newest row if that is more than a day from the clock.

    Rows of the past are read as fast as possible, so the clock says nothing about them. Empty without a watermark.
    """
    newest, watermark = progress.newest_event_time, progress.watermark
    if newest is None or watermark is None or watermark == datetime.max:
        return ""
    clock = now.astimezone(ZoneInfo(progress.zone)).replace(tzinfo=None)
    lag = clock - watermark if abs(clock - newest) < timedelta(days=1) else newest - watermark
    lag = max(lag, timedelta())
    return span_text(lag if lag < timedelta(seconds=1) else timedelta(seconds=lag // timedelta(seconds=1)))


def short_time(progress: Progress) -> str:
    """Return the watermark in at most 16 characters."""
    text = time_text(progress.watermark).partition(".")[0]
    return text[:16] if len(text) > 16 else text


def count_text(count: int) -> str:
    """Return a number in at most seven characters.

    >>> count_text(999_999), count_text(1_234_567), count_text(98_765_432_100)
    ('999,999', '1.23 M', '98.8 G')
    """
    if count < 1_000_000:
        return f"{count:,}"
    value = count / 1_000_000
    for unit in ("M", "G", "T"):
        if value < 1000 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


@contextmanager
def displayed(session: Session, count_state: Count) -> Iterator[Display]:
    """Show jobs on standard error inside of the context; rows that a session prints stay above the table."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Display(console, None, count_state)
        return
    if session.output.isatty():
        # Rows on the same terminal go through the console, above the live table: it would overwrite them.
        session.output = _StreamAboveTable(console)
    with Live(console=console, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
        yield Display(console, live, count_state)


class _StreamAboveTable(io.TextIOBase):
    """A stream whose lines appear above the live table of a console."""

    def __init__(self, console: Console):
        self._console = console

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return len(text)


def count_state(session: Session, job: str) -> int | None:
    """Return the number of rows in the views of a job's state; None if it has none, or they cannot be counted now."""
    try:
        operators = session.query(f"SELECT operator FROM sqlstream.operators WHERE job = {quote_text(job)}").fetchall()
        views = [".".join(map(quote_name, ("state", job, view))) for (view,) in operators]
        if not views:
            return None
        counts = ", ".join(f"(SELECT count(*) FROM {view})" for view in views)
        return sum(int(count) for count in session.query(f"SELECT {counts}").fetchall()[0])
    except (SqlStreamError, duckdb.Error, OSError):
        return None
