"""Connectors as other packages have them, with answers that built-in ones give otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint

import pytest

from sqlstream.connectors import registry
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.datagen.connector import DatagenConnector, GeneratedRows
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import BatchWriter, Connector, DriverSink, Reach, SinkContext
from sqlstream.connectors.options import TEXT, TableOption
from tests.connectors.own_connectors import Numbers


class JournalWriter(BatchWriter):
    """Appends rows to a file, each with the number of its batch."""

    def __init__(self, path: str, committed: int, *, removes: bool):
        self._path, self._committed, self._removes = path, committed, removes

    def write(self, batch: Batch) -> None:
        rows = batch.table(batch.rows()).to_pylist()
        with open(self._path, "a") as file:
            file.writelines(f"{batch.number} {row['k']}\n" for row in rows)

    def recover(self) -> None:
        if not self._removes or not os.path.exists(self._path):
            return
        with open(self._path) as file:
            lines = file.readlines()
        with open(self._path, "w") as file:
            file.writelines(line for line in lines if int(line.split()[0]) <= self._committed)


class Journal(DriverSink):
    """A file of rows, from which those of a batch can be removed again."""

    delivery = Delivery.IDEMPOTENT
    delivery_reason = "rows of a batch that comes again are removed first"
    rollback = Rollback.ROWS_REMOVED

    def open(self, context: SinkContext) -> JournalWriter:
        path = os.path.join(context.project, self.table.options["path"])
        return JournalWriter(path, context.committed, removes=self.rollback is Rollback.ROWS_REMOVED)


class Ledger(Journal):
    """A file of rows that stay."""

    delivery = Delivery.AT_LEAST_ONCE
    delivery_reason = "the last batch may come again"
    rollback = Rollback.ROWS_STAY


class Screen(Journal):
    """Rows that nobody keeps."""

    rollback = Rollback.NO_ROWS


class JournalConnector(Connector):
    name = "journal"
    summary = "a file of rows"
    reach = Reach.FILE
    options = (TableOption("path", TEXT, "the file", required=True, example="journal.txt"),)
    sink_type = Journal


class LedgerConnector(JournalConnector):
    name = "ledger"
    sink_type = Ledger


class ScreenConnector(JournalConnector):
    name = "screen"
    sink_type = Screen


class Ticks(GeneratedRows):
    """Rows that come once, from a place that each job has of its own."""

    rewinds = False
    slot = "cursor on the server"


class TicksConnector(DatagenConnector):
    name = "ticks"
    summary = "rows of a server"
    reach = Reach.ELSEWHERE
    source_type = Ticks


class Gone(Numbers):
    """Numbers that are gone once they were read."""

    replayable = False


@contextmanager
def installed(patch: pytest.MonkeyPatch, *connectors: type[Connector]) -> Iterator[None]:
    """Let tables name connectors of this file, as if their package was installed."""
    entries = {c.name: EntryPoint(c.name, f"{c.__module__}:{c.__qualname__}", registry.GROUP) for c in connectors}
    with patch.context() as inner:
        inner.setattr(registry, "installed", lambda: entries)
        registry.named.cache_clear()
        yield
    registry.named.cache_clear()


def lines(path: str) -> Sequence[int]:
    """Return the rows of a journal."""
    with open(path) as file:
        return sorted(int(line.split()[1]) for line in file)
