"""Sends the messages of PySpark and py4j in this process to the log file instead of the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlstream.secrets import masked

_LIBRARIES = ("pyspark", "py4j")


class _Log(logging.FileHandler):
    """Appends to the log file. Errors while it writes, such as for a folder that is gone, are ignored."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass

    def emit(self, record: logging.LogRecord) -> None:
        # The folder may be gone.
        with contextlib.suppress(OSError):
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


_log = logging.getLogger("sqlstream.spark.chatter")
_installed = False


def divert(log_file: str) -> None:
    """Send warnings, log records and stray tracebacks of PySpark and py4j to a log file, until this process ends."""
    global _installed
    handler = _Log(log_file, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in (*_LIBRARIES, _log.name):
        logger = logging.getLogger(name)
        for old in logger.handlers[:]:
            logger.removeHandler(old)
            old.close()
        logger.addHandler(handler)
        logger.propagate = False
    if not _installed:
        _installed = True
        _divert_warnings()
        _divert_tracebacks()
        _divert_root_logger()


def note(message: str, *, error: BaseException | bool = False) -> None:
    """Write a message to the log file; `error` adds the traceback of an exception (True: of the current one)."""
    _log.warning(message, exc_info=error)


def quiet_server(server: Any) -> None:
    """Let a socketserver log the errors of requests. By default it prints tracebacks, also when the JVM ends normally."""

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            note("a request of the JVM failed", error=True)

    server.handle_error = handle_error


def _divert_warnings() -> None:
    show = warnings.showwarning
    ours = (*(_folder(n) for n in _LIBRARIES), str(Path(__file__).parent))

    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if file is None and filename.startswith(ours):
            note(warnings.formatwarning(message, category, filename, lineno, line).rstrip())
        else:
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = showwarning


def _divert_tracebacks() -> None:
    """Log the exceptions that end py4j's threads and finalizers when the JVM is gone."""
    in_thread, unraisable = threading.excepthook, sys.unraisablehook

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if _raised_in_libraries(args.exc_traceback):
            note("".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)))
        else:
            in_thread(args)

    def unraisable_hook(args: Any) -> None:
        if _raised_in_libraries(args.exc_traceback):
            note("".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)))
        else:
            unraisable(args)

    threading.excepthook, sys.unraisablehook = thread_hook, unraisable_hook


def _divert_root_logger() -> None:
    """Log what py4j logs on the root logger about a broken connection; no other logger could silence it."""
    ours = tuple(_folder(n) for n in _LIBRARIES)

    def users_own(record: logging.LogRecord) -> bool:
        if not record.pathname.startswith(ours):
            return True
        _log.handle(record)
        return False

    logging.getLogger().addFilter(users_own)


def _raised_in_libraries(trace: TracebackType | None) -> bool:
    frames = traceback.extract_tb(trace)
    return bool(frames) and frames[-1].filename.startswith(tuple(_folder(n) for n in _LIBRARIES))


def _folder(package: str) -> str:
    import importlib.util

    spec = importlib.util.find_spec(package)
    return os.path.dirname(spec.origin) if spec and spec.origin else f"<no {package}>"
