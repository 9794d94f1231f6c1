"""What joins of rows within an interval should give: which rows are late, which match, and which are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.model import connection
from tests.properties.strategies import RESTART, Batch, Restart, Row, Step

SECOND = 1_000_000
BASE = 1_767_261_600 * SECOND  # 2026-01-01 10:00
FOREVER = 2**62
# Conditions beside keys and times, with whether they are true for a pair.
Test = Callable[[Row, Row], bool]


def _less(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and left < right


EXTRA: Mapping[str, Test] = {
    "true": lambda a, b: True,
    "l.x < r.x": lambda a, b: _less(a[1], b[1]),
    "l.x > 0": lambda a, b: _less(0, a[1]),
    "r.x > 0": lambda a, b: _less(0, b[1]),
    "(l.s = 'a' OR r.s = 'a')": lambda a, b: "a" in (a[2], b[2]),
}
KEYS: Mapping[str, Test] = {
    "l.k = r.k": lambda a, b: a[0] is not None and a[0] == b[0],
    "l.k = r.k AND r.s = l.s": lambda a, b: None not in (a[0], a[2]) and a[0] == b[0] and a[2] == b[2],
    "l.k + 1 = r.x": lambda a, b: a[0] is not None and a[0] + 1 == b[1],
    "true": lambda a, b: True,
}
# The columns of each side that must not be NULL for a row to match.
KEYED = {
    "l.k = r.k": ((0,), (0,)),
    "l.k = r.k AND r.s = l.s": ((0, 2), (0, 2)),
    "l.k + 1 = r.x": ((0,), (1,)),
    "true": ((), ()),
}
# Of a join: which sides' rows come without a match, and before which sides a condition on one of them can be tested.
KINDS = {
    "JOIN": ((), (0, 1)),
    "LEFT JOIN": ((0,), (1,)),
    "RIGHT JOIN": ((1,), (0,)),
    "FULL JOIN": ((0, 1), ()),
    "SEMI JOIN": ((), (0, 1)),
    "ANTI JOIN": ((0,), (1,)),
}


@dataclass(frozen=True)
class Interval:
    """A join of tables as l and r: the time of r is from `low` to `high` (microseconds) after that of l, strictly or not."""

    kind: str
    low: int
    high: int
    strict: tuple[bool, bool]
    spelling: int
    keys: str
    extra: str

    @property
    def before(self) -> int:
        return -self.low - self.strict[0]

    @property
    def after(self) -> int:
        return self.high - self.strict[1]

    @property
    def delay(self) -> int:
        return max(0, self.before, self.after)

    @property
    def preserved(self) -> tuple[int, ...]:
        return KINDS[self.kind][0]

    def wait(self, side: int) -> int:
        return max(0, self.before if side else self.after)

    @property
    def stay(self) -> tuple[int, int]:
        both = self.before + self.after
        return max(both, self.wait(0)), max(both, self.wait(1))

    def on(self, left: str = "l.ts", right: str = "r.ts") -> str:
        more, less = ">" if self.strict[0] else ">=", "<" if self.strict[1] else "<="
        low, high = _length(self.low), _length(self.high)
        match self.spelling:
            case 0 if self.strict == (False, False):
                times = f"{right} BETWEEN {left} {low} AND {left} {high}"
            case 1:
                flipped = more.replace(">", "<"), less.replace("<", ">")
                times = (
                    f"{left} {flipped[0]} {right} {_length(-self.low)} AND {right} {_length(-self.high)} {less} {left}"
                )
            case 2:
                times = f"{right} - {left} {more} {_alone(self.low)} AND {right} - {left} {less} {_alone(self.high)}"
            case 3:
                times = f"{left} {low} {more.replace('>', '<')} {right} AND ({left} {high} {less.replace('<', '>')} {right})"
            case _:
                times = f"{right} {more} {left} {low} AND {right} {less} {left} {high}"
        return f"{self.keys} AND {times} AND {self.extra}"

    def matches(self, left: Row, right: Row) -> bool:
        apart = (right[3] or 0) - (left[3] or 0)
        near = -self.before <= apart <= self.after
        return near and KEYS[self.keys](left, right) and EXTRA[self.extra](left, right)

    def reaches(self, row: Row, side: int) -> bool:
        """Tell whether a row comes to the join: what cannot match does not, where rows without a match are not wanted."""
        if side in KINDS[self.kind][1] and self.extra == ("l.x > 0", "r.x > 0")[side] and not _less(0, row[1]):
            return False
        return side in self.preserved or all(row[i] is not None for i in KEYED[self.keys][side])


def _length(micros: int) -> str:
    return f"{'-' if micros < 0 else '+'} INTERVAL '{abs(micros)}' MICROSECOND"


def _alone(micros: int) -> str:
    return f"{'-' if micros < 0 else ''}INTERVAL '{abs(micros)}' MICROSECOND"


@st.composite
def intervals(draw: st.DrawFn, kinds: Iterable[str] = KINDS) -> Interval:
    micros = st.one_of(st.integers(-6, 6).map(SECOND.__mul__), st.integers(-6000, 6000).map((1000).__mul__))
    low, high = sorted((draw(micros), draw(micros)))
    strict = draw(st.tuples(st.booleans(), st.booleans())) if high - low > 2 else (False, False)
    return Interval(
        draw(st.sampled_from([*kinds])),
        *(low, high, strict, draw(st.integers(0, 4))),
        draw(st.sampled_from(["l.k = r.k", *KEYED])),
        draw(st.sampled_from(["true", *EXTRA])),
    )


@dataclass
class Times:
    """The watermark of a job over some tables, in whole milliseconds."""

    tables: tuple[str, ...]
    delays: Mapping[str, int]
    marks: dict[str, int] = field(default_factory=dict)

    @property
    def watermark(self) -> int | None:
        return min(self.marks.values()) if len(self.marks) == len(self.tables) else None

    def batch(self, step: Batch) -> None:
        for table in self.tables:
            found = [(row[3] - self.delays[table]) // 1000 * 1000 for row in step.of(table) if row[3] is not None]
            if found:
                self.marks[table] = max(*found, self.marks.get(table, 0))

    def on_time(self, step: Batch, table: str, delay: int = 0, end: Callable[[int], int] = lambda ts: ts) -> list[Row]:
        """Return a table's rows that are not late for an operator whose watermark is so far behind."""
        mark = None if self.watermark is None else self.watermark - delay
        return [row for row in step.of(table) if row[3] is not None and (mark is None or end(row[3]) > mark)]


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Draw batches of tables a and b whose times move on, out of order, with restarts between them."""
    now, steps = BASE, list[Step]()
    near = st.one_of(
        st.none(), *[st.integers(-8, 4).map(SECOND.__mul__)] * 3, st.integers(-8000, 4000).map((1000).__mul__)
    )
    # A millisecond before the end of a window its watermark may be passed, and the window not.
    near = st.one_of(near, near, st.integers(-8, 4).map(lambda n: n * SECOND - 1000))
    keys, values = st.sampled_from([None, 1, 1, 2]), st.sampled_from([None, -1, 1, 2, 3])
    rows = st.lists(st.tuples(keys, values, st.sampled_from([None, "a", "b"]), near), max_size=4)
    for ahead in draw(st.lists(st.integers(0, 6), min_size=2, max_size=9)):
        now += ahead * SECOND
        given = {t: tuple((*r[:3], None if r[3] is None else now + r[3]) for r in draw(rows)) for t in "ab"}
        steps.append(Batch(tuple((t, r) for t, r in given.items() if r)))
        if draw(st.integers(0, 4)) == 0:
            steps.append(RESTART)
    return steps


delays = st.fixed_dictionaries({t: st.sampled_from([0, 2 * SECOND, 10 * SECOND]) for t in "ab"})


def stream_of(select: str, columns: str, delays: Mapping[str, int], parallelism: int) -> Stream:
    declared = "".join(
        f"CREATE TABLE {t} (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delays[t]}' MICROSECOND);"
        for t in "ab"
    )
    return Stream(f"{declared} CREATE TABLE out ({columns}); INSERT INTO out {select}", parallelism=parallelism)


def feed(stream: Stream, step: Step, tables: Iterable[str]) -> None:
    """Run one step; rows of tables that the query does not read are left out."""
    if isinstance(step, Restart):
        stream.restart()
        return
    given = {t: [(*row[:3], text(row[3])) for row in step.of(t)] for t in tables if step.of(t)}
    if given:
        stream.batches(given)


def text(micros: int | None) -> object:
    return connection().execute("SELECT make_timestamp(?)", [micros]).fetchall()[0][0]


def hold(tables: Mapping[str, Iterable[Row]]) -> None:
    """Let tables of DuckDB's hold some rows."""
    con = connection()
    for table, rows in tables.items():
        con.execute(f"CREATE OR REPLACE TEMP TABLE {table} (k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMP)")
        for row in rows:
            con.execute(f"INSERT INTO {table} VALUES (?, ?, ?, make_timestamp(?))", row)
