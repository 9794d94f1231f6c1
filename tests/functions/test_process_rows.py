"""Rows as what process functions keep and emit: Row, one dataclass for all, tuples; and states with defaults."""

# A ValueState may hold nothing, for mypy also where it has a default.
# mypy: disable-error-code="arg-type, misc, operator, union-attr"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from sqlstream import (
    Context,
    ListState,
    MapState,
    ReducingState,
    Row,
    SideOutput,
    ValueState,
    process,
    side_output,
    state,
    table,
)
from sqlstream.errors import BindError, JobError
from sqlstream.functions.process.declare import declare_process
from sqlstream.testing import ProcessHarness, Stream

T = 'CREATE TABLE t (k STRING, n INT, price DECIMAL(6, 2), "a b" STRING, tags ARRAY<STRING>);'
ROWS = [("a", 1, "1.50", "x", ["p"]), ("b", 2, "2.25", None, None), ("a", 3, None, "y", [])]


def emitted(
    function: type, call: str, columns: str, *batches: list[Any], tables: str = T, name: str = "t"
) -> list[Any]:
    """Return what a call emits for some batches, between which the job is restarted."""
    with Stream(
        f"{tables} CREATE TABLE out ({columns}); INSERT INTO out SELECT * FROM {call}", functions=[function]
    ) as stream:
        for batch in batches:
            stream.batch(name, batch)
            stream.restart()
        stream.finish()
        assert stream.verify("out")
        return sorted(stream.rows("out"), key=str)


@process
class Previous:
    """Emits the row before each."""

    last: ValueState[Row] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Row]:
        if self.last.value is not None:
            assert self.last.value.k == row.k
            yield self.last.value
        self.last.value = row


COLUMNS = 'k STRING, n INT, price DECIMAL(6, 2), "a b" STRING, tags ARRAY<STRING>'


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_row_is_kept_and_emitted_as_it_was(cut: int) -> None:
    from decimal import Decimal

    found = emitted(Previous, "previous(TABLE t PARTITION BY k)", COLUMNS, ROWS[:cut], ROWS[cut:])
    assert found == [("a", 1, Decimal("1.50"), "x", ["p"])]


def test_two_calls_over_tables_with_other_columns() -> None:
    script = """CREATE TABLE a (k INT, x INT); CREATE TABLE b (y STRING, k INT); CREATE TABLE oa (k INT, x INT);
    CREATE TABLE ob (k INT, y STRING); INSERT INTO oa SELECT * FROM previous(TABLE a PARTITION BY k);
    INSERT INTO ob SELECT * FROM previous(TABLE b PARTITION BY k)"""
    with Stream(script, functions=[Previous], parallelism=1) as stream:
        for number in (1, 2):
            stream.batches({"a": [(1, number)], "b": [(f"b{number}", 1)]})
        assert (stream.rows("oa"), stream.rows("ob")) == ([(1, 1)], [(1, "b1")])
        assert stream.query("SELECT k, last.x FROM state.oa.previous_1") == [(1, 2)]


@process
class Kept:
    """Keeps rows in states of all kinds, and emits them at the end; the first of each key in a side output."""

    rows: ListState[Row] = state()
    by_number: MapState[int, Row] = state()
    highest: ReducingState[Row] = state(reduce=lambda a, b: a if a.n >= b.n else b)
    first: SideOutput[Row] = side_output()

    def process(self, ctx: Context, row: Row) -> Iterator[Row]:
        if not self.rows:
            ctx.emit("first", row)
        self.rows.append(row)
        self.by_number[row.n] = row
        self.highest.add(row)
        if len(self.rows) == 2:
            yield from self.rows
            yield self.by_number[1]
            yield self.highest.value._replace(v="highest")


