"""What calls with OVER keep, and rows that leave in order."""

from __future__ import annotations

import pytest

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.aggregates.calls import strategy
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS
from sqlstream.logical.plan.expressions import AggregateItem, Expression
from sqlstream.logical.plan.over import EDGES, POSITIONAL, RANKS, OverFrame, OverItem
from sqlstream.operators.over.calls import OverCall
from sqlstream.operators.over.over import OverOperator
from sqlstream.storage.manifests import Manifest
from sqlstream.testing import Stream

SOURCE = "CREATE TABLE t (k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND);"


def call(function: str, frame: OverFrame, *, distinct: bool = False) -> OverCall:
    calls = [
        AggregateCall(function, arguments, ("BIGINT",) * len(arguments), distinct, (), None, "DOUBLE")
        for arguments in (("x",), ("x", "2"), ("x", "0", "9"))
    ]
    return OverCall("r", next((c for c in calls if _fits(c)), calls[0]), frame)


def _fits(call: AggregateCall) -> bool:
    try:
        return strategy(call) is not None
    except (IndexError, ValueError):
        return False


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("function", sorted({*FUNCTIONS, *ALIASES, *POSITIONAL, *EDGES, *RANKS}))
def test_the_plan_says_which_calls_keep_all_rows(function: str, distinct: bool) -> None:
    frame = OverFrame("range", None)
    item = AggregateItem("r", function, (Expression.of_column("x", "BIGINT"),), distinct, (), None, "DOUBLE")
    operator_keeps = call(ALIASES.get(function, function), frame, distinct=distinct).rows_before is None
    assert OverItem(item, frame).keeps_partition == operator_keeps


@pytest.mark.parametrize(
    ("frames", "tables"),
    [
        ([OverFrame("range", None)], ["rows", "totals", "keys"]),
        ([OverFrame("rows", 3)], ["rows", "last", "keys"]),
        ([OverFrame("rows", 0)], ["rows"]),
        ([OverFrame("range", 5_000_000)], ["rows"]),
        ([OverFrame("rows", None, 1)], ["rows", "last", "keys"]),
        ([OverFrame("range", None), OverFrame("rows", 2), OverFrame("range", 1)], ["rows", "last", "totals", "keys"]),
    ],
)
def test_only_what_frames_need_is_kept(frames: list[OverFrame], tables: list[str]) -> None:
    calls = tuple(call("sum", frame) for frame in frames)
    assert [t.name for t in OverOperator((), (Column("x", "BIGINT"),), "ts", (), calls).tables] == tables


def test_rows_leave_in_order() -> None:
    with Stream(f"{SOURCE} SELECT x FROM t ORDER BY ts, x DESC") as stream:
        stream.batch("t", [(1, n, f"2026-01-01 10:00:{n * 7 % 10:02}") for n in range(20)])
        stream.batch("t", [(1, 30, "2026-01-01 10:00:08"), (1, 31, "2026-01-01 10:00:20")])
        stream.finish()
        times = [(n * 7 % 10, -n) for n in range(20)]
        assert [x for (x,) in stream.rows()] == [-n for _, n in sorted([*times, (8, -30), (20, -31)])]


def test_a_batch_of_a_table_is_in_order() -> None:
    with Stream(f"{SOURCE} CREATE TABLE out (x BIGINT); INSERT INTO out SELECT x FROM t ORDER BY ts") as stream:
        stream.batch("t", [(1, n, f"2026-01-01 10:00:{59 - n:02}") for n in range(50)])
        stream.finish()
        assert [x for (x,) in stream.rows()] == sorted(range(50), reverse=True)


def test_a_window_that_ends_between_two_milliseconds_is_not_late() -> None:
    """The watermark, of whole milliseconds, may be at the one in which it ends before it closes: window_time is behind that."""
    windows = "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND)"
    query = f"SELECT k, COUNT(*) OVER (ORDER BY window_time) AS n FROM {windows}"
    with Stream(f"{SOURCE} CREATE TABLE out (k BIGINT, n BIGINT); INSERT INTO out {query}", parallelism=1) as stream:
        stream.batch("t", [(1, 0, "2026-01-01 10:00:01.0004"), (2, 0, "2026-01-01 10:00:00.5")])
        stream.batch("t", [(3, 0, "2026-01-01 10:00:05.0002")])  # the watermark is at 10:00:03
        assert stream.rows() == [(2, 1)]
        stream.finish()
        assert sorted(stream.rows()) == [(1, 2), (2, 1), (3, 3)]
        assert stream.query("SELECT sum(late_rows) FROM sqlstream.operators") == [(0,)]


def test_a_batch_reads_only_partitions_that_it_has_rows_of() -> None:
    """Partial results of other keys are not written again: what a batch adds to the state follows its keys."""
    query = (
        "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY ts) AS s, LAG(x) OVER (PARTITION BY k ORDER BY ts) AS l FROM t"
    )
    with Stream(
        f"{SOURCE} CREATE TABLE out (k BIGINT, s BIGINT, l BIGINT); INSERT INTO out {query}", parallelism=1
    ) as stream:
        stream.batch("t", [(n, 1, "2026-01-01 10:00:00") for n in range(1000)])
        stream.batch("t", [(1, 1, "2026-01-01 10:00:10"), (1, 1, "2026-01-01 10:00:05")])
        stream.batch("t", [(1, 1, "2026-01-01 10:00:20")])
        [manifest] = stream.runs["out"].batches.manifests.values()
        tables = Manifest.from_json(manifest).tables
        assert stream.query("SELECT state_rows FROM sqlstream.operators") == [(2001,)]
        # Of the last batch: what the one key's rows were before, and are after it.
        assert sum(s.rows for table in ("last", "totals") for s in tables[table] if s.first_batch >= 4) == 4
