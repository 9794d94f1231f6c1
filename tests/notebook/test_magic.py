"""Notebooks: a cell of SQL in IPython, and results and jobs as HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from sqlstream.errors import UsageError
from sqlstream.notebook.magic import SESSION
from sqlstream.session.session import Session
from tests.shell.in_process import run_in_process


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "in").mkdir()
    rows = [{"shop": shop, "amount": amount} for shop, amount in [("Oslo", 2), ("Moss", 3), ("Oslo", 5)]]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # The one that IPython knows as the current one, of which it captures what is shown.
    opened: Any = InteractiveShell.instance()
    with Session(str(tmp_path)) as session:
        run_in_process(session)
        opened.push({SESSION: session})
        opened.run_line_magic("load_ext", "sqlstream.notebook")
        yield opened
        opened.run_line_magic("unload_ext", "sqlstream.notebook")
    opened.history_manager.end_session()
    InteractiveShell.clear_instance()


def html(shell: Any, value: object) -> str:
    data, _ = shell.display_formatter.format(value)
    return str(data["text/html"])


TABLES = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE orders (shop STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '10 ms');
CREATE TABLE totals (shop STRING, total BIGINT, PRIMARY KEY (shop) NOT ENFORCED);
"""


@pytest.mark.slow
def test_a_cell_runs_as_in_the_shell_and_its_result_is_html(shell: Any) -> None:
    job = shell.run_cell_magic(
        "sqlstream", "", f"{TABLES} INSERT INTO totals SELECT shop, SUM(amount) FROM orders GROUP BY shop;"
    )
    assert "RUNNING" in html(shell, job)
    assert "<td" in html(shell, job)
    # It ends by itself, with the changes of three rows: two shops are added, and one is updated.
    with capture_output() as captured:
        shell.run_cell_magic("sqlstream", "", "SELECT shop, SUM(amount) AS s FROM orders GROUP BY shop LIMIT 2;")
    assert "rows after 2 changes" in captured.outputs[-1].data["text/plain"]
    assert "Moss" in captured.outputs[-1].data["text/html"]
    job.stop()
    job.wait()
    shell.run_cell_magic("sqlstream", "found", "SELECT shop, total, '<b>' AS t FROM totals ORDER BY shop")
    assert shell.user_ns["found"].fetchall() == [("Moss", 3, "<b>"), ("Oslo", 7, "<b>")]
    shown = html(shell, shell.run_line_magic("sqlstream", "SELECT total, '<b>' AS t FROM totals WHERE shop = 'Oslo'"))
    assert '<td style="text-align:right">7</td>' in shown
    assert "&lt;b&gt;" in shown
    assert "1 row" in shown


def test_a_stream_that_is_not_last_is_refused_and_its_job_ends(shell: Any) -> None:
    with pytest.raises(UsageError, match="is the last statement of a cell"):
        shell.run_cell_magic("sqlstream", "", f"{TABLES} SELECT shop FROM orders; SELECT 1;")
    assert [job.status for job in shell.user_ns[SESSION].jobs] == ["STOPPED"]


def test_an_error_is_shown_without_frames(shell: Any) -> None:
    with capture_output() as captured:
        shell.run_cell("%%sqlstream\nSELECT nothing\nFROM sqlstream.jobs, (SELECT 1);\n\\d")
        shell.run_cell("%%sqlstream 1x\nSELECT 1")
    assert "Traceback" not in captured.stdout + captured.stderr
    shown = captured.stdout + captured.stderr
    assert "is not a name of Python" in shown
    assert "error: " in shown


def test_an_error_is_at_its_place_in_the_cell_and_a_plan_has_its_lines(shell: Any) -> None:
    shell.run_cell_magic("sqlstream", "", f"{TABLES} CREATE TABLE kept (k INT); INSERT INTO kept VALUES (1);")
    for table, place in (("orders", "bound by sqlstream"), ("kept", "bound by DuckDB")):
        with capture_output() as captured:
            shell.run_cell(f"%%sqlstream\nSHOW TABLES;\nSELECT 1,\n  nothing FROM {table}")
        shown = captured.stdout + captured.stderr
        assert "--> cell:3:3" in shown, place
        assert " 3 |   nothing FROM" in shown
    with capture_output() as captured:
        shell.run_cell(
            "%%sqlstream\nSHOW TABLES;\nCREATE TABLE t (k INT) WITH ('connector' = '${SURELY_UNSET:-datagn}')"
        )
    assert "--> cell:2:44" in captured.stdout + captured.stderr
    plan = shell.run_line_magic("sqlstream", "EXPLAIN SELECT shop, amount FROM orders")
    assert '<span style="white-space:pre-wrap">   columns:' in html(shell, plan)


@pytest.mark.slow
def test_changes_have_numbers_to_the_right_and_warnings_no_code(shell: Any) -> None:
    shell.run_cell_magic("sqlstream", "", TABLES.replace("'allow'", "'warn'"))
    with capture_output() as captured:
        shell.run_cell_magic(
            "sqlstream", "job", "INSERT INTO totals SELECT shop, SUM(amount) FROM orders GROUP BY shop"
        )
    assert "warning: " in captured.stderr
    assert "--> cell:1:33" in captured.stderr
    assert "UserWarning" not in captured.stderr
    assert "NULL" not in html(shell, shell.user_ns["job"])
    with capture_output() as captured:
        shell.run_cell_magic("sqlstream", "", "SELECT shop, amount FROM orders LIMIT 3")
    first, last = captured.outputs[0].data, captured.outputs[-1].data
    assert "no batch yet" in first["text/plain"]
    assert '<td style="text-align:left">Moss</td><td style="text-align:right">3</td>' in last["text/html"]
    assert re.search(r"Moss +3\n", last["text/plain"])
    shell.user_ns["job"].stop()
    shell.user_ns["job"].wait()