def test_rows_in_all_kinds_of_states_and_in_side_outputs() -> None:
    tables = "CREATE TABLE t (k INT, n INT, v STRING);"
    script = f"""{tables} CREATE TABLE out (k INT, n INT, v STRING); CREATE TABLE firsts (k INT, n INT, v STRING);
    CREATE VIEW f AS SELECT * FROM kept(TABLE t PARTITION BY k);
    EXECUTE STATEMENT SET BEGIN
      INSERT INTO out SELECT * FROM f; INSERT INTO firsts SELECT * FROM SIDE_OUTPUT(TABLE f, 'first');
    END"""
    with Stream(script, functions=[Kept]) as stream:
        stream.batch("t", [(7, 1, "one")])
        stream.restart()
        stream.batch("t", [(7, 5, "five")])
        assert sorted(stream.query("SELECT * FROM out")) == [
            (7, 1, "one"),
            (7, 1, "one"),
            (7, 5, "five"),
            (7, 5, "highest"),
        ]
        assert stream.query("SELECT * FROM firsts") == [(7, 1, "one")]


@dataclass
class Event:
    k: str
    n: int
    seen: datetime | None = None


@process
class Largest:
    """One dataclass is the row, the state and the result."""

    largest: ValueState[Event] = state()

    def process(self, ctx: Context, event: Event) -> Iterator[Event]:
        if self.largest.value is None or event.n > self.largest.value.n:
            self.largest.value = event
            yield event


@process
class Astray:
    def process(self, ctx: Context, event: Event) -> Iterator[Event]:
        yield Event("other", event.n)


class Text(NamedTuple):
    n: str
    k: str


@process
class Texted:
    def process(self, ctx: Context, event: Event) -> Iterator[Text]:
        yield Text(str(event.n), event.k)


EVENTS = "CREATE TABLE t (k STRING, n INT, seen TIMESTAMP(3));"


def test_one_dataclass_is_row_state_and_result() -> None:
    found = emitted(
        Largest,
        "largest(TABLE t PARTITION BY k)",
        "k STRING, n INT, seen TIMESTAMP(3)",
        [("a", 1, None), ("b", 2, "2026-01-01")],
        [("a", 3, None), ("b", 1, None), (None, 1, None)],
        tables=EVENTS,
    )
    assert found == [("a", 1, None), ("a", 3, None), ("b", 2, datetime(2026, 1, 1)), (None, 1, None)]


def test_a_partition_column_that_is_emitted_is_the_key() -> None:
    with pytest.raises(JobError, match="put 'other' into \"k\", the column of the key, which is 'a'"):
        emitted(
            Astray, "astray(TABLE t PARTITION BY k)", "k STRING, n INT, s TIMESTAMP(3)", [("a", 1, None)], tables=EVENTS
        )
    with pytest.raises(
        BindError, match='its result has two columns "n", a partition column and a column that it emits'
    ):
        emitted(Texted, "texted(TABLE t PARTITION BY n)", "n INT, k STRING", tables=EVENTS)


def test_a_harness_gives_rows_with_their_keys() -> None:
    with ProcessHarness(Largest, keys="k") as harness:
        assert harness.rows([{"k": "a", "n": 1, "seen": None}]) == [Event("a", 1)]
        assert harness.state("largest", key="a") == Event("a", 1)
    with ProcessHarness(Previous, keys="k", columns="k STRING, n INT") as harness:
        harness.rows([("a", 1)])
        [row] = harness.rows([("a", 2)])
        assert (row.k, row.n, harness.state("last")["a"].n) == ("a", 1, 2)
    with ProcessHarness(Pairs, keys="k", columns="n INT, k STRING") as harness:
        assert harness.rows([{"k": "a", "n": 1}, {"k": "a", "n": 2}]) == [("a", 1, 1), ("a", 2, 3)]
        assert harness.state("last", key="a") == (2, ("a", "a"))


@process
class Pairs:
    last: ValueState[tuple[int, tuple[str, ...]]] = state(default=(0, ()))
    seen: MapState[tuple[str, int], list[tuple[int, str | None]]] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[tuple[str, int, int]]:
        number, texts = self.last.value
        assert self.seen.get((row.k, number), [(0, None)])[0] == (number, None)
        self.last.value = (row.n, (*texts, row.k))
        self.seen[row.k, row.n] = [(row.n, None)]
        yield row.k, row.n, number + row.n


def test_tuples_are_kept_and_emitted() -> None:
    tables = "CREATE TABLE t (k STRING, n INT);"
    call, columns = "pairs(TABLE t PARTITION BY k)", "k STRING, a STRING, b BIGINT, c BIGINT"
    found = emitted(Pairs, call, columns, [("a", 1), ("b", 5)], [("a", 2)], tables=tables)
    assert found == [("a", "a", 1, 1), ("a", "a", 2, 3), ("b", "b", 5, 5)]


