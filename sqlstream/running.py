"""`sqlstream run`: start jobs in order, show progress, stop on Ctrl-C or SIGTERM after the batch."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

import duckdb
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sqlstream.answering import Answer
from sqlstream.compiler import Compiled, Explanation, PlannedJob, Question
from sqlstream.errors import SqlStreamError
from sqlstream.explaining import explained
from sqlstream.jobs.job import Job
from sqlstream.runtime.commits import Totals
from sqlstream.session import Session
from sqlstream.showing import write_table
from sqlstream.waiting import Hint, Silence, dropped, watermark_text

LOG_SECONDS = 1.0
REFRESH_SECONDS = 0.1


def run_jobs(session: Session, planned: Sequence[Compiled], *, fresh: Collection[str], debug: bool) -> None:
    """Run jobs: a bounded one to its end before the next begins, unbounded ones together; answer questions between them.

    Those named in `fresh` begin anew.
    """
    stopping = threading.Event()
    unbounded: list[Job] = []
    with _stop_on_signals(stopping), _progress(session) as show:
        for job in planned:
            if stopping.is_set():
                break
            if not isinstance(job, PlannedJob):
                _answer(session, job)
                continue
            for warning in job.warnings:
                width = show.console.width if show.console.is_terminal else None
                show.console.print(warning.render(width), highlight=False, soft_wrap=True, markup=False)
            unbounded.append(session.start(job, fresh=job.name in fresh))
            if job.bounded:
                _watch([unbounded.pop()], stopping, show, debug)
        for one in unbounded:
            show.wait_for(one, partial(open_windows, session, one.name))
        _watch(unbounded, stopping, show, debug)


def _answer(session: Session, question: Question) -> None:
    if isinstance(question, Explanation):
        session.output.write(explained(question.job, question.stage) + "\n")
        return
    relation = session.answer(question)
    if isinstance(question, Answer) and question.columns[0].startswith("create "):
        # The text of a statement, to be copied.
        session.output.write("".join(f"{row[0]};\n" for row in question.rows))
        return
    write_table(relation, session.output)


def _watch(jobs: Sequence[Job], stopping: threading.Event, show: Progress, debug: bool) -> None:
    """Wait for jobs; raise the first error, once the others have stopped after their batch."""
    asked = False
    error: SqlStreamError | None = None
    running = list(jobs)
    while running:
        if (stopping.is_set() or error is not None) and not asked:
            asked = True
            for job in running:
                job.stop()
        show.update(running)
        for job in running:
            for warning in job.warnings():
                show.console.print(f"warning: {warning}", highlight=False, soft_wrap=True, markup=False)
        for job in list(running):
            try:
                if job.wait(REFRESH_SECONDS / len(running)):
                    running.remove(job)
                    show.ended(job)
            except SqlStreamError as e:
                running.remove(job)
                show.ended(job)
                error = error or e
                if debug and job.cause is not None:
                    traceback.print_exception(job.cause, file=sys.stderr)
    if error is not None:
        raise error


@contextmanager
def _stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM ask for a stop; a second Ctrl-C does not wait."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """Shows what jobs do: a live table on a terminal, else a line per job and second."""

    def __init__(self, console: Console, live: Live | None):
        self.console, self.live = console, live
        self._shown: dict[str, tuple[int, int, float]] = {}
        self._silences: dict[str, Silence] = {}

    def wait_for(self, job: Job, count_windows: Callable[[], int | None]) -> None:
        """Say why a job without an end is silent, when it is."""
        self._silences[job.name] = Silence(count_windows)

    def update(self, jobs: Sequence[Job]) -> None:
        now = time.monotonic()
        if self.live is not None:
            self.live.update(self._display(jobs, now))
            return
        for job in jobs:
            silence = self._silences.get(job.name)
            if silence is not None and (hint := silence.news(job.progress, now, waits=job.is_waiting)):
                self._hint(job, hint)
            totals = job.progress
            version, _, at = self._shown.get(job.name, (-1, 0, 0.0))
            if totals.version > version and now - at >= LOG_SECONDS:
                self.console.print(self._line(job, now), highlight=False, soft_wrap=True)
                self._shown[job.name] = (totals.version, totals.rows_in, now)

    def ended(self, job: Job) -> None:
        totals = job.progress
        if totals.version >= 0:
            text = f"{job.name}: {job.status.lower()} after batch {totals.version}"
            text += f", {totals.rows_in:,} rows in, {totals.rows_out:,} rows out"
            for what, key in (
                ("malformed rows skipped", "malformed_rows"),
                ("rows without a time dropped", "null_rows"),
            ):
                if count := sum(source[key] for source in totals.sources.values()):
                    text += f", {count:,} {what}"
            if late := sum(values["late_rows"] for values in totals.operators().values()):
                text += f", {late:,} late rows dropped"
            self.console.print(text, highlight=False, soft_wrap=True)
            if not totals.rows_out and (hint := dropped(totals, Totals())):
                self._hint(job, hint)

    def _hint(self, job: Job, hint: Hint) -> None:
        self.console.print(f"hint: {job.name}: {hint.text}", highlight=False, soft_wrap=True, markup=False)

    def _rate(self, job: Job, now: float) -> float:
        _, rows, at = self._shown.get(job.name, (-1, 0, 0.0))
        return (job.progress.rows_in - rows) / (now - at) if at else 0.0

    def _line(self, job: Job, now: float) -> str:
        totals = job.progress
        state = "".join(
            f", {name} {values['state_rows']:,} rows {size(values['state_bytes'])}"
            for name, values in totals.operators().items()
        )
        rate = self._rate(job, now)
        speed = f" ({rate:,.0f}/s)" if rate > 0 else ""
        return (
            f"{job.name}: batch {totals.version}, {totals.rows_in:,} rows in so far{speed}, {totals.rows_out:,} out, "
            f"watermark {watermark_text(totals.watermark)}{state}"
        )

    def _display(self, jobs: Sequence[Job], now: float) -> RenderableType:
        hints = []
        for job in jobs:
            silence = self._silences.get(job.name)
            if silence is not None and (hint := silence.look(job.progress, now, waits=job.is_waiting)):
                hints.append(Text(f"hint: {job.name}: {hint.text}"))
        return Group(self._table(jobs, now), *hints)

    def _table(self, jobs: Sequence[Job], now: float) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("job", "batch", "total in", "rows/s", "total out", "watermark", "state"):
            table.add_column(name, justify="left" if name in ("job", "watermark", "state") else "right")
        for job in jobs:
            totals = job.progress
            state = ", ".join(
                f"{name}: {values['state_rows']:,} rows, {size(values['state_bytes'])}"
                for name, values in totals.operators().items()
            )
            rate = self._rate(job, now)
            version, _, at = self._shown.get(job.name, (-1, 0, 0.0))
            if now - at >= LOG_SECONDS or version < 0:
                self._shown[job.name] = (totals.version, totals.rows_in, now)
            batch = "-" if totals.version < 0 else str(totals.version)
            row = (f"{totals.rows_in:,}", f"{rate:,.0f}", f"{totals.rows_out:,}", watermark_text(totals.watermark))
            table.add_row(job.name, batch, *row, state)
        return table


@contextmanager
def _progress(session: Session) -> Iterator[Progress]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Progress(console, None)
        return
    if session.output.isatty():
        # Rows on the same terminal go through the console, above the live table: it would overwrite them.
        session.output = _Above(console)
    with Live(console=console, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
        yield Progress(console, live)


class _Above(io.TextIOBase):
    """A stream whose lines appear above the live table of a console."""

    def __init__(self, console: Console):
        self._console = console

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return len(text)


def open_windows(session: Session, job: str) -> int | None:
    """Return how many windows wait in a job, 0 where that cannot be told just now, None where it has no windows."""
    name = job.replace("'", "''")
    try:
        [(count,)] = session.query(f"SELECT sum(open_windows) FROM sqlstream.operators WHERE job = '{name}'").fetchall()
    except (SqlStreamError, duckdb.Error):
        return 0
    return None if count is None else int(count)


def size(count: int) -> str:
    """Return a number of bytes as people read it.

    >>> size(2048)
    '2.0 KiB'
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
