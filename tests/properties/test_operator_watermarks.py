"""Jobs of several sources, of which any may be silent, beside a plain model of watermarks that flow along the edges of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples

pytestmark = pytest.mark.slow

BASE = datetime(2026, 1, 1, 12)
MINUTE, MILLISECOND = timedelta(minutes=1), timedelta(milliseconds=1)
SOURCES = ("a", "b", "c")
# The source that some statements join for its rows alone.
NAMES = "names"
# A row: its time, and a number.
Row = tuple[datetime, int]
Rows = Sequence[Row]
Marks = Mapping[str, datetime | None]


@dataclass
class Source:
    """A table. Its watermark is the time of its newest row."""

    name: str

    def sql(self) -> str:
        return self.name

    def parts(self) -> Iterator[str]:
        """Yield the common table expressions below, and its own."""
        yield from ()

    def windows(self) -> Iterator[Windows]:
        """Yield the windows in it."""
        yield from ()

    def mark(self, marks: Marks) -> datetime | None:
        """Return its watermark, from those of the tables."""
        return marks[self.name]

    def step(self, arrived: Mapping[str, Rows], marks: Marks) -> list[tuple[Row, bool]]:
        """Return the rows that leave it in a batch, each with whether it can be late; `marks` are those before the batch."""
        return [(row, True) for row in arrived.get(self.name, ())]


@dataclass
class Both:
    """UNION ALL of two inputs: its watermark is the least of theirs."""

    first: Relation
    second: Relation
    name: str = ""

    def sql(self) -> str:
        return self.name

    def parts(self) -> Iterator[str]:
        yield from (*self.first.parts(), *self.second.parts())
        yield f"{self.name} AS (SELECT ts, n FROM {self.first.sql()} UNION ALL SELECT ts, n FROM {self.second.sql()})"

    def windows(self) -> Iterator[Windows]:
        yield from (*self.first.windows(), *self.second.windows())

    def mark(self, marks: Marks) -> datetime | None:
        return least(self.first.mark(marks), self.second.mark(marks))

    def step(self, arrived: Mapping[str, Rows], marks: Marks) -> list[tuple[Row, bool]]:
        return [*self.first.step(arrived, marks), *self.second.step(arrived, marks)]


@dataclass
class Windows:
    """The sum of n in windows of some minutes: emitted when the watermark of the input passes the end, and then passed on."""

    below: Relation
    minutes: int
    name: str = ""
    open: dict[datetime, int] = field(default_factory=dict)
    late: int = 0

    def sql(self) -> str:
        return self.name

    def parts(self) -> Iterator[str]:
        yield from self.below.parts()
        windows = f"TUMBLE(TABLE {self.below.sql()}, DESCRIPTOR(ts), INTERVAL '{self.minutes}' MINUTE)"
        yield (
            f"{self.name} AS (SELECT window_time AS ts, CAST(SUM(n) AS BIGINT) AS n FROM {windows}"
            " GROUP BY window_start, window_end, window_time)"
        )

    def windows(self) -> Iterator[Windows]:
        yield from (*self.below.windows(), self)

    def mark(self, marks: Marks) -> datetime | None:
        return self.below.mark(marks)

    def step(self, arrived: Mapping[str, Rows], marks: Marks) -> list[tuple[Row, bool]]:
        mark, size = self.mark(marks), self.minutes * MINUTE
        for (time, n), may_be_late in self.below.step(arrived, marks):
            end = time - (time - BASE) % size + size
            if may_be_late and mark is not None and end <= mark:
                self.late += 1
            else:
                self.open[end] = self.open.get(end, 0) + n
        due = sorted(end for end in self.open if mark is not None and end <= mark)
        return [((end - MILLISECOND, self.open.pop(end)), False) for end in due]


Relation = Source | Both | Windows


@dataclass
class Statement:
    """An INSERT of a relation; if it is `named`, joined with the names by number, whatever their times are."""

    top: Relation
    named: bool
    table: str = ""
    rows: list[Row] = field(default_factory=list)
    names: list[int] = field(default_factory=list)

    def sql(self) -> str:
        rows, parts = self.top.sql(), ", ".join(self.top.parts())
        selected = f"SELECT {rows}.ts, {rows}.n FROM {rows}"
        join = f" JOIN {NAMES} ON {rows}.n % 3 = {NAMES}.n" if self.named else ""
        return f"INSERT INTO {self.table} {f'WITH {parts} ' if parts else ''}{selected}{join};"

    def step(self, arrived: Mapping[str, Rows], marks: Marks) -> None:
        self.rows += [row for row, _ in self.top.step(arrived, marks)]
        self.names += [n for _, n in arrived.get(NAMES, ())]

    @property
    def result(self) -> Counter[Row]:
        if not self.named:
            return Counter(self.rows)
        return Counter((time, n) for time, n in self.rows for name in self.names if n % 3 == name)


def least(*marks: datetime | None) -> datetime | None:
    known = [mark for mark in marks if mark is not None]
    return min(known) if len(known) == len(marks) else None


def numbered(statements: Sequence[Statement]) -> Sequence[Statement]:
    """Give all parts of statements names of their own."""
    number = 0

    def visit(relation: Relation) -> None:
        nonlocal number
        match relation:
            case Windows():
                visit(relation.below)
            case Both():
                visit(relation.first)
                visit(relation.second)
            case Source():
                return
        number += 1
        relation.name = f"r{number}"

    for place, statement in enumerate(statements):
        visit(statement.top)
        statement.table = f"o{place}"
    return statements


TABLES = st.builds(Source, st.sampled_from(SOURCES))
RELATIONS: st.SearchStrategy[Relation] = st.recursive(
    st.builds(Windows, TABLES, st.sampled_from((1, 2))),
    lambda below: st.one_of(
        st.builds(Windows, st.builds(Both, st.one_of(TABLES, below), TABLES), st.sampled_from((1, 2, 4))),
        st.builds(Windows, below, st.sampled_from((2, 4))),
    ),
    max_leaves=3,
)
STATEMENTS = st.lists(st.builds(Statement, RELATIONS, st.booleans()), min_size=1, max_size=3).map(numbered)
TIMES = st.integers(0, 12 * 60).map(lambda seconds: BASE + timedelta(seconds=seconds))
ROWS = st.lists(st.tuples(TIMES, st.integers(0, 5)), min_size=1, max_size=4)
# What comes in a batch, by table; a number restarts the job with so many tasks.
STEPS = st.lists(
    st.one_of(st.dictionaries(st.sampled_from((*SOURCES, NAMES)), ROWS, min_size=1, max_size=2), st.integers(1, 3)),
    min_size=1,
    max_size=8,
)


@examples(200)
@given(STATEMENTS, STEPS)
def test_watermarks_flow_along_the_edges(
    statements: Sequence[Statement], steps: Sequence[dict[str, list[Row]] | int]
) -> None:
    tables = "".join(
        f"CREATE TABLE {name} (ts TIMESTAMP(3), n BIGINT, WATERMARK FOR ts AS ts);" for name in (*SOURCES, NAMES)
    )
    sinks = "".join(f"CREATE TABLE {s.table} (ts TIMESTAMP(3), n BIGINT);" for s in statements)
    body = "".join(s.sql() for s in statements)
    marks: dict[str, datetime | None] = dict.fromkeys((*SOURCES, NAMES))
    read = {source.name for one in statements for source in tables_of(one)}
    has_run = False
    with Stream(f"{tables}{sinks}EXECUTE STATEMENT SET BEGIN {body} END;") as stream:
        for step in steps:
            if isinstance(step, int):
                stream.restart(step)
                continue
            stream.batches(step)
            for one in statements:
                one.step(step, marks)
            for name, rows in step.items():
                if name in read:
                    marks[name] = max([time for time, _ in rows] + ([before] if (before := marks[name]) else []))
            for one in statements:
                one.step({}, marks)
                assert Counter(stream.query(f"FROM {one.table}")) == one.result
            windows = [w for one in statements for w in one.top.windows()]
            shown = stream.query(
                "SELECT operator, watermark, late_rows FROM sqlstream.operators WHERE len(waits_for) > 0"
            )
            has_run = has_run or any(name in read for name in step)
            if has_run:
                assert sorted(shown) == sorted((w.name, w.mark(marks), w.late) for w in windows)
        assert not has_run or stream.verify()
        stream.finish()
        for one in statements:
            one.step({}, dict.fromkeys(marks, datetime.max))
            assert Counter(stream.query(f"FROM {one.table}")) == one.result
        assert stream.verify()


def tables_of(statement: Statement) -> Iterator[Source]:
    """Yield the tables that a statement reads."""
    pending = [statement.top]
    while pending:
        match pending.pop():
            case Source() as source:
                yield source
            case Both(first, second):
                pending += [first, second]
            case Windows(below):
                pending.append(below)
    if statement.named:
        yield Source(NAMES)
