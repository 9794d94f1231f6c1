"""A job of each kind of operator over the same rows, with windows that close, keys that expire and rows that are late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from sqlstream import Context, ListState, Row, ValueState, process, state
from sqlstream.jobs.savepoints.savepoint_folders import take
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse

TABLES = """
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE);
CREATE TABLE u (k STRING, w INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE);
"""
WINDOWED = (
    "SELECT {hint} k, window_start, window_end, COUNT(*) AS n, SUM(v) AS s FROM {table} "
    "GROUP BY k, window_start, window_end"
)
HOURS = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
SESSIONS = "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTE)"
TOP = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k{also} ORDER BY v DESC) AS rn FROM {table}) WHERE rn <= 2"
TTL = "/*+ STATE_TTL('t' = '10 s') */"


@process
class Remembers:
    """Keeps the rows of a key until half an hour has passed since the last one."""

    total: ValueState[int] = state()
    seen: ListState[int] = state()

    def process(self, ctx: Context, row: Row) -> None:
        self.total.value = (self.total.value or 0) + int(row.v)
        self.seen.append(int(row.v))
        ctx.timers.at(ctx.event_time + timedelta(minutes=30), "end")

    def on_timer(self, ctx: Context) -> Iterator[int]:
        yield self.total.value or 0
        ctx.clear()


# The SELECT of the operator `o`, by kind.
KINDS: Mapping[str, str] = {
    "tumble": WINDOWED.format(hint="", table=HOURS),
    "hop": WINDOWED.format(hint="", table="HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR)"),
    "late": WINDOWED.format(hint="/*+ ALLOWED_LATENESS('20 min'), LATE_ROWS('missed') */", table=HOURS),
    "session": WINDOWED.format(hint="", table=SESSIONS),
    "window rank": TOP.format(also=", window_start, window_end", table=HOURS),
    "group": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k",
    "group ttl": f"SELECT {TTL} k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k",
    "rank ttl": TOP.format(also="", table="t").replace("SELECT *,", f"SELECT {TTL} *,"),
    "over": "SELECT k, v, ts, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM t",
    "row windows": "SELECT * FROM TUMBLE_ROWS(TABLE t PARTITION BY k, DESCRIPTOR(ts), 2)",
    "join": "SELECT t.k, v, w FROM t LEFT JOIN u ON t.k = u.k",
    "join ttl": "SELECT /*+ STATE_TTL('t' = '10 s', 'u' = '10 s') */ t.k, v, w FROM t JOIN u ON t.k = u.k",
    "interval join": "SELECT t.k, v, w FROM t JOIN u ON t.k = u.k AND u.ts BETWEEN t.ts AND t.ts + INTERVAL '10' MINUTE",
    "process": "SELECT * FROM remembers(TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts))",
}


@contextmanager
def job_of(kind: str) -> Iterator[Stream]:
    """Run a job of a kind, `result`, to its last version."""
    script = f"{TABLES}WITH o AS ({KINDS[kind]}) SELECT * FROM o"
    with Stream(script, functions=[Remembers]) as stream:
        feed(stream)
        yield stream


def feed(stream: Stream) -> None:
    """Feed the rows, and take a savepoint, `middle`, on the way."""
    day = "2024-01-01"
    both = len({s.table.name for run in stream.runs.values() for s in run.job.plan.scans}) > 1

    def batch(*rows: tuple[str, int, str]) -> None:
        stream.advance(4_000)
        given = [(k, v, f"{day} {time}") for k, v, time in rows]
        stream.batches({"t": given, "u": given[::2]} if both else {"t": given})

    batch(("a", 1, "10:00"), ("b", 2, "10:01"), ("gone", 9, "10:02"))
    batch(("a", 3, "10:05"), ("c", 7, "10:20"))
    take(Warehouse(stream.warehouse), "result", "middle")
    batch(("a", 5, "10:55"), ("b", 1, "11:10"))
    batch(("b", 4, "10:30"), ("d", 1, "11:20"))
    batch(("c", 2, "11:40"), ("a", 8, "12:10"))


def versions(stream: Stream) -> list[int]:
    return [v for (v,) in stream.query("SELECT version FROM sqlstream.snapshots ORDER BY 1")]


def rows_at(stream: Stream, view: str, version: int) -> Counter[str]:
    """Return the rows of a view at a version, as a plain query finds them."""
    return texts(stream, f'SELECT _row_ FROM state.result."{view}" AT (VERSION => {version}) _row_')


def texts(stream: Stream, sql: str) -> Counter[str]:
    """Return the values of a query's only column, as texts."""
    return Counter(str(value) for (value,) in stream.query(sql))
