"""What tests of tables in databases share: the jobs that write them, values, refusals, and crashes of these jobs."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from sqlstream.errors import BindError
from sqlstream.testing import Stream

COUNTS = """
CREATE TABLE sold (item BIGINT, price BIGINT);
CREATE TABLE counts (item BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (item) NOT ENFORCED) WITH ({options});
INSERT INTO counts SELECT item, COUNT(*), SUM(price) FROM sold GROUP BY item HAVING SUM(price) < 100
"""


def copying(columns: str, options: str, *, key: str = "") -> str:
    """Return a job that copies the rows of `given` into the table `kept`."""
    primary = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    return f"""
    CREATE TABLE given ({columns});
    CREATE TABLE kept ({columns}{primary}) WITH ({options});
    INSERT INTO kept SELECT * FROM given
    """


# A column of each type, with a value that every server holds.
VALUES: dict[str, tuple[str, Any]] = {
    "id": ("BIGINT", 1),
    "tiny": ("TINYINT", -1),
    "whole": ("INT", 2**31 - 1),
    "ratio": ("DOUBLE", 0.1),
    "single": ("FLOAT", 0.5),
    "ok": ("BOOLEAN", True),
    "price": ("DECIMAL(12, 4)", Decimal("-1.2500")),
    "name": ("STRING", 'it\'s "q", \\. ü\n'),
    "nothing": ("STRING", None),
    "empty": ("STRING", ""),
    "bytes": ("BYTES", b"\x00\xff,\n"),
    "day": ("DATE", datetime.date(1969, 12, 31)),
    "at": ("TIMESTAMP(6)", datetime.datetime(2026, 1, 1, 10, 0, 0, 123456)),
    "moment": ("TIMESTAMP_LTZ(3)", datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC)),
    "clock": ("TIME", datetime.time(23, 59, 59)),
    "code": ("UUID", uuid.UUID(int=7)),
    "list": ("ARRAY<INT>", [1, None, 3]),
    "row": ("ROW<a INT, b ARRAY<STRING>>", {"a": 1, "b": ["x,\"y'"]}),
    "map": ("MAP<STRING, INT>", {"k": 1}),
}


def looking_up(values: Mapping[str, tuple[str, Any]], options: str) -> str:
    """Return a job that copies `given` into `kept`, and one that looks up there the rows whose keys come into `keys`."""
    kinds = ", ".join(f"`{name}` {kind}" for name, (kind, _) in values.items())
    return f"""
    {copying(kinds, options)};
    CREATE TABLE keys (id BIGINT, p AS PROCTIME());
    CREATE TABLE found ({kinds});
    INSERT INTO found SELECT k.* FROM keys JOIN kept FOR SYSTEM_TIME AS OF keys.p AS k ON k.id = keys.id
    """


def check_refused(columns: str, options: str, message: str) -> None:
    """Check that a job which writes a table is refused when it starts, and that the error says what to do."""
    script = f"""
    CREATE TABLE kept ({columns}) WITH ({options});
    CREATE TABLE given ({columns.partition(", PRIMARY")[0]});
    INSERT INTO kept SELECT * FROM given
    """
    with pytest.raises(BindError) as refused:
        Stream(script)
    assert message in refused.value.message
    assert refused.value.hint


class Crash(Exception):
    """The job's process ends."""


def crashing(step: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def crashes(self: Any, given: Any) -> None:
        step(self, given)
        raise Crash

    return crashes


def write_and_crash(
    stream: Stream, transaction: type, writer: type, monkeypatch: pytest.MonkeyPatch
) -> Sequence[tuple[int]]:
    """Write four batches of `given`; return their rows. The job crashes in three of them, and writes them again.

    It crashes between the rows and the number of the batch, before the transaction is committed, and behind it.
    """
    stream.batch("given", [(1,), (2,)])
    for owner, name in ((transaction, "insert"), (transaction, "set_last_batch"), (writer, "write")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, crashing(getattr(owner, name)))
            with pytest.raises(Crash):
                stream.batch("given", [(3,)])
        stream.restart()
        stream.batch("given", [(3,)])
    return [(1,), (2,), (3,), (3,), (3,)]