@process
class Short:
    def process(self, ctx: Context, row: Row) -> Iterator[tuple[str, int]]:
        yield (row.k,)


def test_a_tuple_of_another_length_is_refused() -> None:
    with pytest.raises(JobError, match=r"emitted \('a',\), a tuple of 1 values instead of 2"):
        emitted(Short, "short(TABLE t PARTITION BY k)", "k STRING, a STRING, b BIGINT", ROWS[:1])


@process
class Counted:
    n: ValueState[int] = state(default=0)
    texts: ValueState[list[str]] = state(default=[])
    limit: ValueState[int] = state(broadcast=True, default=2)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[int]:
        self.n.value += 1
        self.texts.value = [*self.texts.value, row.k]
        if self.n.value >= self.limit.value:
            yield len(self.texts.value)
            ctx.clear()

    @table(broadcast=True)
    def limits(self, ctx: Context, row: Row) -> None:
        self.limit.value = self.limit.value + row.more


def test_a_value_state_has_a_default() -> None:
    script = """CREATE TABLE t (k STRING); CREATE TABLE l (more INT); CREATE TABLE out (k STRING, n BIGINT);
    INSERT INTO out SELECT * FROM counted(TABLE t PARTITION BY k, TABLE l BROADCAST)"""
    with Stream(script, functions=[Counted]) as stream:
        stream.batch("t", [("a",), ("a",), ("b",)])
        assert stream.rows("out") == [("a", 2)]
        stream.batch("l", [(1,)])
        stream.restart()
        stream.batch("t", [("a",), ("a",), ("b",), ("b",)])
        assert sorted(stream.rows("out")) == [("a", 2), ("b", 3)]
        stream.batch("t", [("a",)])
        assert sorted(stream.rows("out")) == [("a", 2), ("a", 3), ("b", 3)]


def test_a_default_that_is_changed_in_place_is_a_copy() -> None:
    @process
    class Grown:
        texts: ValueState[list[str]] = state(default=[])

        def process(self, ctx: Context, row: Row) -> Iterator[int]:
            texts = self.texts.value
            texts.append(row.k)
            self.texts.value = texts
            yield len(texts)

    found = emitted(Grown, "grown(TABLE t PARTITION BY k)", "k STRING, n BIGINT", ROWS)
    assert found == [("a", 1), ("a", 2), ("b", 1)]


class Name(NamedTuple):
    k: str


def wrong(
    hint: Any = ValueState[int], result: Any = Iterator[int], row: Any = Row, vectorized: Any = False, **given: Any
) -> type:
    def run(self, ctx, row):  # type: ignore[no-untyped-def]
        yield 1

    run.__annotations__ = {"ctx": Context, "row": row, "return": result}
    made = type("Wrong", (), {"process": run, "x": state(**given), "__annotations__": {"x": hint}})
    made.x.name = "x"  # type: ignore[attr-defined]
    return process(vectorized=vectorized, emits=int if vectorized else None)(made)


def test_what_rows_and_defaults_cannot_be() -> None:
    for hint, default, reason in (
        (ValueState[int], "a", "the default of state .*, 'a', is no BIGINT"),
        (ListState[int], 1, "has a default"),
        (ValueState[Row], 1, "has a default"),
        (ReducingState[int], 1, "has a default|has no function reduce"),
    ):
        with pytest.raises(BindError, match=reason):
            declare_process(wrong(hint, default=default))
    with pytest.raises(BindError, match="has no usable type: Row has no SQL type"):
        declare_process(wrong(MapState[Row, int]))
    script = "CREATE TABLE o (k STRING, n BIGINT); INSERT INTO o SELECT * FROM wrong(TABLE t PARTITION BY k)"
    with pytest.raises(BindError, match='state "x" is a Row, but no method of a table gets one'):
        Stream(T + script, functions=[wrong(ValueState[Row], row=Name)])


