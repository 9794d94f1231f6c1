"""Events of the jobs of a warehouse, as server-sent events: batches, watermarks, and changes of status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sqlstream.errors import SqlStreamError
from sqlstream.server.batches import batch_data, time_data, with_before
from sqlstream.server.problems import HttpError
from sqlstream.storage.joblog import JobLog
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import readable_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import LOST, RESTARTING, effective_status

LOOK_SECONDS = 0.25
# A store is read over a network.
LOOK_IN_STORE_SECONDS = 2.0
# A proxy may close a connection that is silent for longer.
COMMENT_SECONDS = 15.0
COMMENT, RETRY = b": nothing has happened\n\n", b"retry: 1000\n\n"
# The most events that wait for a subscriber who reads slowly; the oldest are dropped.
_WAITING = 1_000
# The most past batches that a later subscriber gets.
_MOST_BATCHES = 20


@dataclass
class _JobSnapshot:
    """The state of a job at the last look. `name` is its name as written; its directory has the name in lower case."""

    name: str
    created_at: ProcessingTime
    status: str | None = None
    version: int | None = None
    watermark: EventTime | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its data for JSON; times are microseconds since 1970."""

    kind: str
    job: str
    data: dict[str, Any]

    def text(self) -> bytes:
        """Return the event as a server-sent event."""
        content = msgspec.json.encode({"job": self.job, **self.data})
        return f"event: {self.kind}\ndata: ".encode() + content + b"\n\n"


@dataclass
class Watcher:
    """Reads the jobs of a warehouse, and returns events. `supervised` says how the server supervises a job, None if not."""

    warehouse: Warehouse
    supervised: Callable[[str], str | None] = lambda job: None
    _seen: dict[str, _JobSnapshot] = field(default_factory=dict)
    _has_looked: bool = False

    def look(self) -> list[Event]:
        """Return the events since the last look; at the first look, events with the present state of each job."""
        events: list[Event] = []
        names = self.warehouse.jobs()
        for name in names:
            # A job that cannot be read now does not hide the others.
            with contextlib.suppress(SqlStreamError, OSError):
                events += self._job(name)
        for name in self._seen.keys() - set(names):
            events.append(Event("dropped", self._seen.pop(name).name, {}))
        self._has_looked = True
        return events

    def _job(self, name: str) -> Iterator[Event]:
        fs, paths = self.warehouse.fs, self.warehouse.job(name)
        record = readable_record(self.warehouse.fs, self.warehouse.job(name))
        if record is None:
            return
        seen = self._seen.get(name)
        if seen is not None and seen.created_at != record.created_at:
            # The job was dropped and made anew between two looks.
            yield Event("dropped", seen.name, {})
            seen = None
        if is_new := seen is None:
            seen = self._seen[name] = _JobSnapshot(record.job, record.created_at)
        status = effective_status(fs, paths)
        state = status.state if status is not None else None
        if state == LOST and self.supervised(name) is not None:
            # The server starts it again.
            state = RESTARTING
        if state != seen.status or is_new:
            error = status.error if status is not None else None
            yield Event("job", record.job, {"status": state, "before": seen.status, "error": error})
            seen.status = state
        newest = last_committed(fs, paths)
        if newest is None or newest == seen.version:
            return
        first = max(self._first_batch(seen.version, newest), newest - _MOST_BATCHES + 1)
        for entry, before in with_before(JobLog(fs, paths.log).entries(newest, max(first - 1, 0))):
            if entry.version < first:
                continue
            yield Event("batch", record.job, batch_data(entry, before))
            if entry.watermark != seen.watermark:
                times = {"watermark": time_data(entry.watermark), "before": time_data(seen.watermark)}
                data = {"version": entry.version, **times}
                yield Event("watermark", record.job, data)
                seen.watermark = entry.watermark
        seen.version = newest

    def _first_batch(self, version: int | None, newest: int) -> int:
        """Return the first version that is news: `version` was the newest at the last look, None if there was none."""
        if version is None:
            # What a job did before the first look is no news; of a job that began since then, all is.
            return 0 if self._has_looked else newest
        # A job that was restored has an older version.
        return version + 1 if newest > version else newest


class ListenerLimit:
    """Limits how many clients listen to events at the same time. Only one event loop may use it."""

    def __init__(self, most: int):
        self._most, self._count = most, 0

    def take(self) -> None:
        """Take a place. Raises HttpError if none is free."""
        if self._count >= self._most:
            raise HttpError(429, f"{self._most} clients listen already, which is the most")
        self._count += 1

    def leave(self) -> None:
        """Free a place."""
        self._count -= 1


@dataclass(frozen=True, eq=False)
class _Listener:
    """The queue of events for a client that listens to a job, or to all (None)."""

    job: str | None
    waiting: asyncio.Queue[Event] = field(default_factory=lambda: asyncio.Queue(_WAITING))

    def wants(self, event: Event) -> bool:
        return self.job is None or event.job.lower() == self.job.lower()

    def hear(self, event: Event) -> None:
        if self.wants(event):
            if self.waiting.full():
                self.waiting.get_nowait()
            self.waiting.put_nowait(event)


class Events:
    """Sends the events of one watcher to all listeners. Without listeners it reads nothing."""

    def __init__(
        self, warehouse: Warehouse, limit: ListenerLimit, supervised: Callable[[str], str | None] = lambda job: None
    ):
        self._warehouse, self._limit, self._supervised = warehouse, limit, supervised
        self._listeners: set[_Listener] = set()
        # The last event of each (job, kind), which a new listener gets first. The lock keeps looks away meanwhile.
        self._last: dict[tuple[str, str], Event] = {}
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._seconds = LOOK_SECONDS if warehouse.fs.local else LOOK_IN_STORE_SECONDS

    async def listen(self, job: str | None) -> AsyncIterator[bytes]:
        """Yield events as bytes, first the state of each job, until the listener leaves. Raises HttpError."""
        self._limit.take()
        listener = _Listener(job)
        try:
            async with self._looking:
                if self._task is None or self._task.done():
                    watcher = Watcher(self._warehouse, self._supervised)
                    self._last.clear()
                    await self._look(watcher)
                    self._task = asyncio.create_task(self._watch(watcher))
                first = [event for event in self._last.values() if listener.wants(event)]
                # Every later event continues from these.
                self._listeners.add(listener)
            yield RETRY
            for event in first:
                yield event.text()
            while True:
                try:
                    event = await asyncio.wait_for(listener.waiting.get(), COMMENT_SECONDS)
                except TimeoutError:
                    yield COMMENT
                    continue
                yield event.text()
        finally:
            self._listeners.discard(listener)
            self._limit.leave()

    async def _watch(self, watcher: Watcher) -> None:
        while self._listeners:
            await asyncio.sleep(self._seconds)
            async with self._looking:
                # A store that does not answer now may answer at the next look.
                with contextlib.suppress(SqlStreamError, OSError):
                    await self._look(watcher)

    async def _look(self, watcher: Watcher) -> None:
        """Pass new events to the listeners."""
        for event in await asyncio.to_thread(watcher.look):
            if event.kind == "dropped":
                self._last = {at: last for at, last in self._last.items() if at[0] != event.job}
            else:
                self._last[event.job, event.kind] = event
            for listener in self._listeners:
                listener.hear(event)

    def close(self) -> None:
        """Stop reading the jobs."""
        if self._task is not None:
            self._task.cancel()
