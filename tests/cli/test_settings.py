"""`--set`, beside what the SQL sets: which of the two counts, and what is said of the one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.cli.arguments import open_session
from sqlstream.errors import SourceText
from tests.command_line import run_command

pytestmark = pytest.mark.slow

KEPT = "CREATE TABLE kept (k INT); INSERT INTO kept VALUES (1)"


def option(shown: str, name: str) -> str:
    """Return the value that `SET` lists."""
    [line] = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
    return line.split()[1]


def test_a_setting_of_the_command_goes_over_the_script_which_is_told(tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text("SET 'table.local-time-zone' = 'UTC';\nSET 'parallelism.default' = '2';\nSET;")
    shown = run_command(tmp_path, "run", "job.sql", "--set", "parallelism.default=8")
    assert shown.returncode == 0, shown.stderr
    assert option(shown.stdout, "parallelism.default") == "8"
    assert option(shown.stdout, "table.local-time-zone") == "UTC"
    assert shown.stderr == (
        "warning: --set parallelism.default goes over this SET, which does nothing\n"
        "  --> job.sql:2:5\n   |\n 2 | SET 'parallelism.default' = '2';\n   |     ^^^^^^^^^^^^^^^^^^^^^\n"
    )
    # The same value, and no value of the command.
    for words in (("--set", "parallelism.default=2"), ()):
        shown = run_command(tmp_path, "run", "job.sql", *words)
        assert (option(shown.stdout, "parallelism.default"), shown.stderr) == ("2", "")


def test_who_types_set_at_a_prompt_means_it(tmp_path: Path) -> None:
    with open_session(str(tmp_path), None, ("parallelism.default=8",), fixed=False) as session:
        session.compile(SourceText("shell", "SET 'parallelism.default' = '2'"))
        assert session.options.parallelism == 2


@pytest.mark.parametrize(
    ("sql", "setting", "said"),
    [
        (KEPT, "pipeline.name=x", "warning: --set pipeline.name does nothing: the SQL has no INSERT of a query\n"),
        (KEPT, "table.dml-sync=true", "warning: --set table.dml-sync does nothing here: it is for sqlstream shell\n"),
        (
            KEPT,
            "sqlstream.state.max-rows.nothing=5",
            'error: --set sqlstream.state.max-rows.nothing: the jobs of the script have no operator "nothing"\n',
        ),
    ],
)
def test_a_setting_that_does_nothing_is_told(tmp_path: Path, sql: str, setting: str, said: str) -> None:
    shown = run_command(tmp_path, "run", "-e", sql, "--set", setting)
    assert said in shown.stderr
    assert shown.returncode == (2 if said.startswith("error") else 0)


def test_a_hint_that_goes_over_set_table_is_told(tmp_path: Path) -> None:
    table = "CREATE TABLE t (k INT) WITH ('connector' = 'datagen', 'rows-per-second' = '5');"
    query = f"{table} SELECT k FROM t /*+ OPTIONS('rows-per-second' = '7') */"
    shown = run_command(tmp_path, "explain", "-e", query, "--set-table", "t.rows-per-second=9")
    assert shown.returncode == 0, shown.stderr
    said = 'warning: the hint goes over the "rows-per-second" that table "t" was given from outside'
    assert [line for line in shown.stderr.splitlines() if line.startswith("warning")] == [said]
