"""The prompt: keys, several lines, completion, history; and a session on a pseudo-terminal, with Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from sqlstream.compiler.compiler import Question
from sqlstream.session.changes import Changes
from sqlstream.session.known_names import KnownNames
from sqlstream.session.session import Session
from sqlstream.shell.commands import COMMANDS
from sqlstream.shell.completion import SqlCompleter, Suggestions
from sqlstream.shell.history import append_history, history_file, read_history
from sqlstream.shell.output import ShellOutput
from sqlstream.shell.prompt import Prompt, interact
from sqlstream.shell.shell import Shell
from tests.processes import SECONDS
from tests.shell.in_process import run_in_process

ROOT = Path(__file__).parents[2]
CATALOG = """
CREATE TABLE ticks (n BIGINT, shop STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '50', 'fields.shop.length' = '1');
CREATE TABLE totals (shop STRING, orders BIGINT, PRIMARY KEY (shop) NOT ENFORCED);
CREATE VIEW small AS SELECT n AS number FROM ticks WHERE n < 10;
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "tables.sql").write_text(CATALOG)
    return tmp_path


@pytest.fixture
def session(project: Path) -> Iterator[Session]:
    with Session(str(project)) as opened:
        run_in_process(opened)
        yield opened


def typed(session: Session, history: Path, keys: str | bytes) -> None:
    """Type keys at a prompt until the shell ends."""
    shell = Shell(session, ShellOutput(interactive=True))
    with create_pipe_input() as input:
        input.send_bytes(keys if isinstance(keys, bytes) else keys.encode())
        interact(shell, Prompt(session, history, input=input, output=DummyOutput()))
    shell.close()


# -- the prompt


