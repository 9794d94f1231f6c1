"""The changes of a warehouse table as its jobs commit them, as server-sent events."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import duckdb

from sqlstream.duck import databases
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_name
from sqlstream.errors import SqlStreamError, missing
from sqlstream.queries.batch_changes import changes_of_table
from sqlstream.secrets import masked
from sqlstream.server.events import (
    COMMENT,
    COMMENT_SECONDS,
    LOOK_IN_STORE_SECONDS,
    LOOK_SECONDS,
    RETRY,
    Event,
    ListenerLimit,
)
from sqlstream.server.problems import HttpError
from sqlstream.storage.joblog import JobLog
from sqlstream.storage.snapshot import JobHistory, JobVersion, VersionGone
from sqlstream.storage.zsets import VERSION, WEIGHT
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import JobRecord, SinkRecord, readable_record
from sqlstream.warehouse.paths import Warehouse

# A listener that begins, or has fallen behind, gets at most this many past versions.
_MOST_VERSIONS = 20
# An error is reported after this many failed looks in a row.
_LOOKS_THAT_FAIL = 3
# The most rows of a version that are sent.
_MOST_ROWS = 200
# The most tables that are read at the same time.
_LOOKS = 4
_KIND, _COUNT, _NUMBER = internal("kind"), internal("count"), internal("place")


@dataclass
class TableWatcher:
    """Reads a table, and returns its changes since the last look; at the first look, the changes of the last versions."""

    warehouse: Warehouse
    table: str
    _seen: dict[str, tuple[ProcessingTime, int]] = field(default_factory=dict)
    # The number of failed looks in a row, by job.
    _failed: dict[str, int] = field(default_factory=dict)
    # The writers at the last look.
    _writers: list[tuple[JobRecord, SinkRecord]] = field(default_factory=list)

    def writers(self) -> list[tuple[JobRecord, SinkRecord]]:
        """Return the jobs that write the table, even if they have not written yet. Raises HttpError if there is none."""
        names = self.warehouse.writers(self.table) or self.warehouse.jobs()
        writers, tables = [], set[str]()
        for name in names:
            record = readable_record(self.warehouse.fs, self.warehouse.job(name))
            if record is None:
                continue
            tables |= {sink.table for sink in record.sinks if record.sink(sink.table) is not None}
            if (sink := record.sink(self.table)) is not None:
                writers.append((record, sink))
        if not writers:
            hint = missing("table", self.table, sorted(tables))
            raise HttpError(404, f'no job writes a table "{self.table}" of the warehouse', hint=hint)
        self._writers = writers
        return writers

    def described(self) -> Event:
        """Return an event with the table's columns at the last look, its key, and the jobs that write it. Raises HttpError."""
        writers = self._writers or self.writers()
        record, sink = writers[0]
        data = {
            "table": sink.table,
            "columns": [{"name": name, "type": kind} for name, kind in sink.columns],
            "key": list(sink.key),
            "jobs": [record.job for record, _ in writers],
        }
        return Event("table", record.job, data)

    def look(self) -> list[Event]:
        """Return the new events. Raises HttpError if no job writes the table any more."""
        events: list[Event] = []
        for record, sink in self.writers():
            try:
                events += self._changes(record, sink)
                self._failed.pop(record.job, None)
            except (SqlStreamError, FileNotFoundError, duckdb.Error, VersionGone) as error:
                events += self._unreadable(record, sink, error)
        return events

    def _unreadable(self, record: JobRecord, sink: SinkRecord, error: Exception) -> list[Event]:
        """Return an event after several failed looks in a row, else none: one may fail because a file is being replaced."""
        count = self._failed[record.job] = self._failed.get(record.job, 0) + 1
        if count != _LOOKS_THAT_FAIL:
            return []
        message = error.message if isinstance(error, SqlStreamError) else masked(str(error)).partition("\n")[0]
        return [Event("unreadable", record.job, {"table": sink.table, "error": message or type(error).__name__})]

    def _changes(self, record: JobRecord, sink: SinkRecord) -> list[Event]:
        job = record.job.lower()
        committed = last_committed(self.warehouse.fs, self.warehouse.job(job))
        created_at, seen = self._seen.get(job, (record.created_at, None))
        if committed is None or (seen == committed and created_at == record.created_at):
            return []
        if created_at != record.created_at or (seen is not None and seen > committed):
            # The job was started anew, or has gone back to a savepoint.
            seen = None
        newest = JobHistory(self.warehouse, job).newest
        if newest is None:
            return []
        base = max(newest.version - _MOST_VERSIONS, -1 if seen is None else seen)
        events = list(self._read(record, sink, newest, base))
        if seen is not None and base > seen:
            events.insert(0, Event("skipped", record.job, {"table": sink.table, "versions": base - seen}))
        self._seen[job] = record.created_at, newest.version
        return events

    def _read(self, record: JobRecord, sink: SinkRecord, newest: JobVersion, base: int) -> Iterator[Event]:
        log = JobLog(self.warehouse.fs, self.warehouse.job(record.job).log)
        times = {entry.version: entry.committed_at for entry in log.entries(newest.version, base + 1)}
        sql = changes_of_table(self.warehouse, record.job, sink, newest, base)
        with databases.passing() as con:
            rows = con.execute(_changelog(sink, sql)).fetchall()
        for (version, count), of in itertools.groupby(rows, key=lambda row: row[:2]):
            data: dict[str, Any] = {"table": sink.table, "version": version, "committed_at": times.get(version)}
            yield Event("changes", record.job, {**data, "count": count, "rows": [row[2:] for row in of]})


