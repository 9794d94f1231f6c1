"""README tells the truth: its lists are made from the code, its Python and SQL run. `--update` rewrites the lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sqlstream.compiler import Compiler
from sqlstream.connectors.guarantees import matrix
from sqlstream.errors import BindError, Source, SqlStreamError
from sqlstream.functions import load
from sqlstream.operators.aggregate_table import FUNCTIONS, REFUSED, Kind
from sqlstream.options import OPTIONS
from sqlstream.testing import Stream

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def aggregates() -> str:
    """The aggregate functions, by what a group keeps for them."""

    def names(*kinds: Kind) -> str:
        return ", ".join(f"`{name}`" for name, shape in sorted(FUNCTIONS.items()) if shape.kind in kinds)

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


@pytest.mark.parametrize(("name", "made"), [("aggregates", aggregates), ("options", options), ("guarantees", matrix)])
def test_lists_are_those_of_the_code(name: str, made, request: pytest.FixtureRequest) -> None:
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
    jobs = compiler.scripts([Source("README.md", block) for block in blocks("sql")])
    assert [job.name for job in jobs] == ["departures"]
    compiler.close()


def test_the_error_is_the_one_that_is_shown() -> None:
    compiler = Compiler()
    script = "CREATE TABLE bid (auction BIGINT, price DOUBLE) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');"
    compiler.scripts([Source("bid.sql", script)])
    with pytest.raises(SqlStreamError) as caught:
        compiler.scripts([Source("hot_items.sql", "-- Which auctions are hot?\n\nSELECT auctoin, price\nFROM bid")])
    assert isinstance(caught.value, BindError)
    assert caught.value.render() in README.read_text()
    compiler.close()


def test_the_function_is_one(tmp_path: Path) -> None:
    [source] = [block for block in blocks("python") if "@udf" in block]
    (tmp_path / "flights.py").write_text(source)
    [function] = load(str(tmp_path))
    assert (function.name, function.parameters, function.returns) == ("delay_band", ("DOUBLE",), "VARCHAR")


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


def test_the_test_passes() -> None:
    [source] = [block for block in blocks("python") if "sqlstream.testing" in block]
    exec(compile(source, "README.md", "exec"), {})


def test_the_commands_exist() -> None:
    from click.testing import CliRunner

    from sqlstream.cli import cli

    shown = CliRunner().invoke(cli, []).output
    for command in ("run", "query", "explain", "jobs", "stop", "drop"):
        assert f"  {command} " in shown
    assert shown.count("\n    sqlstream ") == 3
