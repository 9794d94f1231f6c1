"""`sqlstream run`: start jobs in order, show progress, stop on Ctrl-C or SIGTERM after the batch."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import duckdb

from sqlstream.cli.arguments import compile_all
from sqlstream.cli.display import Display, count_state, displayed
from sqlstream.cli.json_log import JsonLog
from sqlstream.compiler.compiler import Compiled
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.sql import quote_text
from sqlstream.errors import SqlStreamError
from sqlstream.jobs.job import Job
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.options import JOB_NAME, Options
from sqlstream.secrets import masked
from sqlstream.session.answers import write_answer
from sqlstream.session.explaining import as_it_goes_on
from sqlstream.session.session import Session
from sqlstream.session.stopping import stop_on_signals

REFRESH_SECONDS = 0.1


def run_jobs(
    session: Session,
    planned: Sequence[Compiled],
    *,
    fresh: Collection[str],
    restored: Mapping[str, Restore],
    upgrade: Upgrade | None = None,
    debug: bool,
    log: JsonLog | None = None,
    warned: bool = False,
) -> None:
    """Run jobs: a bounded job ends before the next begins, unbounded jobs run together. SHOW and the like print in between.

    Jobs named in `fresh` start anew, jobs in `restored` from savepoints. With `upgrade` jobs continue with changed queries. With
    a `log`, messages are lines of JSON. If `warned`, the warnings of the plans are not shown again. Raises the first error of a
    job, after the other jobs have stopped.
    """
    stopping = threading.Event()
    unbounded: list[Job] = []
    with stop_on_signals(stopping), _shown(session, log) as show:
        for job in planned:
            if stopping.is_set():
                break
            if not isinstance(job, PlannedJob):
                write_answer(session, job, session.output)
                continue
            # Of a job that goes on with DuckDB's values no expression has Flink's.
            goes_on = upgrade is None and job.name not in fresh and job.has_semantics
            shown = as_it_goes_on(job, session.warehouse) if goes_on else job
            for warning in () if warned else shown.warnings:
                show.warn(job.name, warning)
            restore = restored.get(job.name)
            unbounded.append(session.start(job, fresh=job.name in fresh, restore=restore, upgrade=upgrade))
            if job.bounded:
                _watch([unbounded.pop()], stopping, show, debug)
        for one in unbounded:
            show.wait_for(one, partial(open_windows, session, one.name))
        _watch(unbounded, stopping, show, debug)


@contextmanager
def served(session: Session, planned: Sequence[Compiled], address: str | None) -> Iterator[None]:
    """Serve the metrics of jobs at an address, [HOST:]PORT, inside of the context; do nothing if it is None."""
    if address is None:
        yield
        return
    from sqlstream.monitoring.endpoint import parse_address, registry, serving

    names = {job.name for job in planned if isinstance(job, PlannedJob) and not job.is_query}
    host, port = parse_address(address)
    metrics = registry(session.warehouse, lambda: names)
    with serving((host, port), metrics) as port:
        session.notice(f"metrics at http://{f'[{host}]' if ':' in host else host}:{port}/metrics")
        yield


def compiled_to_run(session: Session, files: tuple[str, ...], statements: tuple[str, ...]) -> list[Compiled]:
    """Compile files and statements; warn of options of the command line without an effect, and if there is nothing to run."""
    compiled = compile_all(session, files, statements)
    for text in unused(session.options):
        session.notice(f"warning: {text}")
    if not compiled:
        session.notice("nothing to run: the SQL has neither an INSERT nor a query")
    return compiled


def unused(options: Options) -> Iterator[str]:
    """Yield a warning for each option of the command line without an effect; call it after the SQL is compiled."""
    for setting, why in options.without_effect.items():
        yield f"{setting} has no effect: {why}"
    for name in options.fixed:
        if name == JOB_NAME:
            yield f"--set {name} does nothing: the SQL has no INSERT of a query"
        elif name.startswith("sql-client.") or name == "table.dml-sync":
            yield f"--set {name} does nothing here: it is for sqlstream shell"


def _shown(session: Session, log: JsonLog | None) -> AbstractContextManager[Display | JsonLog]:
    return displayed(session, partial(count_state, session)) if log is None else nullcontext(log)


def _watch(jobs: Sequence[Job], stopping: threading.Event, show: Display | JsonLog, debug: bool) -> None:
    """Wait for jobs. Raise the first error, after the others have stopped at the end of their batch."""
    stop_requested = False
    error: SqlStreamError | None = None
    running = list(jobs)
    while running:
        if (stopping.is_set() or error is not None) and not stop_requested:
            stop_requested = True
            for job in running:
                job.stop()
        show.update(running)
        for job in running:
            for warning in job.warnings():
                show.warn(job.name, warning)
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
                    sys.stderr.write(masked("".join(traceback.format_exception(job.cause))))
    if error is not None:
        raise error


def open_windows(session: Session, job: str) -> int | None:
    """Return the number of open windows of a job; 0 if it cannot be counted now, None if the job has no windows."""
    try:
        sql = f"SELECT sum(open_windows) FROM sqlstream.operators WHERE job = {quote_text(job)}"
        [(count,)] = session.query(sql).fetchall()
    except (SqlStreamError, duckdb.Error):
        return 0
    return None if count is None else int(count)
