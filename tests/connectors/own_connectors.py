"""A source and a sink as a user's file would hold them."""

import json
import os
from collections.abc import Sequence

import pyarrow as pa

from sqlstream.connectors import Sink, Source


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
