"""The shell: runs statements, one after the other, on a session."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

import duckdb
from rich.console import Group
from rich.live import Live
from rich.text import Text

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import Span, SqlStreamError
from sqlstream.jobs.job import Job
from sqlstream.session.answers import write_answer
from sqlstream.session.changes import Changes
from sqlstream.session.job_texts import ended_text, progress_text
from sqlstream.session.rendering import write_relation
from sqlstream.session.routing import Route, route
from sqlstream.session.session import Session
from sqlstream.session.state_queries import query
from sqlstream.session.stopping import InterruptedBySignals, stop_on_signals
from sqlstream.shell.background import BackgroundJobs
from sqlstream.shell.entries import alone
from sqlstream.shell.output import ShellOutput
from sqlstream.shell.result_views import ChangelogView, ResultView, TableauView, TableView

# A statement waits for changes this many seconds before it checks for Ctrl-C.
_POLL_SECONDS = 0.1


class Shell:
    """Runs statements and commands on a session.

    If its output is interactive, somebody types: jobs run in the background while the next statement is entered. Otherwise a
    bounded job ends before the next statement begins.
    """

    def __init__(self, session: Session, output: ShellOutput):
        self.session, self.output = session, output
        self.jobs = BackgroundJobs(output)
        self.shows_time = False
        self.is_over = False
        # The files that are being run; each includes the next.
        self.included: list[str] = []
        # The last query, which some commands repeat.
        self.last_query: Span | None = None

    def execute(self, statement: Span, to: Route | None = None) -> None:
        """Run one statement; `to` overrides the route that the statement has by itself. Raises SqlStreamError."""
        source = alone(statement)
        # The route, and the compiler, ask DuckDB: a Ctrl-C meanwhile is not lost.
        with InterruptedBySignals() as interrupted:
            where = to or route(source, self.session.compiler)
            if where is not Route.SESSION:
                self.last_query = statement
            if where is Route.QUERY:
                relation = self._query(statement, interrupted.opened)
                write_relation(relation, self.output.form, self.output.stream, statement.text)
                return
            compiled = self.session.compile(source)
        for one in compiled:
            if not isinstance(one, PlannedJob):
                write_answer(self.session, one, self.output.stream)
                continue
            if one.is_query:
                # Its state is dropped when the reader has seen enough: no need to warn that it grows.
                self.show_changes(one)
                continue
            for warning in one.warnings:
                self.output.warn(one.name, warning)
            self._start(one)

    @contextmanager
    def answered(self, statement: Span) -> Iterator[duckdb.DuckDBPyRelation]:
        """Yield the result of a state query, which Ctrl-C interrupts. Its errors point into the entry."""
        with InterruptedBySignals() as interrupted:
            yield self._query(statement, interrupted.opened)

    def _query(self, statement: Span, opened: Callable[[duckdb.DuckDBPyConnection], object]) -> duckdb.DuckDBPyRelation:
        try:
            return query(self.session.project, self.session.compiler, statement.text, opened=opened)
        except SqlStreamError as error:
            if error.span is not None and error.span.source.text == statement.text:
                start = statement.start + error.span.start
                error.span = Span(statement.source, start, statement.start + error.span.end)
            raise

    # -- jobs

    def _start(self, planned: PlannedJob) -> None:
        job = self.session.start(planned)
        waits = self.session.options.text("table.dml-sync").lower() == "true"
        if planned.is_immediate:
            job.wait()
            self.output.say(ended_text(job))
        elif waits or (planned.bounded and not self.output.is_interactive):
            self.wait_for([job])
        elif job.status in ("RUNNING", "RESTARTING"):
            self.jobs.add(job)
            self.output.say(f'job "{job.name}" runs in the background', "green")

    def wait_for(self, jobs: Sequence[Job]) -> None:
        """Wait until jobs have ended; Ctrl-C stops them after their batch. Raises the first error."""
        stopping = threading.Event()
        error: SqlStreamError | None = None
        running = list(jobs)
        with self.stopped_by_signals(stopping), self.output.status() as status:
            while running:
                if stopping.is_set():
                    for job in running:
                        job.stop()
                status.update(Text(", ".join(map(progress_text, running))))
                for job in list(running):
                    try:
                        if not job.wait(_POLL_SECONDS / len(running)):
                            continue
                    except SqlStreamError as e:
                        error = error or e
                    running.remove(job)
                    self.output.say(ended_text(job))
        if stopping.is_set() and not self.output.is_interactive:
            # The statements that follow rely on jobs that have ended.
            self.is_over = True
        if error is not None:
            raise error

    # -- changes

    def show_changes(self, planned: PlannedJob) -> None:
        """Show the changes of a SELECT until its input ends or Ctrl-C stops it. Raises the error of its job."""
        stopping = threading.Event()
        with self.stopped_by_signals(stopping):
            with self.output.status() as status:
                status.update(Text("the query starts: no batch yet"))
                changes = self.session.changes(planned, as_text=True)
            view = self._view(planned)
            try:
                ended = self._follow(changes, view, stopping)
            finally:
                if stopping.is_set() and self.output.is_interactive:
                    # Nothing of its batch is kept, so its end need not be awaited.
                    changes.leave()
                    self.jobs.leave(changes.job)
                else:
                    changes.close()
        last = view.last(self.output.console, whole=ended)
        if last is not None:
            self.output.result(last)

    def _view(self, planned: PlannedJob) -> ResultView:
        [sink] = planned.physical.sinks
        options = self.session.options
        mode = options.text("sql-client.execution.result-mode").lower()
        if mode == "table" and (self.output.can_redraw or planned.bounded):
            return TableView(sink, int(options.text("sql-client.execution.max-table-result.rows")))
        if mode == "changelog" and self.output.can_redraw:
            return ChangelogView(sink)
        # Files and pipes cannot be redrawn.
        return TableauView(sink, self.output.stream)

    def _follow(self, changes: Changes, view: ResultView, stopping: threading.Event) -> bool:
        """Show changes as they come; return whether they ended by themselves."""
        console = self.output.console
        if not self.output.can_redraw or isinstance(view, TableauView):
            if self.output.is_interactive:
                self.output.say(f"{progress_text(changes.job)}; Ctrl-C ends it", "dim")
            return _follow(changes, view, stopping)
        with Live(console=console, refresh_per_second=8, transient=True, vertical_overflow="crop") as live:

            def draw() -> None:
                if (frame := view.frame(console)) is not None:
                    live.update(Group(frame, Text(f"{progress_text(changes.job)}; Ctrl-C ends it", style="dim")))

            return _follow(changes, view, stopping, draw)

    # -- the end

    def stopped_by_signals(self, stopping: threading.Event) -> AbstractContextManager[None]:
        """Let Ctrl-C and SIGTERM set `stopping` inside of the context; after SIGTERM the shell is over."""
        return stop_on_signals(stopping, self._terminated)

    @contextmanager
    def interrupted_by_ctrl_c(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt inside of the context, also in a process that was started with it ignored."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def ended_by_sigterm(self, leave: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Let SIGTERM end the shell, not the process, inside of the context, like `\\q`: its jobs stop after their batch.

        `leave` ends a prompt that waits for an entry, and returns whether there is one. Otherwise KeyboardInterrupt is raised.
        """

        def end(number: int, frame: FrameType | None) -> None:
            if not self.is_over:
                self._terminated()
                if not leave():
                    raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _terminated(self) -> None:
        self.is_over = True

    def finish(self) -> None:
        """Wait for the background jobs when there are no more entries. Raises the first error."""
        running = self.jobs.take()
        if running:
            names = ", ".join(job.name for job in running)
            self.output.say(f"waiting for {names}; Ctrl-C stops {'it' if len(running) == 1 else 'them'} after a batch")
            self.wait_for(running)

    def close(self) -> None:
        """Stop the background jobs after their batch, and close the session and the file for results."""
        running = self.jobs.take()
        if running:
            names = ", ".join(job.name for job in running)
            self.output.say(f"stopping {names} after the batch that is running; the same INSERT goes on with it")
        self.session.close()
        for job in running:
            self.output.say(ended_text(job))
        self.output.close()


def _follow(
    changes: Changes, view: ResultView, stopping: threading.Event, draw: Callable[[], None] | None = None
) -> bool:
    while not stopping.is_set():
        # Asked first: changes that came before the answer are then among those that are taken.
        ended = changes.has_ended()
        new_changes = changes.take(0.0 if ended else _POLL_SECONDS)
        view.add(new_changes)
        if draw is not None:
            draw()
        if ended and not new_changes:
            return True
    return False
