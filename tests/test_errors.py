"""Errors as people read them: carets under what is meant, long lines cut, hints that wrap, lists that stay short."""

from __future__ import annotations

from pathlib import Path

import pytest

import sqlstream
from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import BindError, JobError, SourceText, Span, SqlStreamError, missing
from sqlstream.testing import Stream

LONG = "SELECT " + ", ".join(f"column_number_{n}" for n in range(20)) + ", wrong, last_column FROM somewhere"


def at(text: str, part: str) -> Span:
    return Span(SourceText("sql", text), text.index(part), text.index(part) + len(part))


def test_a_long_line_is_cut_around_the_carets() -> None:
    shown = BindError("no", at(LONG, "wrong")).render(80).splitlines()
    assert max(map(len, shown)) <= 80
    line, carets = shown[3:]
    assert line.startswith(" 1 | ...")
    assert line[carets.index("^") : carets.rindex("^") + 1] == "wrong"
    assert line.endswith("last_column FROM somewhere")


@pytest.mark.parametrize("part", ["SELECT", "column_number_3", "column_number_9", "wrong", "somewhere", LONG])
@pytest.mark.parametrize("width", [30, 60, 80, 120, 2000])
def test_carets_stand_below_what_they_mean(part: str, width: int) -> None:
    line, carets = BindError("no", at(LONG, part)).render(width).splitlines()[3:]
    assert max(len(line), len(carets)) <= width
    marked = line[carets.index("^") : carets.rindex("^") + 1]
    assert marked == part or part == LONG


def test_a_cut_line_keeps_tabs_and_says_where_it_is_cut() -> None:
    text = "\tSELECT" + " a," * 60 + " wrong"
    line, carets = BindError("no", at(text, "wrong")).render().splitlines()[3:]
    assert line[carets.index("^") :] == "wrong"
    short = "\tSELECT wrong"
    line, carets = BindError("no", at(short, "wrong")).render().splitlines()[3:]
    assert carets == "   | \t       ^^^^^"


def test_hints_wrap_between_words_on_a_terminal_and_nowhere_else() -> None:
    hint = "Write something else that does the same, and is understood by everybody who reads it."
    error = JobError("it does not work because of something that takes a while to say", detail="It is so.", hint=hint)
    assert error.render(40).splitlines() == [
        "job failed: it does not work because of",
        "something that takes a while to say",
        "It is so.",
        "hint: Write something else that does the",
        "      same, and is understood by",
        "      everybody who reads it.",
    ]
    assert error.render().splitlines()[-1] == f"hint: {hint}"


def test_lists_of_names_are_short() -> None:
    names = [f"table_{n}" for n in range(40)]
    assert missing("table", "zzz", names).endswith(" and 32 more")
    assert missing("table", "tabel_7", names) == 'did you mean "table_7"?'
    # Options are there to choose from.
    assert missing("option", "zzz", names).count(",") == 39


def error_of(script: str, written: tuple[str, ...] = ()) -> str:
    compiler = Compiler()
    compiler.catalog.written_tables = lambda: written
    try:
        with pytest.raises(SqlStreamError) as caught:
            compiler.scripts([SourceText("sql", script)])
    finally:
        compiler.close()
    return caught.value.render()


def marked(shown: str) -> str:
    """Return what the carets underline."""
    line, carets = next(
        pair for pair in zip(shown.splitlines(), shown.splitlines()[1:], strict=False) if "^" in pair[1]
    )
    return line[carets.index("^") : carets.rindex("^") + 1]


BID = "CREATE TABLE bid (auction BIGINT, price DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);"
WINDOW = "FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end"


@pytest.mark.parametrize(
    ("script", "meant"),
    [
        (f"{BID} CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'pth' = 'x', 'format' = 'csv')", "'pth'"),
        (f"{BID} CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = 'many')", "'many'"),
        (
            f"{BID} CREATE TABLE t (a INT) WITH ('connector' = 'duckdb', 'path' = 'x', 'table' = 't', 'tabel' = 'x')",
            "'tabel'",
        ),
        (f"{BID} CREATE TABLE t (n BIGINT); INSERT INTO t SELECT auction, price FROM bid", "auction, price"),
        (
            f"{BID} CREATE TABLE t (n BIGINT, p INT); INSERT INTO t SELECT auction, 'x' || price FROM bid",
            "'x' || price",
        ),
        (f"{BID} CREATE TABLE t (n BIGINT, p INT); INSERT INTO t VALUES (1, DATE '2026-01-01')", "DATE '2026-01-01'"),
        (f"{BID} SELECT auction FROM bid UNION ALL SELECT ts FROM bid", "ts"),
        (f"{BID} SELECT SUM(price) OVER (ORDER BY ts DESC) FROM bid", "ts DESC"),
        (f"{BID} SELECT SUM(price) OVER (ORDER BY ts GROUPS 2 PRECEDING) FROM bid", "GROUPS 2 PRECEDING"),
        (f"{BID} SELECT SUM(price) OVER w FROM bid WINDOW w AS (ORDER BY ts GROUPS 1 PRECEDING)", "GROUPS 1 PRECEDING"),
        (
            f"{BID} SELECT * FROM bid a RIGHT JOIN bid FOR SYSTEM_TIME AS OF a.ts AS b ON a.price = b.price",
            "RIGHT JOIN bid",
        ),
    ],
)
def test_what_is_meant_is_underlined(script: str, meant: str) -> None:
    assert marked(error_of(script)) == meant


