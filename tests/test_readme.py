"""README tells the truth: its lists are made from the code, its Python and SQL run. `--update` rewrites the lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.manual import guarantees
from sqlstream.errors import BindError, SourceText, SqlStreamError
from sqlstream.functions import load, register_for_queries
from sqlstream.logical.bind.expressions.flink_functions import DIFFERENT, INSTEAD, REWRITTEN, SAME
from sqlstream.operators.aggregates.functions import FUNCTIONS, REFUSED, Kind
from sqlstream.options import OPTIONS
from sqlstream.testing import Stream
from tests.kinds import jobs_of

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def aggregates() -> str:
    """The aggregate functions, by what a group keeps for them."""

    def names(*kinds: Kind) -> str:
        return ", ".join(
            f"`{name}`" for name, shape in sorted(FUNCTIONS.items()) if shape.kind in kinds and name not in INSTEAD
        )

    lists = {Kind.QUANTILE, Kind.VALUES}
    merged = [kind for kind in Kind if kind not in lists]
    return "\n".join(
        [
            f"Merged as rows arrive, a group keeps a row: {names(*merged)}.",
            "",
            f"Kept as values, a group keeps its rows: {names(*lists)}; and every `DISTINCT`, and `ORDER BY` inside.",
            "",
            f"Refused: {', '.join(f'`{name}`' for name in sorted(REFUSED))}.",
        ]
    )


def options() -> str:
    rows = [f"| `{o.name}` | {o.default or '-'} | {o.meaning} |" for o in OPTIONS.values()]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])


def flink_functions() -> str:
    """Flink's functions, by what becomes of them."""

    def names(listed: Iterable[str]) -> str:
        return ", ".join(f"`{name.upper()}`" for name in sorted(listed))

    others = "; ".join(f"`{name.upper()}`: {meaning}" for name, meaning in sorted(DIFFERENT.items()))
    return "\n".join(
        [
            f"Flink's meaning, written in DuckDB's words: {names(REWRITTEN)}, and `IS JSON`.",
            "",
            f"The same in both: {names(SAME)}.",
            "",
            f"DuckDB's meaning, which differs from Flink's: {others}.",
            "",
            f"Not there; the error says what to write: {names(INSTEAD)}.",
        ]
    )


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("aggregates", aggregates),
        ("flink functions", flink_functions),
        ("options", options),
        ("guarantees", guarantees),
    ],
)
def test_lists_are_those_of_the_code(name: str, made: Callable[[], str], request: pytest.FixtureRequest) -> None:
    text = README.read_text()
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->\n", text, re.DOTALL)
    assert found is not None
    wanted = f"{made()}\n"
    if found.group(1) != wanted and request.config.getoption("update"):
        README.write_text(text[: found.start(1)] + wanted + text[found.end(1) :])
        return
    assert found.group(1) == wanted


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_sql_compiles() -> None:
    compiler = Compiler()
    jobs = jobs_of(compiler.scripts([SourceText("README.md", block) for block in blocks("sql")]))
    assert [job.name for job in jobs] == [
        "departures",
        "totals",
        "recent",
        "delays",
        "in_euros",
        "named_visits",
        "sold",
        "hourly",
        "by_hundred",
    ]
    compiler.close()


def test_the_error_is_the_one_that_is_shown() -> None:
    compiler = Compiler()
    script = "CREATE TABLE bid (auction BIGINT, price DOUBLE) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');"
    compiler.scripts([SourceText("bid.sql", script)])
    with pytest.raises(SqlStreamError) as caught:
        compiler.scripts([SourceText("hot_items.sql", "-- Which auctions are hot?\n\nSELECT auctoin, price\nFROM bid")])
    assert isinstance(caught.value, BindError)
    assert caught.value.render() in README.read_text()
    compiler.close()


def test_the_functions_are_what_is_said(tmp_path: Path) -> None:
    for number, source in enumerate(block for block in blocks("python") if "@udf" in block):
        (tmp_path / f"readme_{number}.py").write_text(source)
    found = {f.name: f for f in load(str(tmp_path))}
    assert {name: (f.parameters, f.returns) for name, f in found.items()} == {
        "delay_band": (("DOUBLE",), "VARCHAR"),
        "euros": (("BIGINT", "DOUBLE"), "DOUBLE"),
        "Place": (("VARCHAR",), "VARCHAR"),
    }
    with duckdb.connect() as con:
        register_for_queries(con, found.values())
        result = con.execute("SELECT euros(250), euros(250, rate => 2), Place('FRA'), Place('X')").fetchall()
    assert result == [(2.5, 5.0, "Frankfurt", None)]


def test_the_source_and_the_sink_are_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [source] = [block for block in blocks("python") if "Sink" in block]
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "own.py").write_text(source)
    load(str(tmp_path / "udfs"))
    table = "CREATE TABLE {} (n BIGINT, square BIGINT) WITH ('connector' = 'python', 'class' = 'own.{}'{});"
    script = table.format("squares", "Squares", ", 'count' = '3'") + table.format("printed", "Printed", "")
    with Stream(f"{script} INSERT INTO printed SELECT * FROM squares") as stream:
        stream.finish()
    assert capsys.readouterr().out == f"0 {[{'n': n, 'square': n * n} for n in range(3)]}\n"


def test_the_lookup_finds_rows(tmp_path: Path) -> None:
    [source] = [block for block in blocks("python") if "lookups.py" in block]
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "lookups.py").write_text(source)
    load(str(tmp_path / "udfs"))
    table = "CREATE TABLE visitors (id INT, name STRING) WITH ('connector' = 'python', 'function' = 'lookups.visitor');"
    visits = "CREATE TABLE visits (visitor BIGINT, p AS PROCTIME()); CREATE TABLE out (name STRING);"
    join = "SELECT w.name FROM visits AS v JOIN visitors FOR SYSTEM_TIME AS OF v.p AS w ON w.id = v.visitor"
    with Stream(f"{table} {visits} INSERT INTO out {join}") as stream:
        stream.batch("visits", [(7,)])
        assert stream.rows() == [("visitor 7",)]


def test_the_test_passes() -> None:
    [source] = [block for block in blocks("python") if "sqlstream.testing" in block]
    exec(compile(source, "README.md", "exec"), {})


def test_the_commands_exist() -> None:
    from click.testing import CliRunner

    from sqlstream.cli.main import cli

    shown = CliRunner().invoke(cli, []).output
    for command in ("run", "query", "explain", "jobs", "stop", "drop"):
        assert f"  {command} " in shown
    assert shown.count("\n    sqlstream ") == 3
