"""What tests of tables in databases share: the jobs that write them, and crashes of these jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

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
