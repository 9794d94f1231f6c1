"""A source and a sink as a user's file would hold them."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from sqlstream.connectors import WEIGHT, OwnTable, Sink, Source, TwoPhaseSink, UpsertSink, WriteAheadSink


class Numbers(Source):
    """The whole numbers below what stands in a file, in several partitions."""

    def __init__(self, file: str, split_into: str = "1"):
        self.file = file
        self.count = int(split_into)

    def partitions(self) -> list[str]:
        return [str(i) for i in range(self.count)]

    def first_position(self, partition: str) -> list[int]:
        return [0]

    def latest_position(self, partition: str) -> tuple[int]:
        with open(self.file) as file:
            return (int(file.read()),)

    def read(self, partition: str, start: Sequence[int], end: Sequence[int]) -> pa.Table:
        keys = [k for k in range(start[0], end[0]) if k % self.count == int(partition)]
        return pa.table({"K": pa.array(keys, pa.int32()), "part": [partition] * len(keys)})


class Alone(Numbers):
    """Numbers that are read by an object which no other thread reads with meanwhile; else reading fails."""

    reads = False

    def read(self, partition: str, start: Sequence[int], end: Sequence[int]) -> pa.Table:
        if self.reads:
            raise RuntimeError("another thread reads")
        self.reads = True
        time.sleep(0.2)
        self.reads = False
        return super().read(partition, start, end)


class Broken(Numbers):
    def read(self, partition: str, start: Sequence[int], end: Sequence[int]) -> pa.Table:
        raise KeyError("gone")


class Nameless(Numbers):
    def read(self, partition: str, start: Sequence[int], end: Sequence[int]) -> pa.Table:
        return super().read(partition, start, end).rename_columns(["a", "b"])


class Lines(Sink):
    """Appends batches to a file, and leaves out one that is in it already."""

    def __init__(self, file: str):
        self.file = file

    def write(self, batch: int, table: pa.Table) -> None:
        if os.path.exists(self.file):
            with open(self.file) as file:
                if batch <= max(json.loads(line)["batch"] for line in file):
                    return
        with open(self.file, "a") as file:
            file.write(json.dumps({"batch": batch, "rows": table.to_pylist()}, default=str) + "\n")


class Ledger(Lines):
    """Takes changes, with their weights."""

    takes_changes = True


class Neither:
    pass


class Guarded(Numbers):
    """Takes secrets, and tells them when it fails, which it does as long as there is a file that says so."""

    def __init__(self, file: str, password: str, dsn: str, endpoint: str):
        super().__init__(file)
        self.told = f"login as {password!r} at {dsn} or {endpoint} refused"

    def read(self, partition: str, start: Sequence[int], end: Sequence[int]) -> pa.Table:
        if os.path.exists(f"{self.file}.refused"):
            raise PermissionError(self.told)
        return super().read(partition, start, end)


def append(file: str, value: object) -> None:
    with open(file, "a") as opened:
        opened.write(json.dumps(value, default=str) + "\n")


class Feeds(Source):
    """Several tables of one class: which rows a table has is known by its name; a few are read at a time, unless it pauses."""

    def __init__(self, file: str, table: OwnTable):
        self.file, self.table = file, table

    def latest_position(self, partition: str) -> Any:
        return {"row": {"n": 7}}

    def first_position(self, partition: str) -> Any:
        return {"row": {"n": 0}}

    def batch_end(self, partition: str, start: Any, latest: Any) -> Any:
        if os.path.exists(f"{self.file}.pause"):
            return start
        return {"row": {"n": min(start["row"]["n"] + 3, latest["row"]["n"])}}

    def read(self, partition: str, start: Any, end: Any) -> pa.Table:
        keys = range(start["row"]["n"], end["row"]["n"])
        return pa.table({name: [f"{self.table.name}.{name}.{k}" for k in keys] for name in self.table.columns})

    def on_commit(self, positions: Mapping[str, Any]) -> None:
        append(f"{self.file}.{self.table.name}", positions)


START = datetime(2026, 1, 1)


class Gauges(Source):
    """Partitions with rows, each a second, in a file: `{"a": {"rows": [1, 5]}}`. A few rows are read at a time."""

    def __init__(self, file: str):
        self.file = file

    def _now(self) -> Any:
        with open(self.file) as file:
            return json.load(file)

    def partitions(self) -> list[str]:
        return sorted(self._now())

    def latest_position(self, partition: str) -> int:
        return len(self._now()[partition]["rows"])

    def batch_end(self, partition: str, start: int, latest: int) -> int:
        return min(start + 2, latest)

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        rows = self._now()[partition]["rows"][start:end]
        return pa.table({"ts": pa.array([START + timedelta(seconds=second) for second in rows], pa.timestamp("us"))})


class Promising(Gauges):
    """It knows of each partition before which second no row will come: `"reached"`."""

    def watermark(self, partition: str) -> Any:
        reached = self._now()[partition].get("reached")
        return START + timedelta(seconds=reached) if isinstance(reached, int) else reached


class InUtc(Promising):
    """The same, as instants."""

    def watermark(self, partition: str) -> Any:
        return super().watermark(partition).replace(tzinfo=UTC)

    def read(self, partition: str, start: int, end: int) -> pa.Table:
        return super().read(partition, start, end).cast(pa.schema([("ts", pa.timestamp("us", "UTC"))]))


class Changes(Sink):
    """What changes, with its weight."""

    takes_changes = True

    def __init__(self, file: str):
        self.file = file

    async def write(self, batch: int, table: pa.Table) -> None:
        append(self.file, sorted([row["k"], row["n"], row[WEIGHT]] for row in table.to_pylist()))


class Keyed(UpsertSink):
    """A row per key, in a file."""

    def __init__(self, file: str):
        self.file = file

    def write(self, batch: int, rows: pa.Table, deleted: pa.Table) -> None:
        append(self.file, [sorted(map(list, zip(*rows.to_pydict().values(), strict=True))), deleted.to_pylist()])


class Later(WriteAheadSink):
    """Fails once, when it is to send something."""

    def __init__(self, file: str):
        self.file = file

    def send(self, batch: int, table: pa.Table) -> None:
        if not os.path.exists(f"{self.file}.failed"):
            append(f"{self.file}.failed", batch)
            raise ConnectionError("not now")
        append(self.file, [batch, table.to_pylist()])


class HalfWritten(TwoPhaseSink):
    """Fails in the middle, and says what is undone."""

    def __init__(self, file: str):
        self.file = file

    def begin(self, batch: int, task: str) -> str:
        return task

    def write(self, transaction: str, table: pa.Table) -> None:
        raise ConnectionError("not now")

    def rollback(self, transaction: str) -> None:
        append(self.file, ["rolled back", transaction.startswith(self.identity)])