def test_the_aggregate_that_changes_and_the_hint_that_makes_it_so_are_underlined() -> None:
    files = "CREATE TABLE files (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'csv');"
    assert marked(error_of(f"{BID} {files} INSERT INTO files SELECT COUNT(*) FROM bid")) == "COUNT(*)"
    hinted = f"SELECT /*+ EARLY_FIRE('5 s') */ COUNT(*) {WINDOW}"
    assert marked(error_of(f"{BID} {files} INSERT INTO files {hinted}")) == "EARLY_FIRE('5 s')"


def test_a_growing_state_underlines_its_aggregate() -> None:
    compiler = Compiler()
    table = "CREATE TABLE t (k INT, ts TIMESTAMP) WITH ('connector' = 'datagen');"
    [job] = compiler.jobs([SourceText("sql", f"{table} SELECT k, MAX(ts) FROM t GROUP BY k")])
    assert marked(job.warnings[0].render()) == "MAX(ts)"
    compiler.close()


def test_near_names_are_looked_for_among_all_that_exist() -> None:
    script = f"{BID} CREATE VIEW expensive AS SELECT * FROM bid WHERE price > 1; SELECT * FROM "
    assert 'hint: did you mean "expensive"?' in error_of(f"{script} expansive")
    assert 'hint: did you mean "bid"?' in error_of(f"{script} bids")
    assert 'hint: did you mean "totals"? It is a table of the warehouse' in error_of(f"{script} total", ("totals",))
    assert "hint: It is a table of the warehouse: repeat" in error_of(f"{script} totals", ("totals",))
    with_query = "WITH cheap AS (SELECT * FROM bid) SELECT * FROM"
    assert 'hint: did you mean "cheap"?' in error_of(f"{BID} {with_query} cheep")
    assert "error: a job cannot read state" in error_of(f"{BID} SELECT * FROM sqlstream.jobs")


def test_a_table_says_what_it_is_where_it_cannot_be_used() -> None:
    asked = (
        "CREATE TABLE asked (id INT) WITH ('connector' = 'python', 'function' = 'tests.connectors.own_lookups.user');"
    )
    assert 'table "asked" is a lookup table (python): rows are looked up in it' in error_of(
        f"{asked} SELECT * FROM asked"
    )
    written = error_of(f"{BID} {asked} INSERT INTO asked SELECT 1 FROM bid")
    assert 'table "asked" is a lookup table (python): it cannot be written' in written
    out = "CREATE TABLE out (id INT) WITH ('connector' = 'print');"
    assert 'table "out" is a sink (print): it is written, and cannot be read' in error_of(f"{out} SELECT * FROM out")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("users", "It is a lookup table (duckdb): a job joins it"),
        ("made", "It is declared with the connector datagen, whose rows only a job reads"),
        ("printed", "It is a sink (print) of which nothing is kept"),
        ("big", "It is a view for the queries of jobs"),
        ("kept", "It is a table of the warehouse, into which no job has written yet."),
        ("job", 'did you mean "sqlstream.jobs"?'),
        ("user", 'did you mean "users"?'),
        ("file", 'did you mean "files"?'),
    ],
)
def test_queries_know_what_is_declared(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "all.sql").write_text(
        "CREATE TABLE users (id INT) WITH ('connector' = 'duckdb', 'path' = 'x', 'table' = 'users');"
        "CREATE TABLE made (id INT) WITH ('connector' = 'datagen');"
        "CREATE TABLE printed (id INT) WITH ('connector' = 'print');"
        "CREATE TABLE files (id INT) WITH ('connector' = 'filesystem', 'path' = 'f', 'format' = 'csv');"
        "CREATE TABLE kept (id INT);"
        "CREATE VIEW big AS SELECT * FROM made;"
    )
    with sqlstream.Session(str(tmp_path)) as session, pytest.raises(SqlStreamError) as caught:
        session.query(f"SELECT * FROM {name}")
    assert hint in caught.value.render()


def test_notebooks_show_the_error_alone() -> None:
    with pytest.raises(SqlStreamError) as caught, Stream(f"{BID} SELECT nothing FROM bid"):
        pass
    shown = caught.value._render_traceback_()
    assert shown == caught.value.render().splitlines()
    assert shown[0].startswith('error: column "nothing" does not exist')
