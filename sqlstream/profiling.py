"""Where the time of a job goes: spans, which the processes of a run write into files while the run is profiled.

Each process appends its spans to a file of its own in one folder, as events of Chrome's trace format, one a line. The command
line joins the files (`cli/traces.py`). While nothing is profiled a span costs a look at one variable.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Final, TypeAlias

import msgspec

Value: TypeAlias = str | int | float
# What spans are about: Spark's own phases, the driver, tasks of the engine, files of state and results, DuckDB.
SPARK, DRIVER, TASKS, STORAGE, DUCKDB = "spark", "driver", "tasks", "storage", "duckdb"
# Names of spans that the table of a profile knows. TRIGGER is a batch as Spark counts it, BATCH as the driver does, ACTION the
# call by which the driver runs the tasks of a batch on Spark. A task is a SCAN, or a BUCKET of an operator.
TRIGGER, BATCH, ACTION, SCAN, BUCKET = "trigger", "batch", "run tasks", "scan", "bucket"
# The argument with the time of a span that is in none of the spans within it, in microseconds.
OWN = "own_us"
# Spans that wait for the end of the outermost one before they are written.
_MOST_WAITING = 10_000


class _Recorder:
    """The file of this process. Its clock is the machine's, which all processes share; within a process it never goes back."""

    def __init__(self, folder: str, process: str):
        self.folder, self.pid = folder, os.getpid()
        self.ahead = time.time_ns() - time.monotonic_ns()
        self._file: int | None = os.open(f"{folder}/{self.pid}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # A thread may write while another one ends the profile. A handler of a signal may write while its thread does.
        self._writing = threading.RLock()
        self._tracks: set[int] = set()
        self.write([self.name("process_name", 0, process)])

    def name(self, what: str, thread: int, name: str) -> dict[str, object]:
        """Return the event that names the process, or one of its threads."""
        return {"ph": "M", "name": what, "pid": self.pid, "tid": thread, "args": {"name": name}}

    def track(self, name: str) -> tuple[int, list[dict[str, object]]]:
        """Return the number of a track that is no thread, beyond those of Linux's threads, and the event that names it, once."""
        number = 1 << 30 | zlib.crc32(name.encode()) >> 2
        if number in self._tracks:
            return number, []
        self._tracks.add(number)
        return number, [self.name("thread_name", number, name)]

    def write(self, events: list[dict[str, object]]) -> None:
        """Append events; a disk that is full ends no job, but the profile of this process."""
        text = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        with self._writing:
            if self._file is None:
                return
            try:
                os.write(self._file, text)
            except OSError:
                self.close()

    def close(self) -> None:
        with self._writing:
            if self._file is not None:
                os.close(self._file)
            self._file = None


class _Thread(threading.local):
    """The open spans of a thread, the closed ones that are not written yet, and the recorder that knows its name."""

    def __init__(self) -> None:
        self.open: list[TimedSpan] = []
        self.closed: list[TimedSpan] = []
        self.named: _Recorder | None = None


_recorder: _Recorder | None = None
_thread = _Thread()


class TimedSpan:
    """A stretch of time in a thread. It has the labels of the spans around it, such as the job, the batch and the operator."""

    __slots__ = ("_began", "_recorder", "ended", "inner", "labels", "name", "notes", "part")

    def __init__(self, recorder: _Recorder, name: str, part: str, labels: Mapping[str, Value]):
        self._recorder, self.name, self.part, self.labels = recorder, name, part, labels
        self.notes: dict[str, Value] = {}
        self.inner = 0

    def note(self, **values: Value) -> None:
        """Add arguments that the spans within do not have; a number is added to one that is there."""
        for name, value in values.items():
            before = self.notes.get(name)
            added = isinstance(before, int) and isinstance(value, int)
            self.notes[name] = before + value if added else value  # type: ignore[operator]

    def __enter__(self) -> TimedSpan:
        if _thread.open:
            self.labels = {**_thread.open[-1].labels, **self.labels}
        _thread.open.append(self)
        self._began = (time.monotonic_ns() + self._recorder.ahead) // 1000
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended = (time.monotonic_ns() + self._recorder.ahead) // 1000
        # A generator that nobody read to its end closes its spans late.
        if self in _thread.open:
            del _thread.open[_thread.open.index(self) :]
        if _thread.open:
            _thread.open[-1].inner += self.ended - self._began
        _thread.closed.append(self)
        if not _thread.open or len(_thread.closed) >= _MOST_WAITING:
            self._flush()

    def _flush(self) -> None:
        spans, _thread.closed = _thread.closed, []
        if _recorder is not self._recorder:
            # The profile has ended in between.
            return
        thread = threading.get_native_id()
        events = [span._event(thread) for span in spans]
        if _thread.named is not self._recorder:
            _thread.named = self._recorder
            events.append(self._recorder.name("thread_name", thread, threading.current_thread().name))
        self._recorder.write(events)

    def _event(self, thread: int) -> dict[str, object]:
        length = self.ended - self._began
        arguments = {**self.labels, **self.notes, OWN: max(length - self.inner, 0)}
        where = {"ph": "X", "ts": self._began, "dur": length, "pid": self._recorder.pid, "tid": thread}
        return {"name": self.name, "cat": self.part, **where, "args": arguments}


class _NoSpan:
    """The span of a run that is not profiled."""

    __slots__ = ()

    def note(self, **values: Value) -> None:
        """Does nothing."""

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing."""


_NO_SPAN: Final = _NoSpan()


def span(name: str, part: str, **labels: Value) -> TimedSpan | _NoSpan:
    """Return a context manager whose time is recorded while a run is profiled.

    `part` is SPARK, DRIVER, TASKS, STORAGE or DUCKDB. Spans within it have its labels, too.
    """
    recorder = _recorder
    return _NO_SPAN if recorder is None else TimedSpan(recorder, name, part, labels)


def interval(name: str, part: str, began: float, **labels: Value) -> None:
    """Record the time since `began`, in seconds of `time.monotonic`: for work that is worth a span only afterwards."""
    if (recorder := _recorder) is not None:
        with TimedSpan(recorder, name, part, labels) as of:
            of._began = (int(began * 1e9) + recorder.ahead) // 1000


def phases(track: str, name: str, first: int, length: int, lengths: Mapping[str, int], **arguments: Value) -> None:
    """Record what another program says of itself: phases whose lengths are known, one after the other in a span around them.

    Times are in microseconds, `first` since 1970. They appear on a track of their own, in place of a thread.
    """
    if (recorder := _recorder) is None:
        return
    thread, events = recorder.track(track)
    where: dict[str, object] = {"cat": SPARK, "ph": "X", "pid": recorder.pid, "tid": thread}
    rest, at = length, first
    for phase, of_phase in lengths.items():
        # Each is rounded: together they must not be longer than what is around them.
        of_phase = min(of_phase, rest)
        events.append({"name": phase, "ts": at, "dur": of_phase, "args": {**arguments, OWN: of_phase}, **where})
        rest, at = rest - of_phase, at + of_phase
    recorder.write([*events, {"name": name, "ts": first, "dur": length, "args": {**arguments, OWN: rest}, **where}])


def is_on() -> bool:
    """Whether this process records spans."""
    return _recorder is not None


def folder() -> str:
    """Return the folder of the profile, which workers get with their job; "" while nothing is profiled."""
    return "" if _recorder is None else _recorder.folder


def start(folder: str, process: str = "driver") -> None:
    """Record the spans of this process in a folder, which exists. `process` is the name of the process in the trace."""
    global _recorder
    stop()
    _recorder = _Recorder(folder, process)


def stop() -> None:
    """Record no more spans in this process."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.close()


def follow(folder: str) -> None:
    """Record the spans of a worker in the folder of its job's profile; none if that is "", or on another machine."""
    if folder == (_recorder.folder if _recorder is not None else ""):
        return
    stop()
    if os.path.isdir(folder):
        start(folder, "Python worker")


def _forget() -> None:
    """Leave the file of the parent to the parent."""
    global _recorder
    _recorder = None
    _thread.open.clear()
    _thread.closed.clear()


os.register_at_fork(after_in_child=_forget)