def test_a_statement_has_several_lines_and_an_error_does_not_end_the_shell(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history"
    typed(session, history, "SELECT 1 +\r41 AS answer;\rSELECT nothing;\rINSERT INTO totals VALUES ('a', 3);\r\\q\r")
    shown = capsys.readouterr()
    assert "42" in shown.out
    assert 'column "nothing" does not exist' in shown.out
    assert session.query("SELECT orders FROM totals").fetchall() == [(3,)]
    assert read_history(history)[0] == "SELECT 1 +\n41 AS answer;"


def test_the_history_comes_back_without_secrets(session: Session, tmp_path: Path) -> None:
    history = tmp_path / "state" / "history"
    append_history(history, "SET 'pipeline.name' = 'first';")
    up, control_d = "\x1b[A", "\x04"
    typed(session, history, f"{up}\r{control_d}")
    assert session.options.text("pipeline.name") == "first"
    append_history(history, "CREATE TABLE t (a INT) WITH ('password' = 'hunter22');")
    assert "hunter22" not in read_history(history)[-1]
    assert "CREATE TABLE t" in read_history(history)[-1]
    assert history.stat().st_mode & 0o077 == 0


def test_what_is_no_text_and_a_full_disk_do_not_end_the_shell(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history"
    typed(session, history, b"SELECT '\xff', 'a\xe2\x80\xa8b';\r\\o /dev/full\rSELECT 1;\r\\o\rSELECT 40 + 2;\r\\q\r")
    shown = capsys.readouterr().out
    assert 'file "/dev/full" cannot be written' in shown
    assert "42" in shown
    # A line of its own in Unicode, and not in the file.
    assert read_history(history)[:2] == ["SELECT '?', 'a\u2028b';", "\\o /dev/full"]


MALFORMED = """
CREATE TABLE visits (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'json.errors-to' = 'bad');
"""


def test_a_select_skips_malformed_rows_and_keeps_none(
    session: Session, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "in").mkdir()
    (project / "in" / "a.json").write_text('{"id": 4321}\nnothing\n')
    session.sql(MALFORMED)
    typed(session, tmp_path / "history", "SELECT id + 1 AS next FROM visits;\rSELECT 40 + 2;\r\\q\r")
    shown = capsys.readouterr().out
    assert "4322" in shown
    assert "42" in shown
    assert "bad" not in session.warehouse.tables()


def test_python_gets_the_rows_of_a_select_that_skips_malformed_ones(session: Session, project: Path) -> None:
    (project / "in").mkdir()
    (project / "in" / "a.json").write_text('{"id": 1}\nnothing\n{"id": 2}\n')
    session.sql(MALFORMED)
    found = session.sql("SELECT id FROM visits")
    assert isinstance(found, duckdb.DuckDBPyRelation)
    assert sorted(found.fetchall()) == [(1,), (2,)]
    watched = session.sql("SELECT id FROM visits /*+ OPTIONS('source.monitor-interval' = '10 ms') */")
    assert isinstance(watched, Changes)
    assert sorted(watched.take(SECONDS)[0].row) == ["id"]
    watched.close()


class _Panic(BaseException):
    """What a panic of Rust's code is to Python."""


@pytest.mark.parametrize(
    "error", [ValueError("too many values to unpack\n(expected 1)"), _Panic("index out of bounds")]
)
def test_a_mistake_does_not_end_the_shell(
    error: BaseException,
    session: Session,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = session.answer

    def mistaken(question: Question) -> duckdb.DuckDBPyRelation:
        monkeypatch.setattr(session, "answer", answer)
        raise error

    monkeypatch.setattr(session, "answer", mistaken)
    typed(session, tmp_path / "history", "SHOW TABLES;\rSELECT 40 + 2;\r\\q\r")
    shown = capsys.readouterr().out
    assert re.search(rf"error: unexpected {type(error).__name__} at \S+test_prompt.py:\d+", shown)
    assert "Traceback" not in shown
    assert "42" in shown


def test_the_history_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "sqlstream" / "history"
    assert read_history(tmp_path / "nothing") == []


# -- completion


@pytest.fixture
def suggestions(session: Session) -> Suggestions:
    session.sql("INSERT INTO totals VALUES ('a', 3)")
    return Suggestions(KnownNames(session), {name: known.about for name, known in COMMANDS.items()})


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("\\wa", "watch", "plot"),
        ("\\stop tot", "totals_values", "totals"),
        ("\\d sm", "small", "ticks"),
        ("SELECT * FROM t", "ticks", "small"),
        ("SELECT 1; SELECT * FROM ti", "ticks", "totals"),
        ("FROM sqlstream.sn", "sqlstream.snapshots", "sqlstream.jobs"),
        ("SELECT * FROM TUMBLE(TABLE ti", "ticks", "totals"),
        ("INSERT INTO ", "totals", "small"),
        ("SELECT * FROM small WHERE nu", "number", "n"),
        ("SELECT t.o FROM totals AS t WHERE t.", "orders", "ticks"),
        ("SELECT json_ex", "json_exists", "orders"),
        ("SEL", "SELECT", "SET"),
        ("SET 'sql-client.", "sql-client.execution.result-mode", "pipeline.name"),
        ("CREATE TABLE x (a INT) WITH ('conn", "connector", "path"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'files", "filesystem", "kafka"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'filesystem', 'pa", "path", "connector"),
        ("CREATE SAVEPOINT s FOR JOB ", "totals_values", "totals"),
    ],
)
def test_what_can_stand_at_the_cursor_is_offered(
    suggestions: Suggestions, text: str, wanted: str, unwanted: str
) -> None:
    found = [one.text for one in suggestions.behind(text)]
    assert wanted in found
    assert unwanted not in found


def test_columns_come_from_what_follows_the_cursor_too(suggestions: Suggestions) -> None:
    document = Document("SELECT or FROM totals", cursor_position=len("SELECT or"))
    found = list(SqlCompleter(suggestions).get_completions(document, CompleteEvent()))
    assert (found[0].text, found[0].start_position) == ("orders", -2)


# -- a terminal


class Terminal:
    """`sqlstream shell` on a pseudo-terminal, whose jobs run in its process.

    It is started with Ctrl-C ignored, as a script starts what runs in the background.
    """

    def __init__(self, project: Path):
        self._main, other = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(project / "state"), "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        environment |= {"PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "100", "LINES": "30"}
        command = [sys.executable, "-m", "tests.shell.in_process", "shell", "--project", str(project)]
        self._process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        os.close(other)
        self._seen = ""

    def enter(self, text: str) -> None:
        os.write(self._main, f"{text}\r".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._main, b"\x03")

    def expect(self, pattern: str) -> str:
        """Wait until something is shown, and return it with what came before; it is not looked at again."""
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self._seen, re.DOTALL)):
            assert time.monotonic() < deadline, f"{pattern} is not in {self._seen}"
            assert self._read(), f"{pattern} is not in {self._seen}"
        before, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return before

    def _read(self) -> bool:
        try:
            if not select.select([self._main], [], [], 1.0)[0]:
                return self._process.poll() is None
            text = os.read(self._main, 65536).decode(errors="replace")
        except OSError:
            # The other end is closed.
            return False
        self._seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        return bool(text)

    def end(self) -> int:
        """Wait for the end of the shell."""
        while self._read():
            pass
        return self._process.wait(SECONDS)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._main)


