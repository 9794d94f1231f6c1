"""Receives the changes of a table on the driver: first the rows of a snapshot, then, at each poll, the new changes of the slot.

Received changes are written into files of the job, which batches read. The slot stays at the end of the last committed batch, so
that the server can send all later changes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.postgres_cdc import pgoutput
from sqlstream.connectors.postgres_cdc.files import (
    ChangesFile,
    file_name,
    merged,
    number_of,
    write_changes,
    write_rows,
)
from sqlstream.connectors.postgres_cdc.options import CdcSettings
from sqlstream.connectors.postgres_cdc.server import Server, as_lsn, unreachable
from sqlstream.connectors.postgresql import client
from sqlstream.errors import DataError, JobError, OutageError, UsageError
from sqlstream.units import Duration
from sqlstream.warehouse.records import read_sealed, write_sealed

# The files before the last committed one that stay: a batch may be repeated with them.
_KEPT = 64
# Changes that are written as one row group.
_CHUNK = 50_000
# Bytes of log without a change of the table after which the slot is advanced although no batch ends.
_WORTH_MOVING = 1 << 20
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
# Files in the source's folder: the log position of a complete snapshot, and the sizes of its files; the log position to which the
# slot was advanced without a batch.
_SNAPSHOT, _MOVED = "snapshot.json", "moved.json"


class ChangesDiscovery(Discovery):
    """Receives the changes of a table into files; each file is a split, and a batch.

    The constructor checks the server, and at the first start creates the slot and the publication, and takes the snapshot. It
    raises UsageError or BindError if the server is not ready for the table, DataError if changes are lost, and OutageError while
    the server is away.
    """

    backlog_unit = "bytes"

    def __init__(self, table: Table, position: Offsets, context: DiscoveryContext, settings: CdcSettings):
        super().__init__()
        self._table, self._context, self._settings = table, context, settings
        self.interval: Duration | None = settings.interval
        self.bounded = settings.bounded
        self._fs, self._directory = context.warehouse.fs, context.directory
        name = context.remember("replication", f"sqlstream_{_plain(table.name)}_{uuid4().hex[:8]}")
        self._server = Server(table, settings.place, settings.slot or name, settings.publication or name)
        self._failures, self._again_at = 0, 0.0
        self._notices: list[str] = []
        self._ended = False
        # The end of the server's log at the last poll; the log position up to which the table has no further change.
        self._log_end: int = 0
        self._caught_up: int = 0
        # The log position after the last file that was handed out, and the number of the next file.
        self._end, self._next = position.get("", [0, 0])
        with self._opening():
            self._server.check()
            self._types = self._server.types()
            self._server.publish(create=settings.publication is None)
            first_end, files = self._begun()
        self._moved = self._read_moved()
        self._pending = [f for f in files if f.number >= self._next]
        self._received = max([self._end, first_end, *(f.end for f in self._pending)])
        self._end = self._end or first_end
        self._remove(lambda number: number >= max([self._next, *(f.number + 1 for f in files)]))
        self._next_file = max([self._next, *(f.number + 1 for f in files)])
        with self._opening():
            self._committed = self._check_slot()
            self._target = self._bound()
        # Whether the slot is behind the last batch: then nothing is received before `committed` was called.
        self._awaits_commit = self._committed < self._end

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            with self._server.plainly():
                yield
        except self._server.lost_errors as error:
            self._server.close()
            wrong = unreachable(self._table, error)
            # `check_input` has reached the server before the first start, so that this is a restart.
            raise OutageError(wrong.message, wrong.span) if client.is_passing(error) else wrong from error

    # -- the beginning

    def _begun(self) -> tuple[int, list[ChangesFile]]:
        """Return the log position from which changes are read, and the files of the snapshot before it.

        The first start takes the snapshot. If the process dies before the end of it, no batch has read anything, and the next
        process takes another snapshot, with another slot.
        """
        marker = f"{self._directory}/{_SNAPSHOT}"
        if self._fs.exists(marker):
            begun = json.loads(read_sealed(self._fs, marker))
            return begun["place"], [self._file(n, begun["place"], size) for n, size in enumerate(begun["sizes"])]
        place, sizes = self._begin()
        write_sealed(self._fs, marker, json.dumps({"place": place, "sizes": sizes}), durable=True)
        return place, [self._file(n, place, size) for n, size in enumerate(sizes)]

    def _begin(self) -> tuple[int, list[int]]:
        existing = self._server.slot_state()
        if existing is not None and not self._settings.snapshot and self._settings.slot:
            return existing.confirmed, []
        if existing is not None and not self._fs.exists(f"{self._directory}/ours"):
            raise UsageError(
                f'table "{self._table.name}": replication slot "{self._server.slot}" exists already',
                self._table.option_span("slot.name", value=True),
                detail="A snapshot needs a slot that is made with it.",
                hint="Name another slot; or drop this one: "
                f"SELECT pg_drop_replication_slot('{self._server.slot}'); or read the changes from where it stands, "
                "without a snapshot: 'scan.startup.mode' = 'latest-offset'.",
            )
        if existing is not None:
            self._server.drop_slot()
        # From now on a slot of this name is the job's.
        write_sealed(self._fs, f"{self._directory}/ours", self._server.slot, durable=True)
        self._remove(lambda number: True)
        if not self._settings.snapshot:
            return self._server.create_slot(), []
        with self._server.slot_with_snapshot() as (place, snapshot), self._server.rows(snapshot) as copy:
            return place, list(self._write_snapshot(copy))

    def _write_snapshot(self, copy: Any) -> Iterator[int]:
        """Write the rows of a COPY into files; yield the size of each in bytes."""
        most = self._settings.most
        for number, batches in enumerate(_in_files(rows_of_csv(copy, [c.name for c in self._table.stored]), most)):
            path = f"{self._directory}/{file_name(number)}"
            write_rows(self._fs, path, self._table, batches)
            yield self._fs.size(path)

    def _check_slot(self) -> int:
        """Return the log position of the slot. Raises DataError unless it has all changes after the last batch."""
        state = self._server.slot_state()
        if state is None:
            raise self._server.slot_is_gone()
        if state.lost:
            raise self._server.lost(f'the server has thrown away the log of replication slot "{self._server.slot}"')
        last_read = max(self._end, self._moved)
        if state.confirmed > last_read:
            cause = f'somebody has moved replication slot "{self._server.slot}" to {as_lsn(state.confirmed)}'
            raise self._server.lost(f"{cause}, the job has read up to {as_lsn(last_read)}")
        return state.confirmed

    def _read_moved(self) -> int:
        path = f"{self._directory}/{_MOVED}"
        return int(json.loads(read_sealed(self._fs, path))) if self._fs.exists(path) else 0

    def _bound(self) -> int | None:
        """Return the log position at which a bounded table ends: the end of the log when the job began. None if unbounded."""
        return int(self._context.remember("end", self._server.end_of_log())) if self.bounded else None

    # -- changes

    def poll(self) -> int:
        """Receive new changes into a file, if no file waits and all others are committed; return how many files wait.

        A lost connection is tried again at later polls, after growing delays. Raises OutageError after the last retry, DataError
        for changes that are lost or cannot be read, BindError if the table no longer fits, UsageError if the server refuses.
        """
        if self._pending or self._awaits_commit or self._ended or self._context.clock() < self._again_at:
            return len(self._pending)
        try:
            with self._server.plainly():
                self._receive()
            self._failures = 0
        except pgoutput.Altered as altered:
            # `check` raises if the new type does not fit; else the changes are read at the next poll.
            with self._opening():
                self._server.check()
            self._types[altered.column] = altered.type
        except self._server.lost_errors as error:
            self._failed(error)
        except pgoutput.Truncated:
            raise self._fault(
                "was truncated, which is no change of rows",
                "Start the job afresh; or go on with the rows as they were: 'scan.on-truncate' = 'ignore'.",
            ) from None
        except pgoutput.ColumnGone as error:
            raise self._fault(
                f'has no column "{error}" any more', "Drop the job, and declare the table as it is now."
            ) from None
        except pgoutput.Incomplete as error:
            hint = f"On the server: ALTER TABLE {self._settings.place.qualified} REPLICA IDENTITY FULL, and start the job afresh."
            raise self._fault(f"has changes of which the log does not hold {error}", hint) from None
        return len(self._pending)

    def _receive(self) -> None:
        if self._check_slot() < self._end:
            # It was away when the last batch was committed.
            self._server.advance(self._end)
        until = self._log_end = self._target or self._server.end_of_log()
        decoder = pgoutput.Decoder(
            self._settings.place.schema,
            self._settings.place.name,
            self._types,
            bool(self._table.primary_key),
            self._received,
            self._settings.skips_truncate,
        )
        path = f"{self._directory}/{file_name(self._next_file)}"
        with self._server.messages(until, self._settings.most) as messages:
            groups = merged(decoder.decode(messages), len(self._table.stored), _CHUNK)
            count = write_changes(self._fs, path, self._table, groups)
        if count:
            self._received = decoder.end
            self._pending.append(self._file(self._next_file, decoder.end, self._fs.size(path)))
            self._next_file += 1
        elif decoder.count < self._settings.most:
            # The log up to there has no change of the table: the server need not keep it.
            self._caught_up = until
            self._move(until)
            self._ended = self._target is not None
        else:
            self._move(decoder.end)

    def _move(self, place: int) -> None:
        """Advance the slot to a log position, `place`. The table has no changes between the last batch and this position."""
        if place < max(self._received, self._moved) + _WORTH_MOVING:
            return
        write_sealed(self._fs, f"{self._directory}/{_MOVED}", json.dumps(place), durable=True)
        self._moved = place
        self._server.advance(place)

    def _failed(self, error: Exception) -> None:
        """Schedule a retry after a lost connection. Raises OutageError after the last one, JobError if a retry is of no use."""
        self._server.close()
        passing = client.is_passing(error)
        if not passing or self._failures >= self._settings.retries:
            reason = " ".join(str(error).split())
            times = f" {self._failures + 1} times" if self._failures else ""
            message = f'reading table "{self._table.name}" failed{times}: {reason}'
            hint = "No change is lost: the server keeps them for the job. Run it again."
            raise (OutageError if passing else JobError)(message, self._table.span, hint=hint) from error
        self._again_at = self._context.clock() + min(_FIRST_DELAY * 2**self._failures, _LONGEST_DELAY)
        self._failures += 1

    def _fault(self, what: str, hint: str) -> DataError:
        return DataError(f'table "{self._table.name}" {what}', self._table.span, hint=hint)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @property
    def backlog(self) -> int:
        """The bytes of log, at the last poll, after the last file that was handed out; 0 if they have no change of the table."""
        return max(0, self._log_end - max(int(self._end), self._caught_up))

    @property
    def remaining(self) -> int:
        """The number of files that wait, and 1 more until a bounded table was received to its end."""
        return len(self._pending) + (not self._ended)

    def next_batch(self) -> Sequence[ChangesFile] | None:
        """Return the next file as the only split of a batch; None if none waits."""
        if not self._pending:
            return None
        split = self._pending.pop(0)
        self._end, self._next, self._awaits_commit = split.end, split.number + 1, True
        return [split]

    def committed(self, position: Offsets) -> None:
        """Advance the slot past committed batches, and delete their files but for the last 64."""
        end, number = position.get("", [0, 0])
        self._awaits_commit = number < self._next
        self._remove(lambda n: n < number - _KEPT)
        if end <= self._committed:
            return
        try:
            with self._server.plainly():
                self._server.advance(end)
            self._committed = end
        except self._server.lost_errors:
            # The next commit advances the slot further.
            self._server.close()

    def notices(self) -> Sequence[str]:
        slot = self._server.slot
        return [
            f'table "{self._table.name}": the server keeps its log for replication slot "{slot}" while the job is down; '
            f"once the job is dropped: SELECT pg_drop_replication_slot('{slot}')"
        ]

    def close(self) -> None:
        self._server.close()

    # -- files

    def _file(self, number: int, end: int, size: int) -> ChangesFile:
        root = self._context.warehouse.root.rstrip("/")
        return ChangesFile(number, end, self._directory.removeprefix(f"{root}/"), size)

    def _remove(self, gone: Any) -> None:
        for name in self._fs.list(self._directory):
            number = number_of(name)
            if number is not None and gone(number):
                self._fs.delete(f"{self._directory}/{name}")


def _plain(name: str) -> str:
    """Return a name with the characters that names of slots may have: small letters, digits and underscores, at most 40."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())[:40]


class _CopyStream:
    """A COPY as a readable file of bytes."""

    closed = False

    def __init__(self, copy: Any):
        self._blocks = iter(copy)
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, length = [self._rest], len(self._rest)
        while length < size and (block := next(self._blocks, None)) is not None:
            parts.append(bytes(block))
            length += len(parts[-1])
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def rows_of_csv(copy: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a COPY in CSV with columns of texts; an empty value without quotes is NULL."""
    from pyarrow import csv

    stream = _CopyStream(copy)
    if not (first := stream.read(1 << 20)):
        return
    stream._rest = first + stream._rest
    reader = csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        csv.ReadOptions(column_names=list(names), use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    yield from reader


def _in_files(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield groups of batches, each of at least `most` rows except the last. Read each group to its end before the next."""
    while (first := next(batches, None)) is not None:
        yield _up_to(first, batches, most)


def _up_to(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    yield first
    count = first.num_rows
    while count < most and (following := next(batches, None)) is not None:
        yield following
        count += following.num_rows