def _changelog(sink: SinkRecord, changes: str) -> str:
    """Return the SELECT of the first changes of each version: (version, number of its changes, kind, values as texts..)."""
    columns = [quote_name(name) for name, _ in sink.columns]
    keys = [quote_name(name) for name in sink.key]
    is_update = "false"
    if keys:
        group = f"PARTITION BY {', '.join([VERSION, *keys])}"
        is_update = f"min({WEIGHT}) OVER ({group}) < 0 AND max({WEIGHT}) OVER ({group}) > 0"
    kind = f"CASE WHEN {WEIGHT} < 0 THEN if({is_update}, '-U', '-D') ELSE if({is_update}, '+U', '+I') END AS {_KIND}"
    listed = ", ".join(columns)
    copies = f"SELECT {listed}, {WEIGHT}, {VERSION}, unnest(range(abs({WEIGHT}))) FROM ({changes})"
    order = f"PARTITION BY {VERSION} ORDER BY {', '.join([*keys, WEIGHT, listed])}"
    numbered = (
        f"SELECT *, {kind}, count(*) OVER (PARTITION BY {VERSION}) AS {_COUNT}, row_number() OVER ({order}) AS {_NUMBER} "
        f"FROM ({copies}) QUALIFY {_NUMBER} <= {_MOST_ROWS}"
    )
    texts = ", ".join(f"CAST({column} AS VARCHAR)" for column in columns)
    return f"SELECT {VERSION}, {_COUNT}, {_KIND}, {texts} FROM ({numbered}) ORDER BY {VERSION}, {_NUMBER}"


class TableTails:
    """Lets clients listen to tables. Each client has its own watcher, which looks again after the client has read all events."""

    def __init__(self, warehouse: Warehouse, limit: ListenerLimit):
        self._warehouse, self._limit = warehouse, limit
        self._seconds = LOOK_SECONDS if warehouse.fs.local else LOOK_IN_STORE_SECONDS
        # Reading large tables takes seconds: queries, and listeners of jobs, do not wait for them.
        self._threads = ThreadPoolExecutor(_LOOKS, thread_name_prefix="tail")

    async def listen(self, table: str) -> AsyncIterator[bytes]:
        """Yield a table's columns, its last changes, and then each change, until the listener leaves. Raises HttpError."""
        self._limit.take()
        loop = asyncio.get_running_loop()
        try:
            watcher, last_sent = TableWatcher(self._warehouse, table), time.monotonic()
            description = await loop.run_in_executor(self._threads, watcher.described)
            yield RETRY + description.text()
            while True:
                looking = loop.run_in_executor(self._threads, watcher.look)
                try:
                    while not (await asyncio.wait({looking}, timeout=COMMENT_SECONDS))[0]:
                        yield COMMENT
                finally:
                    looking.cancel()
                events = looking.result()
                if (described := watcher.described()) != description:
                    # A job that continues with another query may change the table's columns.
                    description = described
                    events.insert(0, described)
                for event in events:
                    last_sent = time.monotonic()
                    yield event.text()
                if time.monotonic() - last_sent >= COMMENT_SECONDS:
                    last_sent = time.monotonic()
                    yield COMMENT
                await asyncio.sleep(self._seconds)
        finally:
            self._limit.leave()

    def close(self) -> None:
        """Stop reading tables."""
        self._threads.shutdown(wait=False, cancel_futures=True)