@contextmanager
def opened(project: Path) -> Iterator[Terminal]:
    terminal = Terminal(project)
    try:
        yield terminal
    finally:
        terminal.kill()


@pytest.mark.slow
def test_ctrl_c_interrupts_a_query_and_sigterm_stops_jobs_after_their_batch(project: Path) -> None:
    with opened(project) as terminal:
        terminal.expect("sqlstream>")
        terminal.enter("INSERT INTO totals SELECT shop, COUNT(*) FROM ticks GROUP BY shop;")
        terminal.expect('job "totals" runs in the background.*sqlstream>')
        # The second one would take days.
        terminal.enter("SELECT 7 AS seven; SELECT count(*) FROM range(100000000000) a, range(1000) b;")
        terminal.expect(r"\(1 row\)")
        terminal.interrupt()
        terminal.expect("interrupted.*sqlstream>")
        terminal.terminate()
        terminal.expect(r"stopping totals .*totals: stopped after batch \d+")
        assert terminal.end() == 0
    with Session(str(project)) as session:
        assert session.query("SELECT status FROM sqlstream.jobs").fetchall() == [("STOPPED",)]


@pytest.mark.slow
def test_a_session_on_a_terminal(project: Path) -> None:
    with opened(project) as terminal:
        terminal.expect("sqlstream>")
        terminal.enter("INSERT INTO totals SELECT shop, COUNT(*) FROM ticks GROUP BY shop;")
        terminal.expect('job "totals" runs in the background')
        terminal.enter("SELECT shop, COUNT(*) AS n FROM ticks GROUP BY shop;")
        # A table that is drawn again and again, above a line about its job.
        terminal.expect(r"batch [1-9]\d*, [1-9]\d* rows in; Ctrl-C ends it")
        terminal.interrupt()
        terminal.expect("sqlstream>")
        terminal.enter("SET 'sql-client.execution.result-mode' = 'changelog';")
        terminal.enter("SELECT shop, COUNT(*) AS n FROM ticks GROUP BY shop;")
        terminal.expect(r"\+U")
        terminal.expect(r"changes: .*; Ctrl-C ends it")
        terminal.interrupt()
        terminal.enter("\\watch 0.1 SELECT count(*) AS shops FROM totals")
        for _ in range(3):
            terminal.expect(r"\(1 row\)")
        terminal.interrupt()
        terminal.enter("SELECT orders, nothing FROM totals;")
        terminal.expect(r"does not exist.*\^{7}.*hint: existing columns")
        terminal.enter("\\jobs")
        terminal.expect("totals +RUNNING")
        terminal.enter("\\stop totals")
        terminal.expect(r"totals: stopped after batch \d+")
        terminal.enter("INSERT INTO totals SELECT shop, COUNT(*) FROM ticks GROUP BY shop;")
        terminal.expect('job "totals" runs in the background')
        terminal.enter("\\q")
        terminal.expect(r"stopping totals .*totals: stopped after batch \d+")
        assert terminal.end() == 0
    with Session(str(project)) as session:
        assert session.query("SELECT status FROM sqlstream.jobs WHERE job = 'totals'").fetchall() == [("STOPPED",)]
        # The queries have left nothing.
        assert session.query("SELECT count(*) FROM sqlstream.jobs").fetchall() == [(1,)]


WAITS = """
import os, time
from sqlstream import udf

@udf
def waits(shop: str) -> str:
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    return shop
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["table", "tableau"])
def test_ctrl_c_does_not_wait_for_the_batch_of_a_select(project: Path, mode: str) -> None:
    (project / "udfs").mkdir()
    (project / "udfs" / "waiting.py").write_text(WAITS.format(go=str(project / "go")))
    with opened(project) as terminal:
        terminal.expect("sqlstream>")
        terminal.enter(f"SET 'sql-client.execution.result-mode' = '{mode}';")
        terminal.expect("sqlstream>")
        terminal.enter("SELECT waits(shop) AS s FROM ticks;")
        terminal.expect("no batch yet; Ctrl-C ends it")
        # What is typed meanwhile is not shown in the middle.
        terminal.enter("typed")
        terminal.interrupt()
        shown = terminal.expect("sqlstream>")
        assert "typed" not in shown
        assert "^C" not in shown
        terminal.enter("SELECT 3 * 37 AS later;")
        terminal.expect(r"111.*\(1 row\)")
        (project / "go").touch()
        terminal.enter("\\q")
        assert terminal.end() == 0
    with Session(str(project)) as session:
        assert session.query("SELECT count(*) FROM sqlstream.jobs").fetchall() == [(0,)]
