"""Why a Spark query ended: the cause inside of Spark's exceptions, on one line, and their stacks for the log file."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from sqlstream.errors import JobError, NotWritableError, OutageError, SqlStreamError
from sqlstream.spark import chatter
from sqlstream.spark.carried_errors import find_carried
from sqlstream.storage_errors import storage_error

FRAMES = 15
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
# py4j's text for an exception of Java's that a call from Python has met.
_THROWN = re.compile(r"^: ([\w.$]+(?:Exception|Error)\b.*)$", re.MULTILINE)
_MISSING = re.compile(r"No module named '([^']+)'")
# Spark's words for lost executors and Python workers, and for its own files that others have deleted.
_LOST = (
    *("ExecutorLostFailure", "Python worker exited unexpectedly", "Python worker failed to connect back"),
    *("Failed to create local dir", "FetchFailedException", "MetadataFetchFailedException"),
)
# Paths of Spark's temporary files, by the names of their folders.
_SCRATCH = re.compile(r"[^\s'\"]*/(?:blockmgr|spark)-[0-9a-f]{2}[^\s'\":,;)]*")
# Why a file cannot be written, as Java says it behind the path.
_REASONS = {os.strerror(code): code for code in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)}
_REFUSED = re.compile(rf"(?:^|[\s:])(/[^\n:]*?) \(({'|'.join(map(re.escape, _REASONS))})\)")
_NO_FILE = ("FileNotFoundException", "NoSuchFileException")
# The connection to a Python worker, or to the daemon that starts them, has ended: nothing else of Spark reads streams here.
_NO_DAEMON = "while reading the port number from"
_HUNG_UP = ("EOFException", "SocketException", "ClosedChannelException", "AsynchronousCloseException")


def failure_of(query: StreamingQuery) -> SqlStreamError | None:
    """Return the error that ended a query; None if the query was stopped.

    PySpark's exception has only the text of the outermost Java exception, which may not name the cause.
    """
    option = query._jsq.exception()
    if not option.isDefined():
        return None
    thrown: Any = option.get()
    causes = []
    while thrown is not None:
        # Each cause repeats the outer frames; its first frames are where it was thrown.
        frames = [f"\tat {frame.toString()}" for frame in list(thrown.getStackTrace())[:FRAMES]]
        chatter.note("\n".join([thrown.toString(), *frames]))
        causes.append((thrown.getClass().getSimpleName(), thrown.getMessage() or ""))
        thrown = thrown.getCause()
    for _, message in causes:
        if (error := find_carried(message)) is not None:
            return error
    if (module := missing_module(causes)) is not None:
        hint = (
            "Install it on all machines, for the Python that spark.pyspark.python names; the default is this process's."
        )
        return JobError(f'the Python of a worker has no module "{module}"', hint=hint)
    if (lost := lost_part(causes)) is not None:
        return OutageError(lost, detail=f"Spark says: {describe(causes)}")
    if is_lost(causes):
        return OutageError(describe(causes))
    return refused_file(causes) or JobError(describe(causes))


def refused_file(causes: list[tuple[str, str]]) -> SqlStreamError | None:
    """Return the error for a file that Java must not write, or has no space for; None if its exceptions name none.

    >>> print(refused_file([("SparkException", "x"), ("FileNotFoundException", "/w/.0.tmp (No space left on device)")]))
    job failed: no space is left to write "/w/.0.tmp"
    hint: Free some space and run the job again; it continues after its last committed batch.
    >>> refused_file([("FileNotFoundException", "/data/in.csv (No such file or directory)")]) is None
    True
    """
    for name, message in reversed(causes):
        if match := _REFUSED.search(message):
            path, code = match[1], _REASONS[match[2]]
        elif name == "AccessDeniedException" and message.startswith("/"):
            path, code = message.splitlines()[0], errno.EACCES
        else:
            continue
        error = storage_error(path, OSError(code, os.strerror(code)), writes=True)
        is_of_jobs = isinstance(error, JobError | NotWritableError)
        return error if is_of_jobs else JobError(error.message, detail=error.detail, hint=error.hint)
    return None


def lost_part(causes: list[tuple[str, str]]) -> str | None:
    """Return a message about a lost file or process of Spark's; None if its exceptions name none.

    >>> lost_part([("SparkException", "Job aborted"), ("NoSuchFileException", "/tmp/a/blockmgr-0f/0c/shuffle_0_1_0.index")])
    "a temporary file of Spark's is gone: /tmp/a/blockmgr-0f/0c/shuffle_0_1_0.index"
    >>> lost_part([("SparkException", "Job aborted"), ("EOFException", "")])
    "a Python worker of Spark's, or the daemon that starts them, has ended unexpectedly"
    >>> thrown = "Return Message: ..\\n: org.apache.spark.SparkException: EOF while reading the port number from x"
    >>> lost_part([("StreamingQueryException", thrown), ("Py4JException", thrown)]) is None
    False
    >>> lost_part([("FileNotFoundException", "/data/in.csv (No such file or directory)")]) is None
    True
    """
    for name, message in reversed(causes):
        # The exceptions of failed tasks are in the text of another one.
        if any(one in name or one in message for one in _NO_FILE) and (match := _SCRATCH.search(message)):
            return f"a temporary file of Spark's is gone: {match[0]}"
    innermost = _through_python(causes[-1][1]) or causes[-1][0]
    if innermost.partition(":")[0].rpartition(".")[2] in _HUNG_UP or _NO_DAEMON in innermost:
        return "a Python worker of Spark's, or the daemon that starts them, has ended unexpectedly"
    return None


def missing_module(causes: list[tuple[str, str]]) -> str | None:
    """Return the module that a Python worker could not import before it called the user's code; None if there is none.

    >>> missing_module([("SparkException", "Error from python worker:\\nModuleNotFoundError: No module named 'sqlstream'")])
    'sqlstream'
    """
    modules = [name for _, message in causes for name in _MISSING.findall(message)]
    return modules[-1] if modules else None


def is_lost(causes: list[tuple[str, str]]) -> bool:
    """Return whether Spark has lost a process more often than it retries.

    >>> is_lost([("SparkException", "Job aborted: Task 0 failed 4 times: ExecutorLostFailure (executor 1 exited)")])
    True
    """
    return any(word in message for _, message in causes for word in _LOST)


def _through_python(message: str) -> str | None:
    """Return the innermost exception that is named in the text of one from Python, which has its causes as text only."""
    exceptions = _CAUSE.findall(message) or _THROWN.findall(message)
    return str(exceptions[-1]) if exceptions else _raised(message)


def _raised(message: str) -> str | None:
    """Return the exception at the end of the last Python traceback in a text."""
    _, traceback, rest = message.rpartition("Traceback (most recent call last):")
    # The frames are indented.
    lines = [line for line in rest.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return lines[0] if traceback and lines else None


def describe(causes: list[tuple[str, str]]) -> str:
    """Return one line for a chain of exceptions, (class, message) each: the innermost that has a message.

    >>> describe([("StreamingQueryException", "=== .."), ("SparkException", "Task failed"), ("EOFException", "")])
    'Task failed (EOFException)'
    >>> describe([("IOException", "No space left on device")])
    'No space left on device'
    >>> describe([("Py4JException", "An exception was raised by the Python Proxy.\\nCaused by: java.io.IOException: denied")])
    'java.io.IOException: denied'
    >>> frames = "Traceback (most recent call last):\\n  File 'x.py', line 1, in f\\n    g()\\nKeyError: 'k'\\n"
    >>> describe([("Py4JException", f"An exception was raised by the Python Proxy. Return Message: {frames}")])
    "KeyError: 'k'"
    """
    innermost = causes[-1][0]
    if (inner := _through_python(causes[-1][1])) is not None:
        return inner[:300]
    for name, message in reversed(causes):
        lines = [line for line in message.strip().splitlines() if line and not line.startswith("===")]
        if lines:
            return lines[0][:300] + ("" if name == innermost else f" ({innermost})")
    return innermost
