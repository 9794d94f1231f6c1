"""Tables of changes: what queries over them emit adds up to DuckDB's answer over the rows that the tables have by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.catalog import Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.operators.windows.assigners import window_time
from sqlstream.testing import Stream, write_rows
from tests.properties.examples import examples
from tests.properties.model import bag, batch_tables, connection, emitted, limits
from tests.properties.strategies import Row
from tests.properties.test_changes import KEYS, TABLES, TEXTS, VALUES, queries
from tests.properties.test_joins import joins
from tests.properties.test_windows import BASE, CALLS, RANKED, SECOND, Kind, Model, answer, delays

pytestmark = pytest.mark.slow

SPELLINGS = {"I": ("I", "+I", "i"), "U": ("U", "+U", "u"), "B": ("B", "-U", "b"), "D": ("D", "-D", "d")}
# What a row does, and the row: k, x, s and a time.
Event = tuple[str, Row]


@dataclass
class Batch:
    """The files of a batch, by table, in their order; each is rows of changes. Before some, the job is restarted."""

    files: dict[str, list[list[Event]]]
    restart: bool


@dataclass
class Source:
    """A table of changes, and the rows that it has: by its key (k and s), or as a Z-set."""

    keyed: bool
    rows: Counter[Row] = field(default_factory=Counter)

    def take(self, files: Iterable[Sequence[Event]]) -> Counter[Row]:
        """Apply changes, and return the difference that they make."""
        before = Counter(self.rows)
        for kind, row in (event for events in files for event in events):
            if self.keyed:
                for old in [r for r in self.rows if (r[0], r[2]) == (row[0], row[2])]:
                    del self.rows[old]
                if kind in "IU":
                    self.rows[row] = 1
            else:
                self.rows[row] += 1 if kind in "IU" else -1
        changed = Counter(self.rows)
        changed.subtract(before)
        return changed

    @property
    def whole(self) -> bool:
        """Whether no row was taken away that has not been added yet."""
        return min(self.rows.values(), default=0) >= 0


class Feeder:
    """Feeds batches of files: of those of a batch the last comes first."""

    def __init__(self, stream: Stream, folder: str):
        self.stream, self.folder, self.files = stream, Path(folder), 0

    def batch(self, batch: Batch) -> None:
        if batch.restart:
            self.stream.restart()
        run = self.stream.runs["out"]
        splits = {
            i: [self._written(scan.table.name, events) for events in batch.files.get(scan.table.name, ()) if events]
            for i, scan in enumerate(run.job.plan.scans)
        }
        run.batch(splits)

    def _written(self, name: str, events: Sequence[Event]) -> FileSplit:
        table = self.stream.compiler.catalog.relation(name)
        assert isinstance(table, Table)
        self.files += 1
        path = str(self.folder / f"{self.files:06}.parquet")
        width = len(table.physical) - 1
        spelt = [SPELLINGS[kind][(self.files + i) % 3] for i, (kind, _) in enumerate(events)]
        write_rows(table, [(op, *_timed(row)[:width]) for op, (_, row) in zip(spelt, events, strict=True)], path)
        # Some files are equally old.
        return FileSplit(path, 1, self.files // 2, self.files)


def _timed(row: Row) -> tuple[Any, ...]:
    return (*row[:3], row[3] and connection().execute("SELECT make_timestamp(?)", [row[3]]).fetchall()[0][0])


@st.composite
def logs(draw: st.DrawFn, rows: st.SearchStrategy[Row], *, keyed: bool, most: int = 20) -> list[list[Event]]:
    """Draw changes; those that must stand in one file are one element."""
    if keyed:
        kinds = st.sampled_from("IUUDB")
        return [[event] for event in draw(st.lists(st.tuples(kinds, rows), max_size=most))]
    found: list[list[Event]] = []
    there: list[Row] = []
    for row, kind, place in draw(st.lists(st.tuples(rows, st.sampled_from("IIUD"), st.integers(0, 9)), max_size=most)):
        old = there.pop(place % len(there)) if there and kind != "I" else None
        if old is None:
            found.append([("I", row)])
        else:
            found.append([("B", old), ("U", row)] if kind == "U" else [("D", old)])
        if kind != "D" or old is None:
            there.append(row)
    # A row may be taken away before it is added.
    return draw(st.permutations(found)) if draw(st.booleans()) else found


@st.composite
def cut(draw: st.DrawFn, events: dict[str, list[list[Event]]], most: int = 6) -> list[Batch]:
    """Cut changes into batches of up to three files, with so many units in each."""
    batches = []
    left = dict(events)
    while any(left.values()):
        files: dict[str, list[list[Event]]] = {}
        for table, waiting in left.items():
            for _ in range(draw(st.sampled_from([1, 0, 2, 3]))):
                size = draw(st.integers(1, most))
                files.setdefault(table, []).append([e for unit in waiting[:size] for e in unit])
                waiting = left[table] = waiting[size:]
        batches.append(Batch(files, draw(st.integers(0, 4)) == 0))
    return batches


def declared(name: str, *, keyed: bool, more: str = "") -> str:
    key = ", PRIMARY KEY (k, s) NOT ENFORCED" if keyed else ""
    options = f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = '{name}', 'changelog.op-column' = 'op'"
    return f"CREATE TABLE {name} (op STRING, k BIGINT, x BIGINT, s STRING{more}{key}) WITH ({options});"


few = st.tuples(KEYS, VALUES, TEXTS, st.none())


@examples(25)
@given(st.data(), st.one_of(queries(2), joins(TABLES)), st.booleans(), st.booleans(), st.integers(1, 3), st.booleans())
def test_changes_of_sources_add_up_to_the_batch_answer(
    data: st.DataObject, query: str, a_keyed: bool, b_keyed: bool, parallelism: int, small: bool
) -> None:
    sources = {t: Source(keyed) for t, keyed in (("a", a_keyed), ("b", b_keyed)) if f"FROM {t}" in query}
    history = data.draw(cut({t: data.draw(logs(few, keyed=s.keyed)) for t, s in sources.items()}))
    script = "".join(declared(t, keyed=s.keyed) for t, s in sources.items())
    script += f"CREATE TABLE out (k BIGINT, x BIGINT, s STRING); INSERT INTO out {query}"
    with limits(small=small), TemporaryDirectory() as folder, Stream(script, parallelism=parallelism) as stream:
        feeder = Feeder(stream, folder)
        for batch in history:
            feeder.batch(batch)
            for table, source in sources.items():
                source.take(batch.files.get(table, ()))
            if all(s.whole for s in sources.values()):
                with batch_tables({t: list(s.rows.elements()) for t, s in sources.items()}):
                    expected = bag(connection().execute(query).fetchall())
                assert emitted(stream) == expected


kinds = st.one_of(
    st.builds(Kind, st.just("HOP"), st.integers(1, 7), st.integers(1, 12)),
    st.builds(lambda size: Kind("HOP", size, size), st.integers(1, 7)),
    st.builds(lambda step, n: Kind("CUMULATE", step, step * n), st.integers(1, 5), st.integers(1, 4)),
)
timed = st.tuples(KEYS, VALUES, TEXTS, st.one_of(st.none(), st.integers(0, 20).map(lambda n: BASE + n * SECOND)))


AGGREGATED = "a TIMESTAMP, b TIMESTAMP, n BIGINT, total HUGEINT, d BIGINT, l BIGINT[], m STRING"


@examples(20)
@given(st.data(), kinds, delays, st.booleans(), st.booleans(), st.booleans(), st.integers(1, 3), st.booleans())
def test_windows_count_the_changes_that_come_before_they_close(
    data: st.DataObject, kind: Kind, delay: int, keyed: bool, ranked: bool, by_k: bool, parallelism: int, small: bool
) -> None:
    history = data.draw(cut({"a": data.draw(logs(timed, keyed=keyed))}))
    key = "k, " if by_k else ""
    if ranked:
        ties = ", k, x, s, ts, window_start, window_end"
        select = f"SELECT * FROM ({RANKED}) WHERE rn <= 2".replace("{key}", ", k" if by_k else "")
        streamed, batch_sql = (select.replace("{ties}", t) for t in ("", ties))
        columns = "k BIGINT, x BIGINT, ts TIMESTAMP, a TIMESTAMP, b TIMESTAMP, rn BIGINT"
    else:
        streamed = (
            f"SELECT {key}window_start, window_end, {CALLS} FROM {{windows}} GROUP BY {key}window_start, window_end"
        )
        batch_sql = streamed
        columns = f"{'k BIGINT, ' if by_k else ''}{AGGREGATED}"
    mark = f", ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '{delay}' MICROSECOND"
    script = declared("a", keyed=keyed, more=mark)
    script += f"CREATE TABLE out ({columns}); INSERT INTO out {streamed.replace('{windows}', kind.sql())}"
    source, model = Source(keyed), Model(kind, delay)
    windows: Counter[tuple[Row, int, int]] = Counter()
    with limits(small=small), TemporaryDirectory() as folder, Stream(script, parallelism=parallelism) as stream:
        feeder = Feeder(stream, folder)
        for batch in history:
            feeder.batch(batch)
            _count(windows, model, source, batch.files.get("a", ()))
        stream.finish()
        pairs = [pair for pair, weight in windows.items() for _ in range(weight)]
        assert emitted(stream) == answer(pairs, batch_sql.replace("{windows}", "w"))
        assert stream.query("SELECT max(state_rows) FROM sqlstream.operators WHERE kind <> 'normalize'") == [(0,)]


def _count(
    windows: Counter[tuple[Row, int, int]], model: Model, source: Source, files: Sequence[Sequence[Event]]
) -> None:
    """Count the changes of a batch in the windows that are open, and move the watermark as far as its rows say."""
    for row, weight in source.take(files).items():
        for start, end in model.kind.windows(row[3]) if row[3] is not None and weight else ():
            if model.watermark is None or end > model.watermark:
                windows[row, start, end] += weight
    _move(model, files)


def _move(model: Model, files: Sequence[Sequence[Event]]) -> None:
    """Move the watermark as far as the rows of a batch say."""
    marks = [row[3] - model.delay for events in files for _, row in events if row[3] is not None]
    known = [] if model.watermark is None else [model.watermark]
    model.watermark = max([m // 1000 * 1000 for m in marks] + known, default=None)


# Over sessions that are in table w.
GROUPED = "GROUP BY {key}window_start, window_end, window_time"
SESSIONS = f"SELECT {{key}}window_start, window_end, window_time AS t, {{calls}} FROM {{w}} {GROUPED}"
TIMES = f"SELECT t, n FROM ({SESSIONS})"
BEGINS = "time_bucket(INTERVAL 7 SECOND, t, TIMESTAMP '1970-01-01')"
# What streams, and what DuckDB is asked.
OVER_SESSIONS = {
    "rows": ("SELECT k, x, s, ts, window_start, window_end FROM {w}",) * 2,
    "aggregates": (f"SELECT * EXCLUDE (t) FROM ({SESSIONS})",) * 2,
    "windows": (
        f"SELECT window_start, COUNT(*), SUM(n) FROM TUMBLE(TABLE ({TIMES}), DESCRIPTOR(t), INTERVAL '7' SECOND) "
        "GROUP BY window_start, window_end",
        f"SELECT {BEGINS}, COUNT(*), SUM(n) FROM ({SESSIONS}) GROUP BY {BEGINS}",
    ),
    "changes": (f"SELECT d, COUNT(*), MAX(n) FROM ({SESSIONS}) GROUP BY d",) * 2,
}


moves = st.tuples(
    st.sampled_from("IIIUDDAP"),
    KEYS,
    VALUES,
    TEXTS,
    st.integers(-2, 3),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 500]),
)


@st.composite
def near(draw: st.DrawFn) -> list[list[Event]]:
    """Draw changes of rows whose times move on; what goes is new. Some rows (A) are taken away before they are added (P)."""
    now, there, owed, found = BASE, list[Row](), list[Row](), list[list[Event]]()
    for kind, k, x, s, ahead, back, micros in draw(st.lists(moves, min_size=5, max_size=25)):
        row: Row = (k, x, s, now + ahead * SECOND + micros)
        old = there.pop(-1 - back % len(there)) if there and kind in "UD" else None
        if kind == "A":
            owed.append(row)
        elif kind == "P" and owed:
            row = owed.pop()
        if old is not None:
            found.append([("D", old)] if kind == "D" else [("B", old), ("U", row)])
        else:
            found.append([("D" if kind == "A" else "I", row)])
        if kind in "IU":
            there.append(row)
        now = max(now, row[3] or 0)
    return found


@examples(20)
@given(
    st.data(),
    st.builds(Kind, st.just("SESSION"), st.integers(1, 4), keyed=st.booleans(), own=st.booleans()),
    st.integers(0, 8),
    st.booleans(),
    st.sampled_from(sorted(OVER_SESSIONS)),
    st.integers(1, 3),
    st.booleans(),
)
def test_sessions_are_those_of_the_rows_whose_changes_came_before_the_watermark(
    data: st.DataObject, kind: Kind, delay: int, keyed: bool, above: str, parallelism: int, small: bool
) -> None:
    history = data.draw(cut({"a": data.draw(near())}, most=2))
    streamed, batch_sql = OVER_SESSIONS[above]
    given = {"key": "k, " if kind.keyed else "", "calls": CALLS}
    made = f"(SELECT *, {window_time('window_end')} AS window_time FROM w)"
    final = batch_sql.format(w=made, **given)
    answer([], "SELECT 1")
    columns = connection().execute(f"DESCRIBE {final}").fetchall()
    script = declared("a", keyed=keyed, more=f", ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND")
    script += f"CREATE TABLE out ({', '.join(f'c{i} {c[1]}' for i, c in enumerate(columns))});"
    script += f"INSERT INTO out {streamed.format(w=kind.sql(), **given)}"
    source, model = Source(keyed), Model(kind, delay * SECOND)
    rows: Counter[Row] = Counter()
    late = 0
    with limits(small=small), TemporaryDirectory() as folder, Stream(script, parallelism=parallelism) as stream:
        feeder = Feeder(stream, folder)
        for batch in history:
            feeder.batch(batch)
            late += _take_on_time(rows, model, source, batch.files.get("a", ()))
        stream.finish()
        there = list(rows.elements())
        pairs = [(row, start, end) for members, start, end in model._grouped(there) for row in members]
        assert emitted(stream) == answer(pairs, final)
        operators = "FROM sqlstream.operators WHERE kind <> 'normalize'"
        [(counted,)] = stream.query(f"SELECT sum(late_rows) {operators}")
        # Without a key, changes that cancel each other may be dropped on their own.
        assert counted == late if keyed else counted >= late
        assert stream.query(f"SELECT max(state_rows) {operators} AND kind <> 'aggregate'") == [(0,)]


def _take_on_time(rows: Counter[Row], model: Model, source: Source, files: Sequence[Sequence[Event]]) -> int:
    """Apply the changes of a batch that are not late, move the watermark, and return how many are."""
    late = 0
    for row, weight in source.take(files).items():
        if row[3] is not None and model.watermark is not None and row[3] <= model.watermark:
            late += abs(weight)
        elif row[3] is not None:
            rows[row] += weight
    _move(model, files)
    return late