@process
class Two:
    last: ValueState[Row] = state()

    @table
    def a(self, ctx: Context, row: Row) -> Iterator[Row]:
        yield row

    @table
    def b(self, ctx: Context, row: Row) -> Iterator[Row]:
        yield row


def test_rows_of_two_tables_are_of_the_same_columns() -> None:
    script = "".join(f"CREATE TABLE {name} (k INT, {other} INT);" for name, other in ("ax", "bx", "cy", ("out", "x")))
    with Stream(script, functions=[Two]) as stream:
        with pytest.raises(BindError, match="its tables have different columns"):
            stream.script("INSERT INTO out SELECT * FROM two(TABLE a PARTITION BY k, TABLE c PARTITION BY k)")
        stream.script("INSERT INTO out SELECT * FROM two(TABLE a PARTITION BY k, TABLE b PARTITION BY k)")
        stream.batches({"a": [(1, 1)], "b": [(1, 2)]})
        assert sorted(stream.rows("out")) == [(1, 1), (1, 2)]


@process
class Numbered:
    n: ValueState[int] = state(default=0)

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        assert not hasattr(row, "parity")
        self.n.value += 1
        yield self.n.value


@pytest.mark.parametrize(
    ("keys", "columns", "expected"),
    [
        ("n % 2 AS parity", "p INT, n BIGINT", [(0, 1), (1, 1), (1, 2)]),
        ("(n + 1) % 2", "p INT, n BIGINT", [(0, 1), (0, 2), (1, 1)]),
        ("(upper(k) AS upper, n % 2)", "k STRING, p INT, n BIGINT", [("A", 1, 1), ("A", 1, 2), ("B", 0, 1)]),
        ("(k, n > 1)", "k STRING, p BOOLEAN, n BIGINT", [("a", False, 1), ("a", True, 1), ("b", True, 1)]),
        ("t.k", "k STRING, n BIGINT", [("a", 1), ("a", 2), ("b", 1)]),
        ("1 AS one", "one INT, n BIGINT", [(1, 1), (1, 2), (1, 3)]),
        ("coalesce(k, 'x') AS key", "k STRING, n BIGINT", [("a", 1), ("a", 2), ("b", 1)]),
    ],
)
def test_keys_are_expressions(keys: str, columns: str, expected: list[Any]) -> None:
    assert emitted(Numbered, f"numbered(TABLE t PARTITION BY {keys})", columns, ROWS[:2], ROWS[2:]) == expected


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("random()", "PARTITION BY what differs whenever it is computed"),
        ("count(*)", "an aggregate is not allowed in PARTITION BY"),
        ("upper(k) AS n", 'PARTITION BY computes "n", but table "t" has a column of this name'),
        ("nothing + 1", 'column "nothing" does not exist in table "t"'),
        ("k.x", "a value of type VARCHAR has no fields"),
    ],
)
def test_what_keys_cannot_be(keys: str, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        emitted(Numbered, f"numbered(TABLE t PARTITION BY {keys})", "k STRING, n BIGINT")


@process
class RidesAndFares:
    """Takes rows of two tables one by one: without a state it needs no key."""

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[str]:
        yield f"ride {ride.taxi}"

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[str]:
        yield f"fare {fare.amount}"


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("call", ["TABLE rides, TABLE fares", "TABLE rides, TABLE (SELECT taxi AS amount FROM rides)"])
def test_two_tables_without_keys(call: str, parallelism: int) -> None:
    script = f"""CREATE TABLE rides (taxi INT); CREATE TABLE fares (amount DOUBLE, tip DOUBLE); CREATE TABLE out (what STRING);
    INSERT INTO out SELECT * FROM rides_and_fares({call})"""
    with Stream(script, functions=[RidesAndFares], parallelism=parallelism) as stream:
        stream.batches({"rides": [(n,) for n in range(9)], "fares": [(n, 0) for n in range(5)]})
        stream.restart(2)
        stream.batch("fares", [(9, 0)])
        rides = [(f"ride {n}",) for n in range(9)]
        fares = (
            [(f"fare {n}.0",) for n in (0, 1, 2, 3, 4, 9)] if "fares" in call else [(f"fare {n}",) for n in range(9)]
        )
        assert sorted(stream.rows()) == sorted(rides + fares)
        assert stream.verify()
