"""Joins as of an event time: what has left is DuckDB's answer over all that was not late, up to the watermark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sqlstream.testing import Stream
from tests.properties.examples import examples
from tests.properties.model import Bag, _text, bag, connection, emitted, limits
from tests.properties.strategies import RESTART, Restart

pytestmark = pytest.mark.slow


# What a row of the table of changes does, k, x, s, and the time in microseconds; rows of other tables are only added.
Row = tuple[str, int | None, int | None, str | None, int]
Batch = dict[str, list[Row]]
Kind = Literal["JOIN", "LEFT JOIN"]
Form = Literal["table", "changes", "newest"]
CONDITIONS = ("", "", " AND v.x > p.x", " AND (v.x IS NULL OR p.s = 'a')")


@dataclass(frozen=True)
class Query:
    """A join of rows p with versions v, which are a table, a table of changes, or the newest rows of a stream."""

    kind: Kind
    form: Form
    keys: tuple[str, ...]
    values: tuple[str, ...]
    condition: str

    @property
    def on(self) -> str:
        pairs = zip(self.values, self.keys, strict=True)
        return " AND ".join(f"p.{value} = v.{key}" for value, key in pairs) + self.condition

    def script(self, delays: Sequence[int]) -> str:
        marks = [f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' MICROSECOND" for delay in delays]
        key, keys = f", PRIMARY KEY ({', '.join(self.keys)}) NOT ENFORCED", ", ".join(self.keys)
        columns = "k BIGINT, x BIGINT, s STRING, ts TIMESTAMP"
        newest = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY ts DESC) AS n FROM b"
        options = "'connector' = 'filesystem', 'format' = 'parquet', 'path' = 'b', 'changelog.op-column' = 'op'"
        versions = {
            "table": f"CREATE TABLE v ({columns}, {marks[1]}{key})",
            "changes": f"CREATE TABLE v (op STRING, {columns}, {marks[1]}{key}) WITH ({options})",
            "newest": f"CREATE TABLE b ({columns}, {marks[1]}); CREATE VIEW v AS SELECT * FROM ({newest}) WHERE n = 1",
        }[self.form]
        out = "k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, vk BIGINT, vx BIGINT, vs STRING, vts TIMESTAMP"
        shown = "p.k, p.x, p.s, p.ts, v.k, v.x, v.s, v.ts"
        join = f"SELECT {shown} FROM p {self.kind} v FOR SYSTEM_TIME AS OF p.ts ON {self.on}"
        return f"CREATE TABLE p ({columns}, {marks[0]}); {versions}; CREATE TABLE out ({out}); INSERT INTO out {join}"

    @property
    def answer(self) -> str:
        """The query over tables p and v with all rows: every version in question, of which the one that counts is kept."""
        one = f"PARTITION BY {', '.join(self.keys)}, ts ORDER BY number DESC"
        versions = f"SELECT * FROM v WHERE op <> 'B' QUALIFY row_number() OVER ({one}) = 1"
        same = " AND ".join(f"p.{value} = v.{key}" for value, key in zip(self.values, self.keys, strict=True))
        found = (
            f"SELECT p.k, p.x, p.s, p.ts, v.k AS vk, v.x AS vx, v.s AS vs, v.ts AS vts, "
            f"coalesce(v.op IN ('I', 'U'){self.condition}, false) AS matched FROM p LEFT JOIN ({versions}) v "
            f"ON {same} AND v.ts <= p.ts QUALIFY row_number() OVER (PARTITION BY p.number ORDER BY v.ts DESC NULLS LAST) = 1"
        )
        if self.kind == "JOIN":
            return f"SELECT * EXCLUDE (matched) FROM ({found}) WHERE matched"
        shown = ", ".join(f"CASE WHEN matched THEN {c} END AS {c}" for c in ("vk", "vx", "vs", "vts"))
        return f"SELECT k, x, s, ts, {shown} FROM ({found})"


@st.composite
def queries(draw: st.DrawFn) -> Query:
    keys, values = draw(st.sampled_from([(("k",), ("k",)), (("k", "s"), ("k", "s")), (("k",), ("x",))]))
    kind: Kind = draw(st.sampled_from(get_args(Kind)))
    form: Form = draw(st.sampled_from(get_args(Form)))
    return Query(kind, form, keys, values, draw(st.sampled_from(CONDITIONS)))


numbers = st.sampled_from([0, 0, 0, 1, 2, None])
texts = st.sampled_from(["a", "a", "a", "b", None])
kinds = st.sampled_from("IIUUBDD")
# Few, and round, so that rows meet versions, and each other; every batch brings later ones.
times = st.one_of(*[st.integers(-2, 3).map(lambda n: n * 1_000_000)] * 3, st.integers(-2_000_000, 3_000_000))
rows = st.lists(st.tuples(kinds, numbers, numbers, texts, times), min_size=2, max_size=9)
steps = st.one_of(*[st.fixed_dictionaries({"p": rows, "v": rows})] * 4, st.just(RESTART))


def later(step: Batch, number: int) -> Batch:
    """Return the batch of a number with times that follow those of the batches before."""
    base = 1_767_261_600_000_000 + number * 2_000_000
    return {table: [(*row[:4], row[4] + base) for row in came] for table, came in step.items()}


@dataclass
class Model:
    """What was not behind the watermark when it came, and the watermark: both in the order in which they came."""

    query: Query
    delays: dict[str, int]
    accepted: Batch = field(default_factory=lambda: {"p": [], "v": []})
    late: Batch = field(default_factory=lambda: {"p": [], "v": []})
    marks: dict[str, int] = field(default_factory=dict)

    @property
    def watermark(self) -> int | None:
        return min(self.marks.values()) if len(self.marks) == 2 else None

    def batch(self, batch: Batch) -> None:
        before = self.watermark
        for table, came in batch.items():
            for row in came:
                (self.late if before is not None and row[4] < before else self.accepted)[table].append(row)
                mark = (row[4] - self.delays[table]) // 1000 * 1000
                self.marks[table] = max(self.marks.get(table, mark), mark)

    def answer(self, up_to: int | None) -> Bag:
        con = connection()
        for table, came in self.accepted.items():
            columns = "number INTEGER, op VARCHAR, k BIGINT, x BIGINT, s VARCHAR, ts TIMESTAMP"
            con.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns})")
            for number, row in enumerate(came):
                con.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, make_timestamp(?))", [number, *row])
        if self.query.form != "changes":
            con.execute("UPDATE v SET op = 'I'")
        before = "" if up_to is None else f" WHERE ts < make_timestamp({up_to})"
        return bag(con.execute(f"SELECT * FROM ({self.query.answer}){before}").fetchall())

    def reaching(self, rows: Batch) -> Iterator[tuple[str, Row]]:
        """Yield those of some rows that are sent to the operator."""
        for table, columns in (("p", self.query.values), ("v", self.query.keys)):
            for row in rows[table]:
                known = all(row["_kxs".index(c)] is not None for c in columns)
                if (known or (table == "p" and self.query.kind == "LEFT JOIN")) and (
                    row[0] != "B" or table == "p" or self.query.form != "changes"
                ):
                    yield table, row

    def kept(self) -> dict[str, int]:
        """Return how many rows and versions there must be in the state."""
        mark = self.watermark
        found = {"p": 0, "v": 0}
        newest: dict[tuple[object, ...], Row] = {}
        for table, row in self.reaching(self.accepted):
            if mark is None or row[4] >= mark:
                found[table] += 1
            elif table == "v":
                key = tuple(row["_kxs".index(c)] for c in self.query.keys)
                if key not in newest or newest[key][4] <= row[4]:
                    newest[key] = row
        there = [r for r in newest.values() if r[0] in "IU" or self.query.form != "changes"]
        return {**found, "v": found["v"] + len(there)}


def fed(query: Query, batch: Batch) -> dict[str, list[tuple[object, ...]]]:
    """Return a batch's rows as the stream takes them."""
    table = "b" if query.form == "newest" else "v"
    versions: list[tuple[object, ...]] = [
        (*r[:4], _text(r[4])) if query.form == "changes" else (*r[1:4], _text(r[4])) for r in batch["v"]
    ]
    return {"p": [(*r[1:4], _text(r[4])) for r in batch["p"]], table: versions}


@examples(20)
@given(
    queries(),
    st.lists(steps, min_size=2, max_size=6),
    st.tuples(*[st.sampled_from([0, 1_000_000, 3_000_000])] * 2),
    st.integers(1, 3),
    st.booleans(),
)
def test_rows_leave_with_the_version_of_their_time(
    query: Query, history: list[Batch | Restart], delays: tuple[int, int], parallelism: int, small: bool
) -> None:
    model = Model(query, {"p": delays[0], "v": delays[1]})
    with limits(small=small), Stream(query.script(delays), parallelism=parallelism) as stream:
        for number, step in enumerate(history):
            if isinstance(step, Restart):
                stream.restart()
                continue
            batch = later(step, number)
            model.batch(batch)
            stream.batches(fed(query, batch))
            if model.watermark is not None:
                assert emitted(stream) == model.answer(model.watermark)
            sides = {side: stream.query(f"SELECT count(*) FROM state.out.join_1_{side}")[0][0] for side in "pv"}
            assert sides == model.kept()
        stream.finish()
        assert emitted(stream) == model.answer(None)
        late = stream.query("SELECT sum(late_rows) FROM sqlstream.operators")
        assert late == [(len(list(model.reaching(model.late))),)] or not history
        event(query.form)
