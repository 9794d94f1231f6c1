"""MIGRATE STATE: what a SELECT over the state of a job makes, and what does not fit. A job in this process goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.errors import SourceText
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.jobs.upgrades.migrations import Migrations, carried_out, check, given_state
from sqlstream.session.state_queries import query
from sqlstream.sql.migrations import only_migrations
from sqlstream.sql.statements import parse_script
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from tests.jobs.savepoint_jobs import FIRST, JOB, SECOND, open_session, planned, put, run_over

Rows = list[tuple[object, ...]]
TIME = ProcessingTime(5_000_000)
INTO = f"MIGRATE STATE {JOB}.by_key AS "


class Made:
    """A job, and what statements make of its state."""

    def __init__(self, session: Session, folder: Path):
        self.session, self.folder = session, folder
        record = read_record(session.warehouse.fs, session.warehouse.job(JOB))
        assert record is not None
        self.record: JobRecord = record
        self.given = given_state(session.warehouse, record)

    def query(self, sql: str, given: Mapping[tuple[str, str], str]) -> duckdb.DuckDBPyRelation:
        return query(self.session.project, self.session.compiler, sql, relations=given)

    def of(self, text: str) -> dict[str, Rows]:
        """Return the rows of the state tables that statements make."""
        source = SourceText("repair.sql", text)
        statements = only_migrations(source, parse_script(source))
        found = check(statements, self.record, self.given, self.query, TIME)
        tables = carried_out(found, self.given, self.query, self.folder, TIME)
        with duckdb.connect() as con:
            return {
                f"{operator}.{name}": sorted(con.execute(sql).fetchall(), key=repr)
                for operator, made in tables.items()
                for name, sql in made.items()
            }

    def stored(self, operator: str, table: str) -> Rows:
        return sorted(self.query(f'FROM {operator}."{table}"', self.given).fetchall(), key=repr)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("job")
    put(folder, "a", FIRST)
    put(folder, "b", SECOND)
    with open_session(folder) as s:
        run_over(s, [*FIRST, *SECOND])
        yield Made(s, folder)


def totals() -> Rows:
    """Return what by_key holds: key, count, last second, by hand."""
    keys = sorted({k for k, _ in [*FIRST, *SECOND]})
    seconds = {k: [s for other, s in [*FIRST, *SECOND] if other == k] for k in keys}
    return [(k, len(of), max(of)) for k, of in seconds.items()]


def test_a_select_over_a_state_table(made: Made) -> None:
    rows = made.of(f"{INTO}SELECT last, k, n * 2 AS N FROM by_key.partials WHERE k < 3")["by_key.partials"]
    # In the order in which they are stored, with the time that is filled in, in milliseconds, and the weight.
    assert [(k, n, at, weight) for k, n, _, at, weight in rows] == [
        (k, 2 * n, 5000, 1) for k, n, _ in totals() if isinstance(k, int) and isinstance(n, int) and k < 3
    ]


def test_a_select_over_a_view_a_table_and_another_operator(made: Made) -> None:
    sql = (
        f"SELECT k, (SELECT sum(n)::BIGINT FROM by_window.partials) AS n, last FROM state.{JOB}.by_key "
        "SEMI JOIN windows USING (k)"
    )
    rows = made.of(f"{INTO}{sql}")["by_key.partials"]
    open_rows = sum(1 for _, s in [*FIRST, *SECOND] if s // 10 == max(s for _, s in SECOND) // 10)
    closed = {k for k, s in [*FIRST, *SECOND] if s // 10 < max(s for _, s in SECOND) // 10}
    assert [(k, n) for k, n, *_ in rows] == [(k, open_rows) for k in sorted(closed)]


def test_two_operators_and_a_table_by_its_name(made: Made) -> None:
    rows = made.of(
        f"{INTO}SELECT * FROM by_key.partials; MIGRATE STATE {JOB}.by_window.partials AS FROM by_window.partials"
    )
    assert set(rows) == {"by_key.partials", "by_window.partials"}
    assert [row[:-1] for row in rows["by_key.partials"]] == made.stored("by_key", "partials")
    assert rows["by_window.partials"] == made.stored("by_window", "partials")


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        (f"{INTO}SELECT k, n FROM by_key.partials", 'column "last" is missing', f"{JOB}.by_key"),
        (f"{INTO}SELECT k, n, last, 5 AS m FROM by_key.partials", 'the state has no column "m"', "m"),
        (f"{INTO}SELECT k, n, 'x' AS last FROM by_key.partials", "is VARCHAR, and the state has TIMESTAMP", "last"),
        (
            f"{INTO}SELECT k, n, DATE '300000-01-01' AS last FROM by_key.partials",
            'column "last" has a value that TIMESTAMP, the type of the state, does not hold',
            "last",
        ),
        (f"{INTO}SELECT k, k, n, last FROM by_key.partials", "two columns have the same name", None),
        (f"{INTO}SELECT k, n, last FROM by_key.partial", 'table "by_key.partial" does not exist', "by_key.partial"),
        (f"{INTO}SELECT k, m, last FROM by_key.partials", 'column "m" does not exist', "m"),
        (f"{INTO}SELECT k, CAST('x' AS INT) n, last FROM by_key.partials", "could not convert", "CAST('x' AS INT)"),
        (f"{INTO}COPY x TO 'y'", "COPY is not a query", "COPY"),
        (
            f"{INTO}SELECT 1 AS k, n, last FROM by_key.partials",
            "there are 3 rows for k = 1, where the",
            f"{JOB}.by_key",
        ),
        (f"MIGRATE STATE {JOB}.by_keys AS SELECT 1", 'the query has no operator "by_keys"', "by_keys"),
        (f"MIGRATE STATE {JOB}.by_key.x AS SELECT 1", 'operator "by_key" has no state table "x"', "x"),
        (f"{INTO}FROM by_key.partials; {INTO}FROM by_key.partials", "is migrated twice", f"{JOB}.by_key"),
        (
            f"MIGRATE STATE {JOB}.by_window AS SELECT k, n, NULL::TIMESTAMP AS _window_end FROM by_window.partials",
            'column "_window_end" is NULL in some rows',
            f"{JOB}.by_window",
        ),
    ],
)
def test_what_does_not_fit(made: Made, text: str, message: str, at: str | None) -> None:
    with pytest.raises(SqlStreamError) as refused:
        made.of(text)
    assert message in refused.value.message
    assert refused.value.span is not None
    assert refused.value.span.source.name == "repair.sql"
    assert at is None or refused.value.span.text == at


def test_nothing_is_computed_before_it_is_asked_for(made: Made) -> None:
    source = SourceText("repair.sql", f"{INTO}SELECT k, n, last FROM by_key.partials")
    asked: list[str] = []

    def noted(sql: str, given: Mapping[tuple[str, str], str], warehouse: Warehouse) -> duckdb.DuckDBPyRelation:
        asked.append(warehouse.root)
        return made.query(sql, given)

    migrations = Migrations(only_migrations(source, parse_script(source)), noted)
    assert list(migrations.operators) == ["by_key"]
    [(name, adaptation)] = migrations.adaptations(made.session.warehouse, made.record, made.record).items()
    assert name == "by_key"
    record = next(o for o in made.record.operators if o.name == "by_key")
    stage = next(s for s in planned(made.session).physical.stages if s.name == "by_key")
    change = adaptation(record, record, stage)
    assert isinstance(change, AdaptedOperator)
    assert (change.operator, change.was, change.notes) == (
        "by_key",
        "by_key",
        ("MIGRATE STATE makes its state: partials",),
    )
    assert list(change.tables) == ["partials"]
    # To check it took one look, without its rows.
    assert len(asked) == 1
    with duckdb.connect() as con:
        rows = sorted(con.execute(change.tables["partials"]).fetchall(), key=repr)
    assert [row[:2] for row in rows] == [row[:2] for row in totals()]
    assert asked == [made.session.warehouse.root] * 2
    assert change.tables.get("other") is None


def test_what_there_is_is_described(made: Made) -> None:
    described = made.session.query(f"DESCRIBE STATE {JOB}.by_key").fetchall()
    assert [row[1:4] for row in described] == [
        ("partials", "k", "BIGINT"),
        ("partials", "n", "BIGINT"),
        ("partials", "last", "TIMESTAMP"),
        ("partials", "_at", "BIGINT"),
    ]
    assert [row[5] for row in described] == ["needed", "needed", "needed", "may be left out"]
    assert made.session.sql(f"DESC STATE {JOB}.by_key").fetchall() == described  # type: ignore[union-attr]
    assert (
        made.session.query(f"-- What it keeps.\n/* All of it. */ describe state {JOB}.by_key").fetchall() == described
    )
    with pytest.raises(SqlStreamError, match='has no operator "by_keys"'):
        made.session.query(f"DESCRIBE STATE {JOB}.by_keys")
