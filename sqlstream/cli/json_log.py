"""`--log-format json`: the events of a command as lines of JSON on standard error, where nothing else is written then."""

from __future__ import annotations

import io
import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, cast

from sqlstream.errors import SqlStreamError
from sqlstream.functions.invocation import named
from sqlstream.secrets import masked

if TYPE_CHECKING:
    from sqlstream.jobs.job import Job
    from sqlstream.jobs.progress import Progress


# Numbers that a line about a batch has, whatever they are.
ALWAYS = ("rows_in", "rows_out", "state_rows")


class JsonLog:
    """Writes events: `time` (UTC), `level` (info, warning, error) and `event`, then `job` and further fields."""

    def __init__(self, stream: TextIO, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._stream, self._clock = stream, clock
        self.exit_code = 0
        # The last batch and the last status that were written, by job.
        self._batches: dict[str, int | None] = {}
        self._statuses: dict[str, str] = {}

    def write(self, level: str, event: str, **fields: Any) -> None:
        """Write an event, without the fields that are None."""
        entry = {"time": self._clock().isoformat(timespec="milliseconds"), "level": level, "event": event}
        entry |= {name: _masked(value) for name, value in fields.items() if value is not None}
        self._stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._stream.flush()

    def notice(self, text: str) -> None:
        """Write a notice, which people would read on standard error; a warning if it begins with "warning: "."""
        level = "warning" if text.startswith("warning: ") else "info"
        message, _, hint = text.removeprefix("warning: ").partition("\nhint: ")
        self.write(level, "notice", message=message, hint=hint or None)

    def warn(self, job: str, warning: SqlStreamError | str) -> None:
        """Write a warning about a job."""
        self.write("warning", "warning", job=job, **_error_fields(warning))

    def error(self, error: SqlStreamError) -> None:
        """Write the error that ends the command, and keep its exit code."""
        self.write("error", "error", **_error_fields(error))
        self.exit_code = error.exit_code

    def fault(self, error: BaseException, *, event: str = "error") -> None:
        """Write an error of the program itself, with its traceback."""
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.write("error", event, kind="internal error", message=named(error), detail=trace)

    def wait_for(self, job: Job, count_windows: Callable[[], int | None]) -> None:
        """Does nothing: hints about silent jobs are for people."""

    def update(self, jobs: Sequence[Job]) -> None:
        """Write new batches and statuses of jobs; call it several times a second."""
        for job in jobs:
            self._look(job)

    def ended(self, job: Job) -> None:
        """Write the last batch and the last status of a job that has ended."""
        self._look(job)

    def _look(self, job: Job) -> None:
        progress, status = job.progress, job.status
        before = self._batches.get(job.name)
        if progress.batch is not None and progress.batch != before:
            # The first batch of a process may follow a batch of an earlier process.
            batches = None if before is None else progress.batch - before
            self._batches[job.name] = progress.batch
            self.write("info", "batch", job=job.name, batch=progress.batch, batches=batches, **_numbers(progress))
        if self._statuses.get(job.name) != status:
            self._statuses[job.name] = status
            self.write("error" if status == "FAILED" else "info", "status", job=job.name, status=status)


def _numbers(progress: Progress) -> dict[str, Any]:
    """Return the numbers of a job, under earlier names, too; those that are 0 are left out, but for ALWAYS."""
    from sqlstream.session.job_texts import older_totals

    watermark, totals = progress.watermark, progress.totals
    return {
        **{name: totals[name] for name in ALWAYS},
        "watermark": None if watermark is None or watermark == datetime.max else watermark.isoformat(),
        **{name: number for name, number in (totals | older_totals(progress)).items() if number},
    }


def _error_fields(error: SqlStreamError | str) -> dict[str, Any]:
    if isinstance(error, str):
        return {"message": error}
    fields: dict[str, Any] = {"kind": error.kind, "message": error.message, "detail": error.detail, "hint": error.hint}
    if error.span is not None:
        line, column = error.span.source.position(error.span.start)
        fields |= {"source": error.span.source.name, "line": line, "column": column}
    return fields


def _masked(value: Any) -> Any:
    return masked(value) if isinstance(value, str) else value


class _Notices(io.TextIOBase):
    """Stands for standard error: what is written there becomes notices, once a line is complete.

    So libraries, functions of the user, warnings and Python's logging write no lines that are not JSON.
    """

    encoding, errors = "utf-8", "replace"

    def __init__(self, log: JsonLog, stream: TextIO):
        self._log, self._stream = log, stream
        self._begun = ""
        # A signal may come while a text is being added.
        self._adding = threading.RLock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        with self._adding:
            whole, end, self._begun = (self._begun + text).rpartition("\n")
        if end:
            self._note(whole)
        return len(text)

    def finish(self) -> None:
        """Write the notice of a line without an end."""
        with self._adding:
            text, self._begun = self._begun, ""
        self._note(text)

    def _note(self, text: str) -> None:
        if text.strip():
            self._log.notice(text.rstrip())


@contextmanager
def _only_json(log: JsonLog) -> Iterator[None]:
    """Let all that Python writes to standard error inside of the context go to a log."""
    notices, before = _Notices(log, sys.stderr), threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if sys.stderr is not notices or not isinstance(arguments.exc_value, Exception):
            before(arguments)
        else:
            log.fault(arguments.exc_value, event="notice")

    threading.excepthook = hook
    try:
        with redirect_stderr(cast(TextIO, notices)):
            yield
    finally:
        if threading.excepthook is hook:
            # Otherwise another one calls it, which is to stay.
            threading.excepthook = before
        notices.finish()


@contextmanager
def reporting(form: str) -> Iterator[JsonLog | None]:
    """Yield a log for all messages of a command, which gets its error, too, if the form is "json"; None otherwise."""
    if form != "json":
        yield None
        return
    log = JsonLog(sys.stderr)
    with _only_json(log):
        try:
            yield log
        except SqlStreamError as error:
            log.error(error)
