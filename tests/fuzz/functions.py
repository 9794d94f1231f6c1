"""Process functions whose rows DuckDB can tell, and the queries that say the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlstream import Context, MapState, Row, ValueState, process, state

# No row comes just then: times are whole seconds.
GAP = timedelta(seconds=9.5)


@dataclass
class Number:
    """The number of a row of its key in the order of time, and how many texts the key has had."""

    n: int
    texts: int
    text: str | None


@process(name="numbered")
class Numbered:
    """Numbers the rows of a key."""

    n: ValueState[int] = state()
    seen: MapState[str, int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Number]:
        word = "-" if row.s is None else row.s
        self.seen[word] = self.seen.get(word, 0) + 1
        self.n.value = (self.n.value or 0) + 1
        yield Number(self.n.value, len(self.seen), row.s)


@process(name="quiet")
class Quiet:
    """Says how many rows a key had when it has fallen quiet."""

    n: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> None:
        assert ctx.event_time is not None
        self.n.value = (self.n.value or 0) + 1
        ctx.timers.at(ctx.event_time + GAP, "quiet")

    def on_timer(self, ctx: Context) -> Iterator[int]:
        yield self.n.value or 0
        ctx.clear()


@process(name="once")
class Once:
    """Passes on the first of the rows of a key that have the same text."""

    seen: MapState[str, bool] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        if row.s is not None and row.s not in self.seen:
            self.seen[row.s] = True
            yield row.s


FUNCTIONS: dict[str, Callable[..., Any]] = {"numbered": Numbered, "quiet": Quiet, "once": Once}
IN_ORDER = "(TABLE u PARTITION BY k ORDER BY ts, on_time => DESCRIPTOR(ts))"
_BEGINS = f"coalesce(ts > lag(ts) OVER (PARTITION BY k ORDER BY ts) + INTERVAL '{GAP.total_seconds()}' SECOND, true)"
_SESSIONS = f"(SELECT k, sum(begins::INT) OVER (PARTITION BY k ORDER BY ts) AS quiet FROM (SELECT *, {_BEGINS} AS begins FROM u))"
# Calls as queries have them, and relations with the same columns.
AS_QUERIES = {
    f"numbered{IN_ORDER}": "(SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts) AS n,"
    " count(DISTINCT coalesce(s, '-')) OVER (PARTITION BY k ORDER BY ts) AS texts, s AS text FROM u)",
    f"quiet{IN_ORDER}": f'(SELECT k, count(*) AS "value" FROM {_SESSIONS} GROUP BY k, quiet)',
    "once(TABLE t PARTITION BY k)": '(SELECT DISTINCT k, s AS "value" FROM t WHERE s IS NOT NULL)',
}


def functions_of(sql: str) -> list[Callable[..., Any]]:
    """Return the functions that a query calls."""
    return [function for name, function in FUNCTIONS.items() if re.search(rf"\b{name}\(", sql)]
