"""Sources and sinks that kill their process at a point: the kinds that there are, each over plain files.

Every call of `point` counts down `POINTS_LEFT`, an environment variable, for these classes are carried by value; at 0 the process
is killed as `kill -9` does.
"""

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sqlstream.connectors import Sink, Source, TwoPhaseSink, WriteAheadSink

STEP = 5


def point() -> None:
    left = int(os.environ.get("POINTS_LEFT", "0"))
    os.environ["POINTS_LEFT"] = str(left - 1)
    if left == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def write(path: str, text: str) -> None:
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


class Kept(Source):
    """The whole numbers below a count, a few in a batch."""

    def __init__(self, folder: str, count: str):
        self.folder, self.count = folder, int(count)

    def latest_position(self, partition: str) -> Any:
        return {"next": self.count}

    def first_position(self, partition: str) -> Any:
        return {"next": 0}

    def batch_end(self, partition: str, start: Any, latest: Any) -> Any:
        return {"next": min(start["next"] + STEP, latest["next"])}

    def read(self, partition: str, start: Any, end: Any) -> pa.Table:
        point()
        return pa.table({"k": pa.array(range(start["next"], end["next"]), pa.int64())})


class Gone(Kept):
    """The same, but what was read is gone."""

    replayable = False

    def read(self, partition: str, start: Any, end: Any) -> pa.Table:
        taken = 0
        with contextlib.suppress(FileNotFoundError), open(f"{self.folder}.taken") as file:
            taken = int(file.read())
        point()
        write(f"{self.folder}.taken", str(end["next"]))
        point()
        return super().read(partition, {"next": max(taken, start["next"])}, end)


class ToFolder:
    """Where rows go: lines of files in a folder."""

    def __init__(self, folder: str):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder

    def append(self, name: str, table: pa.Table) -> None:
        for row in table.to_pylist():
            point()
            with open(f"{self.folder}/{name}", "a") as file:
                file.write(f"{row['k']}\n")
        point()


class AnySink(ToFolder, Sink):
    def write(self, batch: int, table: pa.Table) -> None:
        self.append("rows.done", table)


class IdempotentSink(ToFolder, Sink):
    """A file per batch, which a repetition writes again."""

    idempotent = True

    def write(self, batch: int, table: pa.Table) -> None:
        point()
        write(f"{self.folder}/{batch}.done", "".join(f"{row['k']}\n" for row in table.to_pylist()))
        point()


class Ahead(ToFolder, WriteAheadSink):
    def send(self, batch: int, table: pa.Table) -> None:
        self.append("rows.done", table)


class TwoPhases(ToFolder, TwoPhaseSink):
    """Files that get other endings: open, prepared, done."""

    def begin(self, batch: int, task: str) -> str:
        assert task.startswith(f"{self.identity}-")
        return task

    def write(self, transaction: str, table: pa.Table) -> None:
        self.append(f"{transaction}.open", table)

    async def prepare(self, transaction: str) -> dict[str, str]:
        os.rename(f"{self.folder}/{transaction}.open", f"{self.folder}/{transaction}.prepared")
        point()
        return {"task": transaction}

    async def commit(self, token: dict[str, str]) -> None:
        point()
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{self.folder}/{token['task']}.prepared", f"{self.folder}/{token['task']}.done")
        point()

    def abort(self, token: dict[str, str]) -> None:
        point()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/{token['task']}.prepared")

    def recover(self, tokens: Sequence[dict[str, str]]) -> None:
        kept = {f"{token['task']}.prepared" for token in tokens}
        for name in os.listdir(self.folder):
            if name.startswith(self.identity) and not name.endswith(".done") and name not in kept:
                os.unlink(f"{self.folder}/{name}")
                point()

    def on_commit(self, version: int) -> None:
        write(f"{self.folder}/version", json.dumps(version))
