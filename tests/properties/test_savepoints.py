"""Whatever savepoints a job goes through, back, beside itself, elsewhere or over more tasks: DuckDB's answer over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.examples import examples
from tests.properties.model import Bag, bag
from tests.saved_streams import SavedStream

pytestmark = pytest.mark.slow

# The key, a number, and the second of the day.
Row = tuple[int, int, int]
TABLES = """
CREATE TABLE t (k BIGINT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR);
CREATE TABLE u (k BIGINT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR);
"""


@dataclass(frozen=True)
class Query:
    """A query as a stream and as a batch, and the columns of its result; `batch` is the same where that is left out."""

    columns: str
    stream: str
    batch: str = ""

    def insert(self, table: str) -> str:
        return f"CREATE TABLE {table} ({self.columns}); INSERT INTO {table} {self.stream}"

    def answer(self, rows: Rows) -> Bag:
        with duckdb.connect() as con:
            for name, given in rows.items():
                con.execute(f"CREATE TABLE {name} (k BIGINT, x BIGINT, ts TIMESTAMP)")
                for k, x, second in given:
                    con.execute(f"INSERT INTO {name} VALUES (?, ?, ?::TIMESTAMP)", [k, x, at(second)])
            return bag(con.execute(self.batch or self.stream).fetchall())


Rows = dict[str, list[Row]]
MINUTE = "time_bucket(INTERVAL '1' MINUTE, ts)"
QUERIES = {
    "group": Query(
        "k BIGINT, n BIGINT, x BIGINT, m BIGINT, d BIGINT",
        "SELECT k, count(*), sum(x)::BIGINT, max(x), count(DISTINCT x) FROM t GROUP BY k",
    ),
    "tumbling": Query(
        "k BIGINT, a TIMESTAMP(3), n BIGINT, x BIGINT",
        "SELECT k, window_start, count(*), sum(x)::BIGINT FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
        " GROUP BY k, window_start, window_end",
        f"SELECT k, {MINUTE}, count(*), sum(x)::BIGINT FROM t GROUP BY ALL",
    ),
    "session": Query(
        "k BIGINT, a TIMESTAMP(3), n BIGINT",
        "SELECT k, window_start, count(*) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' SECOND))"
        " GROUP BY k, window_start, window_end",
        "SELECT k, min(ts), count(*) FROM (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts) AS s FROM (SELECT *,"
        " coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > INTERVAL '30' SECOND, true)::INT AS begins FROM t))"
        " GROUP BY k, s",
    ),
    "top": Query(
        "k BIGINT, x BIGINT, r BIGINT",
        "SELECT k, x, r FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM t) WHERE r <= 2",
    ),
    "over": Query(
        "k BIGINT, x BIGINT, s BIGINT",
        "SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '50' SECOND PRECEDING AND CURRENT ROW)"
        "::BIGINT FROM t",
    ),
    "join": Query(
        "k BIGINT, x BIGINT, y BIGINT",
        "SELECT t.k, t.x, u.x FROM t LEFT JOIN u ON t.k = u.k",
    ),
    "interval join": Query(
        "k BIGINT, x BIGINT, y BIGINT",
        "SELECT t.k, t.x, u.x FROM t JOIN u ON t.k = u.k AND u.ts BETWEEN t.ts - INTERVAL '40' SECOND AND t.ts",
    ),
}


@dataclass(frozen=True)
class Batch:
    t: tuple[Row, ...]
    u: tuple[Row, ...]


@dataclass(frozen=True)
class Save:
    """Take a savepoint of a job, by its number; `outside` in a folder."""

    job: int
    outside: bool


@dataclass(frozen=True)
class GoBack:
    """Let the job of a savepoint, by its number, go back to it."""

    savepoint: int


@dataclass(frozen=True)
class Fork:
    savepoint: int


@dataclass(frozen=True)
class Rescale:
    tasks: int


@dataclass(frozen=True)
class Move:
    """Take all jobs into another warehouse, by savepoints in folders."""

    tasks: int


Step = Batch | Save | GoBack | Fork | Rescale | Move

rows = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(0, 300)), min_size=1, max_size=6).map(tuple)
numbers = st.integers(0, 3)
tasks = st.integers(1, 4)
batches = st.builds(Batch, rows, rows)
steps = st.one_of(
    st.builds(Save, numbers, st.booleans()),
    st.builds(GoBack, numbers),
    st.builds(Fork, numbers),
    st.builds(Rescale, tasks),
    st.builds(Move, tasks),
)
# There is a savepoint from the start, and rows come after each step.
histories = st.tuples(
    batches,
    st.builds(Save, st.just(0), st.booleans()),
    st.lists(st.tuples(steps, batches), min_size=3, max_size=6).map(
        lambda pairs: [one for pair in pairs for one in pair]
    ),
)


@dataclass
class Taken:
    """A savepoint: its place, its job, and the rows that this had read."""

    place: str
    job: str
    rows: Rows


@dataclass
class Jobs:
    """Jobs of one query, each with the rows that it has read, and their savepoints."""

    stream: SavedStream
    query: Query
    folder: Path
    read: dict[str, Rows] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    made: int = 0

    def play(self, step: Step) -> None:
        match step:
            case Batch(t, u):
                self._feed({"t": t, "u": u})
            case Save(job, outside):
                self._save(list(self.read)[job % len(self.read)], outside=outside)
            case GoBack(savepoint) if self.taken:
                taken = self.taken[savepoint % len(self.taken)]
                self.stream.go_back(taken.job, taken.place)
                self.read[taken.job] = copied(taken.rows)
            case Fork(savepoint) if self.taken and len(self.read) < 3:
                taken = self.taken[savepoint % len(self.taken)]
                name = f"out_{len(self.read)}"
                self.stream.fork(name, self.query.insert(name), taken.place)
                self.read[name] = copied(taken.rows)
            case Rescale(tasks):
                self.stream.restart(tasks)
            case Move(tasks):
                self.stream.move(tasks)
                self.taken = [taken for taken in self.taken if "/" in taken.place]

    def _feed(self, given: dict[str, tuple[Row, ...]]) -> None:
        tables = [name for name in ("t", "u") if name == "t" or " u " in self.query.stream]
        self.stream.batches({name: [(k, x, at(s)) for k, x, s in given[name]] for name in tables})
        for read in self.read.values():
            for name in tables:
                read[name] += given[name]

    def _save(self, job: str, *, outside: bool) -> None:
        self.made += 1
        name = f"saved_{self.made}"
        folder = self.folder / name if outside else None
        self.stream.savepoint(job, name, folder)
        self.taken.append(Taken(str(folder) if folder else name, job, copied(self.read[job])))


def copied(rows: Rows) -> Rows:
    return {name: list(given) for name, given in rows.items()}


def at(second: int) -> str:
    return f"2026-01-01 10:{second // 60:02}:{second % 60:02}"


@examples(10)
@given(st.sampled_from(sorted(QUERIES)), histories)
def test_savepoints_restores_forks_and_rescales_give_the_batch_answer(
    tmp_path_factory: pytest.TempPathFactory, name: str, history: tuple[Batch, Save, Sequence[Step]]
) -> None:
    query = QUERIES[name]
    options = {"sqlstream.unbounded-state": "allow"}
    with SavedStream(f"{TABLES} {query.insert('out')}", options=options) as stream:
        jobs = Jobs(stream, query, tmp_path_factory.mktemp("saved"), {"out": {"t": [], "u": []}})
        first, save, others = history
        for step in (first, save, *others):
            jobs.play(step)
        stream.finish()
        for job, read in jobs.read.items():
            assert bag(stream.query(f"FROM {job}")) == query.answer(read), job
