"""A process function in a process that has none of the user's files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sqlstream import functions
from sqlstream.catalog import ProcessFunction
from tests.kinds import of_type

FILE = """
from __future__ import annotations
import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple
from sqlstream import Context, Row, ValueState, process, state

class Stop(NamedTuple):
    seen: dt.datetime

class Ride(NamedTuple):
    stops: list[Stop]

@process
class Rides:
    ride: ValueState[Ride] = state()

    def process(self, ctx: Context, stop: Row) -> Iterator[Ride]:
        yield Ride([])
"""
ELSEWHERE = """
import sys
from sqlstream.functions.pickling import unpack_class
from sqlstream.functions.types import codec
found = unpack_class("rides", sys.stdin.buffer.read())
codec("STRUCT(stops STRUCT(seen TIMESTAMP)[])", *found.hints["ride"])
print(found.result.writer()([found.result.row_class([])])["stops"].to_pylist())
"""


@pytest.mark.slow
def test_hints_of_fields_need_no_imports_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "rides.py").write_text(FILE)
    [rides] = functions.load(str(tmp_path / "udfs"))
    pickled = of_type(ProcessFunction, rides).pickled
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=pickled, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.split() == [b"[[]]"]
