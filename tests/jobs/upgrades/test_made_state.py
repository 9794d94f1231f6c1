"""State that MIGRATE STATE makes where the job had none like it: results are those of all rows, as DuckDB gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sqlstream import Context, ListState, Session, SqlStreamError, ValueState, process, state
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.upgrades.state_columns import state_tables
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Layout
from sqlstream.session.upgrades import upgrade_with
from sqlstream.units import ProcessingTime
from tests.jobs.savepoint_jobs import INPUT, Rows, open_session, put, rows_of, start
from tests.jobs.upgrades.driver import Driven
from tests.jobs.upgrades.test_migrated_jobs import go_on
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS, wait_until

# Jobs of one name: one keeps nothing, one sums by seconds, one has windows, one joins.
NAMED = "SET 'pipeline.name' = 'job'; "
COPIES = f"{INPUT} CREATE TABLE copies (k BIGINT, ts TIMESTAMP(3)); {NAMED} INSERT INTO copies SELECT k, ts FROM t;"
BY_SECOND = f"""{INPUT} CREATE TABLE seconds (k BIGINT, ts TIMESTAMP(3), n BIGINT, PRIMARY KEY (k, ts) NOT ENFORCED); {NAMED}
INSERT INTO seconds WITH by_second AS (SELECT k, ts, count(*) AS n FROM t GROUP BY k, ts) SELECT k, ts, n FROM by_second;"""
WINDOWS = f"""{INPUT} CREATE TABLE windows (k BIGINT, n BIGINT); {NAMED}
INSERT INTO windows WITH by_window AS (
    SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end
) SELECT k, n FROM by_window;"""
OPEN: Rows = [(k, 11) for k in range(8)]
END = "time_bucket(INTERVAL '10 seconds', ts) + INTERVAL '10 seconds'"


def run_until(session: Session, script: str, rows: int) -> None:
    """Run the job of a script until it has read so many rows, and stop it."""
    job = start(session, script)
    wait_for_rows(job, rows)
    wait_until(lambda: job.is_waiting)
    job.stop()
    assert job.wait(SECONDS)


def planned_of(session: Session, script: str) -> list[PlannedJob]:
    return [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]


def counted_windows(rows: str, since: int) -> str:
    """Return the statement that makes the windows that end after a second of rows of the first job."""
    return f"""MIGRATE STATE job.by_window AS SELECT k, count(*) AS n, {END} AS _window_end
    FROM {rows} WHERE epoch({END}) > {since} GROUP BY ALL"""


@pytest.mark.parametrize(
    ("before", "rows"), [(COPIES, "copies"), (BY_SECOND, "(SELECT k, ts FROM by_second.partials)")]
)
def test_windows_close_that_are_made_of_other_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, rows: str
) -> None:
    """In each of three buckets, also in those for which no more rows come."""
    monkeypatch.setattr(LocalEngine, "layout", lambda engine, parallelism: Layout(3, (0, 1, 2)))
    put(tmp_path, "a", OPEN)
    with open_session(tmp_path) as s:
        run_until(s, before, len(OPEN))
        put(tmp_path, "b", [(9, 45)])
        go_on(s, WINDOWS, [*OPEN, (9, 45)], counted_windows(rows, 19))
        buckets = Path(s.warehouse.root, "jobs", "job", "state", "by_window", "manifests").iterdir()
        assert len(list(buckets)) == 3
        assert rows_of(s, "FROM windows") == [(k, 1) for k in range(8)]
        assert rows_of(s, "SELECT k, n FROM state.job.by_window") == [(9, 1)]


JOINED = f"""{INPUT} CREATE TABLE pairs (k BIGINT, a BIGINT, b BIGINT); {NAMED}
CREATE VIEW v AS SELECT k, k % 2 AS p FROM t;
INSERT INTO pairs WITH joined AS (SELECT l.k, l.p AS a, r.p AS b FROM v l JOIN v r ON l.k = r.k + r.p)
SELECT k, a, b FROM joined;"""


def test_a_table_that_is_not_migrated_stays_only_if_it_holds_the_same(tmp_path: Path) -> None:
    put(tmp_path, "a", OPEN)
    with open_session(tmp_path) as s:
        run_until(s, JOINED, len(OPEN))
        one = "MIGRATE STATE job.joined.rows_0 AS SELECT * FROM joined.rows_0"
        # The columns of the second side would be the same, with other keys in them.
        with pytest.raises(SqlStreamError, match='state table "rows_1" of operator "joined" has no statement'):
            go_on(s, JOINED.replace("r.k + r.p", "r.k - r.p"), OPEN, one)
        # What is refused changes nothing.
        assert s.warehouse.savepoints() == []
        assert len(rows_of(s, "FROM pairs")) == sum(k + k % 2 < 8 for k in range(8))


KEPT = """WITH joined AS (
    SELECT /*+ STATE_TTL('v' = '1 d', 'w' = '1 d') */ v.k, p, q FROM v {kind} JOIN w ON v.k = w.k
) SELECT k, p, q FROM joined;"""


def kept_a_day(kind: str) -> str:
    """Return the job that joins, of which each input keeps its keys for a day."""
    views = "CREATE VIEW v AS SELECT k, k % 2 AS p FROM t WHERE k < 6; CREATE VIEW w AS SELECT k, k % 2 AS q FROM t;"
    pairs = "CREATE TABLE pairs (k BIGINT, p BIGINT, q BIGINT);"
    return f"{INPUT} {views} {pairs} {NAMED} INSERT INTO pairs {KEPT.format(kind=kind)}"


@pytest.mark.slow
@pytest.mark.parametrize(("places", "keys"), [((0, 1), [*range(100, 106)]), ((0,), [*range(2, 8)])])
def test_rows_of_a_join_with_a_time_to_live_come_with_their_keys(
    tmp_path: Path, places: tuple[int, ...], keys: list[int]
) -> None:
    put(tmp_path, "a", OPEN)
    more = 100 if len(places) == 2 else 2
    made = "".join(
        f"MIGRATE STATE job.joined.rows_{place} AS SELECT * REPLACE (k + {more} AS k) FROM joined.rows_{place};"
        for place in places
    )
    with open_session(tmp_path) as s:
        run_until(s, kept_a_day(""), len(OPEN))
        assert rows_of(s, "SELECT k FROM state.job.joined") == [(k,) for k in range(6)]
        go_on(s, kept_a_day(""), OPEN, made)
        # A row whose key is not known is forgotten for those who look, and is kept for ever.
        assert rows_of(s, "SELECT k FROM state.job.joined") == [(k,) for k in keys]


@pytest.mark.slow
def test_rows_that_have_no_match_are_made_with_the_others(tmp_path: Path) -> None:
    put(tmp_path, "a", OPEN)
    with open_session(tmp_path) as s:
        run_until(s, kept_a_day("LEFT"), len(OPEN))
        one = "MIGRATE STATE job.joined.rows_1 AS SELECT * FROM joined.rows_1 WHERE k > 3"
        with pytest.raises(SqlStreamError, match='state table "alone_0" of operator "joined" has no statement'):
            go_on(s, kept_a_day("LEFT"), OPEN, one)
        alone = "MIGRATE STATE job.joined.alone_0 AS SELECT * FROM joined.rows_0 WHERE k <= 3"
        put(tmp_path, "b", [(1, 20)])
        go_on(s, kept_a_day("LEFT"), [*OPEN, (1, 20)], f"{one}; {alone}")
        pairs = [(k, k % 2 if k > 3 else None) for k in range(6) if k != 1] + [(1, 1)] * 2
        assert rows_of(s, "SELECT k, q FROM state.job.joined") == sorted(pairs, key=repr)


@dataclass
class Row:
    k: int


@dataclass
class Seen:
    n: int


@process
class Remembers:
    """Keeps what comes for an hour."""

    seen: ListState[int] = state(ttl="1 h")

    def process(self, ctx: Context, row: Row) -> Iterator[Seen]:
        self.seen.append(row.k)
        yield Seen(row.k)


@process
class Reminds:
    """Says a key when its time has come."""

    seen: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Seen]:
        self.seen.value = row.k
        if row.k < 0:
            yield Seen(row.k)

    def on_timer(self, ctx: Context) -> Iterator[Seen]:
        yield Seen(self.seen.value or 0)


def test_timers_by_the_clock_fire_that_a_migration_made(tmp_path: Path) -> None:
    """Also those that are due by then, of which the job believes that they have fired, and without another row."""
    script = (
        f"{INPUT} CREATE TABLE said (n BIGINT); {NAMED} "
        "INSERT INTO said SELECT n FROM Reminds(TABLE t PARTITION BY k, uid => 'reminds')"
    )
    migrate = """MIGRATE STATE job.reminds.processing_timers AS
    SELECT k, name, due FROM (SELECT k, '' AS name, 5 + k AS due FROM reminds.keys WHERE k < 2)"""
    put(tmp_path, "a", OPEN)
    with open_session(tmp_path) as s:
        s.register(Reminds)
        run_until(s, script, len(OPEN))
        upgrade = upgrade_with(s.project, s.compiler, compiled := planned_of(s, script), SourceText("m", migrate))
        job = s._jobs.start(compiled[0], {}, engine=LocalEngine(), upgrade=upgrade)
        wait_until(lambda: rows_of(s, "FROM said") == [(0,), (1,)])
        job.stop()
        assert job.wait(SECONDS)
        assert rows_of(s, "SELECT * FROM state.job.reminds_timers") == []


OVER = "SELECT k, count(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n FROM t"
LISTS = "SELECT * FROM Remembers(TABLE t PARTITION BY k)"
MEANS = "SELECT k, avg(k) AS m FROM t GROUP BY k"


@pytest.mark.parametrize(
    ("query", "name", "column", "holds", "filled", "one"),
    [
        # A row's own time; when an item was written; when a row came for a key; of how many rows a mean is.
        (OVER, "last", "_at", "internal", None, False),
        (OVER, "keys", "_at", "when the last row came for the key, in milliseconds", "5000", True),
        (LISTS, "list_0", "_at", "state list, part 3 of 3", "5000000", False),
        (MEANS, "partials", "_at", "when the last row came for the key, in milliseconds", "5000", True),
        (MEANS, "partials", "_rows", "how many rows there are", None, True),
    ],
)
def test_what_is_filled_in(
    tmp_path: Path, query: str, name: str, column: str, holds: str, filled: str | None, one: bool
) -> None:
    record = Driven(INPUT + query, tmp_path, [Remembers]).record
    table = next(t for t in state_tables(record, ProcessingTime(5_000_000)) if t.name == name)
    found = next(c for c in table.columns if c.stored == column)
    assert (found.holds, found.filled, table.has_one_row_a_key) == (holds, filled, one)


@pytest.mark.slow
def test_items_of_a_list_are_before_the_next_one_of_their_key(tmp_path: Path) -> None:
    """The row of a key says where its next item goes: another item there would be written over."""
    script = (
        f"{INPUT} CREATE TABLE said (n BIGINT); {NAMED} "
        "INSERT INTO said SELECT n FROM Remembers(TABLE t PARTITION BY k, uid => 'remembers')"
    )
    made = "MIGRATE STATE job.remembers.list_0 AS SELECT * REPLACE ({}) FROM remembers.list_0"
    put(tmp_path, "a", OPEN)
    with open_session(tmp_path) as s:
        s.register(Remembers)
        run_until(s, script, len(OPEN))
        for wrong in ("seen_1 + 1 AS seen_1", "k + 1 AS k"):
            with pytest.raises(SqlStreamError, match="of the items are not before the next one of their key"):
                go_on(s, script, OPEN, made.format(wrong))
        keys = "MIGRATE STATE job.remembers.keys AS SELECT * REPLACE (seen_1 + 1 AS seen_1) FROM remembers.keys"
        put(tmp_path, "b", [(1, 12)])
        go_on(s, script, [*OPEN, (1, 12)], f"{made.format('seen_1 + 1 AS seen_1')}; {keys}")
        assert rows_of(s, "SELECT position FROM state.job.remembers_seen WHERE k = 1") == [(1,), (2,)]
