"""The shell without a terminal: how a text is cut, where statements go, what they and the commands show."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.jobs.job import Job
from sqlstream.session.routing import Route, route
from sqlstream.session.session import Session
from sqlstream.shell.commands import run
from sqlstream.shell.entries import Command, is_whole, parts
from sqlstream.shell.output import ShellOutput
from sqlstream.shell.result_views import MaterializedTable
from sqlstream.shell.shell import Shell
from tests.local.test_engine import wait_for_rows
from tests.shell.in_process import run_in_process

CATALOG = """
CREATE TABLE orders (id BIGINT, shop STRING, amount DOUBLE) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE VIEW large AS SELECT * FROM orders WHERE amount > 10;
CREATE TABLE totals (shop STRING, total DOUBLE, PRIMARY KEY (shop) NOT ENFORCED);
CREATE TABLE numbers (n BIGINT);
"""
ROWS = [(1, "Oslo", 20.0), (2, "Bergen", 35.5), (3, "Oslo", 1.25), (4, "Moss", 3.0), (5, "Bergen", 2.5)]
TOTALS = "INSERT INTO totals SELECT shop, SUM(amount) FROM orders GROUP BY shop"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("catalog", "in"):
        (tmp_path / folder).mkdir()
    (tmp_path / "catalog" / "tables.sql").write_text(CATALOG)
    rows = [json.dumps(dict(zip(("id", "shop", "amount"), row, strict=True))) for row in ROWS]
    (tmp_path / "in" / "1.json").write_text("\n".join(rows))
    return tmp_path


@pytest.fixture
def shell(project: Path) -> Iterator[Shell]:
    output = ShellOutput(interactive=False)
    with Session(str(project), notice=output.say) as session:
        run_in_process(session)
        opened = Shell(session, output)
        yield opened
        opened.close()


def entered(shell: Shell, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """Run a text; return what it shows."""
    capsys.readouterr()
    run(shell, SourceText("shell", text))
    shown = capsys.readouterr()
    return shown.out + shown.err


# -- reading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' -- ;\n, \";\" /* ; */ FROM t;", ["SELECT ';' -- ;\n, \";\" /* ; */ FROM t"]),
        (";;-- nothing\n;", []),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END; SELECT 3",
            ["EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END", "SELECT 3"],
        ),
        ("\\d orders;\nSELECT 1", ["\\d: orders", "SELECT 1"]),
        ("SELECT '\n\\d'\n;\\q", ["SELECT '\n\\d'", "\\q"]),
        ("SELECT 1;\n\\watch 2 SELECT 1; \n\nSELECT 2", ["SELECT 1", "\\watch: 2 SELECT 1", "SELECT 2"]),
        ("SELECT 'open", ["SELECT 'open"]),
    ],
)
def test_a_text_is_cut_into_statements_and_commands(text: str, expected: list[str]) -> None:
    found = [
        f"\\{part.name}: {part.rest.text}" if isinstance(part, Command) else part.text
        for part in parts(SourceText("shell", text))
    ]
    # A command stands at the beginning of a line: behind a semicolon a backslash is a part of a statement.
    assert found == expected


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';", False),
        ("/* ; ", False),
        ("\\d", True),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", False),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", True),
    ],
)
def test_enter_sends_what_is_whole(text: str, whole: bool) -> None:
    assert is_whole(text) == whole


# -- where statements go


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM orders", Route.CHANGES),
        ("SELECT shop, n FROM large JOIN (VALUES ('Oslo', 1)) AS v (s, n) ON s = shop", Route.CHANGES),
        ("SELECT * FROM numbers", Route.QUERY),
        ("SELECT * FROM numbers, orders", Route.CHANGES),
        ("WITH x AS (SELECT * FROM numbers) SELECT * FROM x", Route.QUERY),
        ("SELECT * FROM state.totals.by_shop", Route.QUERY),
        ("FROM state.totals.by_shop AT (VERSION => 1), orders", Route.QUERY),
        ("SELECT * FROM sqlstream.diff('totals.by_shop', 1, 2)", Route.QUERY),
        ("SELECT nothing( FROM state.totals.by_shop", Route.QUERY),
        ("SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))", Route.CHANGES),
        ("SELECT 1", Route.QUERY),
        ("SELECT 'FROM orders'", Route.QUERY),
        ("SUMMARIZE numbers", Route.QUERY),
        ("SHOW TABLES", Route.SESSION),
        ("SHOW ALL TABLES", Route.QUERY),
        ("DESCRIBE orders", Route.SESSION),
        ("DESCRIBE state.totals.by_shop", Route.QUERY),
        ("DESCRIBE STATE totals.by_shop", Route.SESSION),
        ("EXPLAIN SELECT * FROM orders", Route.SESSION),
        ("EXPLAIN SELECT * FROM sqlstream.jobs", Route.QUERY),
        ("SELECT * FROM unknown", Route.CHANGES),
        (TOTALS, Route.SESSION),
    ],
)
def test_a_statement_goes_where_it_can_be_answered(shell: Shell, sql: str, expected: Route) -> None:
    assert route(SourceText("shell", sql), shell.session.compiler) is expected


# -- what is shown


def test_a_job_is_waited_for_and_its_results_and_state_are_answered_at_once(
    shell: Shell, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = entered(shell, capsys, f"{TOTALS}; SELECT shop, total FROM totals ORDER BY shop;")
    rows = duckdb.execute(f"SELECT shop, sum(amount) FROM '{project}/in/*.json' GROUP BY shop ORDER BY shop").fetchall()
    assert [line.split() for line in shown.splitlines()[2:5]] == [[shop, str(total)] for shop, total in rows]
    assert "totals: finished after batch" in shown
    assert "5 rows in" in shown
    state = entered(shell, capsys, "SELECT count(*) AS keys FROM state.totals.aggregate_1;")
    assert state.splitlines()[2].strip() == "3"


def test_a_select_over_input_that_ends_is_its_result(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shown = entered(shell, capsys, "SELECT shop, COUNT(*) AS n FROM orders GROUP BY shop;")
    assert sorted(line.split() for line in shown.splitlines()[2:5]) == [["Bergen", "2"], ["Moss", "1"], ["Oslo", "2"]]
    assert "(3 rows)" in shown


def test_tableau_has_a_line_for_each_change(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    entered(shell, capsys, "SET 'sql-client.execution.result-mode' = 'tableau';")
    shown = entered(shell, capsys, "SELECT id, shop FROM large;")
    lines = [[cell.strip() for cell in line.split("|")] for line in shown.splitlines()]
    assert lines[0] == ["", "id", "shop"]
    assert lines[2:] == [["+I", "1", "Oslo"], ["+I", "2", "Bergen"], ["Received a total of 2 rows"]]


def test_an_error_points_into_the_text_and_ends_it(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    text = "SHOW VIEWS;\n\\timing\nSELECT shop,\n  nothing FROM orders;\nSHOW TABLES;"
    with pytest.raises(SqlStreamError, match="does not exist") as caught:
        entered(shell, capsys, text)
    assert str(caught.value.span) == "shell:4:3"
    shown = capsys.readouterr()
    assert "large" in shown.out
    assert "numbers" not in shown.out


@pytest.mark.parametrize("query", ["SELECT n, nothing FROM numbers", "SELECT id, nothing FROM orders"])
def test_an_error_shows_the_line_as_it_was_entered(
    shell: Shell, capsys: pytest.CaptureFixture[str], query: str
) -> None:
    entered(shell, capsys, "INSERT INTO numbers VALUES (1)")
    with pytest.raises(SqlStreamError, match="does not exist") as caught:
        entered(shell, capsys, f"SHOW VIEWS; {query};")
    shown = caught.value.render().splitlines()
    assert shown[1] == "  --> shell:1:" + str(len("SHOW VIEWS; SELECT n, ") + 1 + query.startswith("SELECT id"))
    assert shown[3] == f" 1 | SHOW VIEWS; {query};"
    assert shown[4].index("^") == shown[3].index("nothing")


def test_a_wrong_option_is_refused_and_a_right_one_stays(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SqlStreamError, match="result-mode"):
        entered(shell, capsys, "SET 'sql-client.execution.result-mode' = 'tabel';")
    entered(shell, capsys, "SET 'pipeline.name' = 'other';")
    entered(shell, capsys, TOTALS)
    assert [job.name for job in shell.session.jobs] == ["other"]


def test_a_table_that_a_job_runs_with_is_dropped_with_a_warning(project: Path) -> None:
    said: list[str] = []
    with Session(str(project), notice=said.append) as session:
        run_in_process(session)
        session.sql("SET 'sqlstream.unbounded-state' = 'allow'")
        session.sql("CREATE TABLE live LIKE orders; DROP TABLE numbers; DROP TABLE IF EXISTS live")
        assert said == []
        table = "CREATE TABLE live WITH ('source.monitor-interval' = '10 ms') LIKE orders"
        job = session.sql(f"{table}; INSERT INTO totals SELECT shop, SUM(amount) FROM live GROUP BY shop")
        assert isinstance(job, Job)
        wait_for_rows(job, len(ROWS))
        session.sql("DROP TABLE live")
        session.sql("DROP TABLE totals")
        job.stop()
        job.wait()
        session.sql("DROP TABLE orders")
    assert [text.splitlines()[0] for text in said] == [
        f'warning: job "totals" runs, and goes on with table "{name}"' for name in ("live", "totals")
    ]


# -- commands


def test_commands_list_and_describe(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    entered(shell, capsys, f"{TOTALS};")
    kinds = {line.split("  ")[0]: line for line in entered(shell, capsys, "\\d").splitlines()[2:]}
    assert "table (filesystem)" in kinds["orders"]
    assert "id, shop, amount" in kinds["large"]
    assert "state" in kinds["state.totals.aggregate_1"]
    assert entered(shell, capsys, "\\d orders").split()[-6:] == ["id", "BIGINT", "shop", "VARCHAR", "amount", "DOUBLE"]
    assert "FINISHED" in entered(shell, capsys, "\\jobs")
    entered(shell, capsys, "\\drop totals")
    assert "FINISHED" not in entered(shell, capsys, "\\jobs")


def test_a_result_goes_into_a_file_as_its_name_ends(
    shell: Shell, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, text = project / "n.csv", project / "n.txt"
    entered(shell, capsys, "INSERT INTO numbers VALUES (1), (2);")
    shown = entered(
        shell, capsys, f"\\o {csv}\nSELECT n FROM numbers ORDER BY n;\n\\o {text}\nSELECT id FROM orders;\n\\o"
    )
    assert "1\n2" not in shown
    assert csv.read_text() == "n\n1\n2\n"
    assert text.read_text().split()[:3] == ["id", "──", "1"]
    assert "(2 rows)" in entered(shell, capsys, "SELECT n FROM numbers")


def test_watch_repeats_a_query_and_plot_draws_it(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    entered(shell, capsys, "INSERT INTO numbers VALUES (1), (2);")
    assert entered(shell, capsys, "\\watch 0.01 c=3 SELECT sum(n) AS s FROM numbers").count("(1 row)") == 3
    assert entered(shell, capsys, "\\watch 0.01 c=2").count("(1 row)") == 2
    bars = entered(shell, capsys, "\\plot SELECT 'n' || n AS name, n * 10 AS tens FROM numbers ORDER BY n").splitlines()
    assert [line.split()[0] for line in bars] == ["name", "n1", "n2"]
    assert bars[0].split() == ["name", "tens"]
    assert bars[2].count("█") == 2 * bars[1].count("█") > 0
    line = entered(shell, capsys, "\\plot SELECT n, n * 2 AS twice FROM numbers").splitlines()
    assert line[0].split() == ["twice"]
    assert [text.split("│")[0].strip() for text in (line[1], line[8], line[15])] == ["4", "3", "2"]
    assert line[-1].split() == ["1", "n", "2"]
    with pytest.raises(UsageError, match="two columns"):
        entered(shell, capsys, "\\plot SELECT 1")
    # What is different looks different: names that begin alike, names that are equal, numbers that are close.
    values = "(VALUES (1, 'a'), (2, 'b'), (3, 'b')) t(i, v)"
    names = f"SELECT 'the department of the interior, ' || v AS name, 1000000 + i AS x FROM {values}"
    bars = entered(shell, capsys, f"\\plot {names} ORDER BY i").splitlines()
    assert [line.split(" █")[0] for line in bars[1:]] == [
        f"the departme…interior, {end}" for end in ("a    ", "b    ", "b (2)")
    ]
    assert [line.split("█ ")[1] for line in bars[1:]] == ["1.000001 M", "1.000002 M", "1.000003 M"]
    with pytest.raises(UsageError, match="no numbers"):
        entered(shell, capsys, "\\plot SELECT 1, 'x'")


def test_stream_and_query_take_a_statement_another_way(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert entered(shell, capsys, "\\query SELECT count(*) AS n FROM orders").splitlines()[2].strip() == "5"
    assert not shell.session.jobs
    entered(shell, capsys, "INSERT INTO numbers VALUES (7);")
    entered(shell, capsys, "SET 'sql-client.execution.result-mode' = 'tableau';")
    assert "+I" in entered(shell, capsys, "\\stream SELECT n FROM numbers LIMIT 1")


def test_a_file_that_runs_itself_and_a_wait_of_years_are_errors(shell: Shell, project: Path) -> None:
    file = project / "again.sql"
    file.write_text(f"\\i {file}")
    with pytest.raises(UsageError, match="more than 20 deep"):
        run(shell, SourceText("shell", f"\\i {file}"))
    assert shell.included == []
    with pytest.raises(SqlStreamError, match="99999999999"):
        run(shell, SourceText("shell", "\\watch 99999999999 SELECT 1"))


def test_a_command_that_does_not_exist_names_a_near_one(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"\\wach does not exist") as caught:
        entered(shell, capsys, "\\wach SELECT 1")
    assert caught.value.hint == "did you mean \\watch? \\? lists them all."
    assert "\\watch" in entered(shell, capsys, "\\?")
    assert "Time: " in entered(shell, capsys, "\\timing on\n\\d orders")


# -- rows that change


def test_an_update_takes_the_place_of_its_row() -> None:
    table = MaterializedTable(most=3)
    for kind, row in [
        ("+I", ("a", "1")),
        ("+I", ("b", "1")),
        ("-U", ("a", "1")),
        ("+U", ("a", "2")),
        ("-D", ("x", "0")),
    ]:
        table.apply(kind, row)
    assert list(table.rows()) == [("a", "2"), ("b", "1")]
    table.apply("-D", ("a", "2"))
    for row in (("c", "1"), ("d", "1"), ("e", "1")):
        table.apply("+I", row)
    # The oldest has gone: there is room for three.
    assert list(table.rows()) == [("c", "1"), ("d", "1"), ("e", "1")]
    assert table.newest(2) == [("d", "1"), ("e", "1")]


def test_an_update_of_a_full_table_has_room() -> None:
    table = MaterializedTable(most=2)
    for kind, row in [("+I", ("a",)), ("+I", ("b",)), ("-U", ("a",)), ("+I", ("c",))]:
        table.apply(kind, row)
    assert (len(table), list(table.rows())) == (2, [("b",), ("c",)])
    # The place of its row was needed, so it comes last.
    table.apply("+U", ("a2",))
    assert (len(table), list(table.rows())) == (2, [("c",), ("a2",)])
    # Of equal rows the oldest is taken away, and the row that is gone is not there.
    for kind, row in [("+I", ("a2",)), ("-D", ("c",)), ("-U", ("a2",)), ("-D", ("b",)), ("+U", ("d",))]:
        table.apply(kind, row)
    assert (len(table), list(table.rows()), table.newest(1)) == (2, [("d",), ("a2",)], [("a2",)])


def full_table(most: int) -> MaterializedTable:
    table = MaterializedTable(most)
    for number in range(most):
        table.apply("+I", (str(number),))
    return table


def test_a_row_beyond_the_limit_costs_no_more_with_many_rows() -> None:
    def cost(table: MaterializedTable) -> float:
        begin = time.process_time()
        for number in range(table.most, table.most + 300):
            table.apply("+I", (str(number),))
            table.newest(10)
        return time.process_time() - begin

    few, many = full_table(100), full_table(100_000)
    assert cost(many) < 30 * cost(few)
    assert len(many) == 100_000


def test_rows_that_are_gone_take_no_memory() -> None:
    table = full_table(100)
    tracemalloc.start()
    try:
        taken = []
        for _ in range(2):
            for number in range(3_000):
                table.apply("+I", (f"row {number}",))
                # Such as those of a query that filters the rows after its updates.
                table.apply("-U", (f"row {number}",))
                table.apply("+I", (f"next {number}",))
            taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert taken[1] < taken[0] + 50_000
    assert len(table) <= 100
