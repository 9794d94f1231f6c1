"""Ctrl-C while DuckDB works: it is not lost, whatever becomes of DuckDB's error."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sqlstream.errors import SourceText
from sqlstream.session.routing import Route, route
from sqlstream.session.session import Session
from sqlstream.session.stopping import InterruptedBySignals
from sqlstream.shell import shell as shells
from sqlstream.shell.commands import run
from sqlstream.shell.output import ShellOutput
from sqlstream.shell.shell import Shell
from tests.shell.in_process import run_in_process

# It would take days.
ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> Iterator[None]:
    """Let Ctrl-C be what it is at a prompt, also where the tests are run with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def press_ctrl_c(begun: threading.Event) -> threading.Thread:
    """Send SIGINT to this process once something has begun."""

    def send() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def interrupted_query(begun: threading.Event, *handled: type[BaseException]) -> None:
    """Run a query that Ctrl-C interrupts, and handle some errors of it."""
    with duckdb.connect() as con, InterruptedBySignals() as interrupted:
        interrupted.opened(con)
        with contextlib.suppress(*handled):
            begun.set()
            con.execute(ENDLESS)


def test_ctrl_c_that_became_an_error_which_was_handled_is_raised_at_the_end() -> None:
    begun = threading.Event()
    thread = press_ctrl_c(begun)
    # As what asks DuckDB whether a text is a query does with its errors.
    with pytest.raises(KeyboardInterrupt):
        interrupted_query(begun, duckdb.Error, RuntimeError, KeyboardInterrupt)
    thread.join()


def test_an_error_of_a_query_that_was_interrupted_is_ctrl_c() -> None:
    begun = threading.Event()
    thread = press_ctrl_c(begun)
    with pytest.raises(KeyboardInterrupt):
        interrupted_query(begun)
    thread.join()


def test_without_a_signal_nothing_is_raised_and_signals_are_as_before() -> None:
    with InterruptedBySignals():
        assert signal.set_wakeup_fd(signal.set_wakeup_fd(-1)) == -1
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(ValueError, match="own"), InterruptedBySignals():
        raise ValueError("own")


@pytest.mark.parametrize("where", ["route", "compile"])
def test_ctrl_c_between_statements_of_a_script_ends_it(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key is pressed while DuckDB is asked what a statement is, and its error taken for an answer."""
    with Session(str(tmp_path)) as session:
        run_in_process(session)
        shell = Shell(session, ShellOutput(interactive=False))

        def pressed() -> None:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

        def route_late(source: SourceText, compiler: object) -> Route:
            if where == "route" and "second" in source.text:
                pressed()
            return route(source, session.compiler)

        compiled = session.compile

        def compile_late(source: SourceText) -> object:
            if where == "compile" and "second" in source.text:
                pressed()
            return compiled(source)

        monkeypatch.setattr(shells, "route", route_late)
        monkeypatch.setattr(session, "compile", compile_late)
        script = "SELECT 1 AS first; CREATE TABLE second (n BIGINT); CREATE TABLE third (n BIGINT)"
        with pytest.raises(KeyboardInterrupt):
            run(shell, SourceText("shell", script))
        assert "first" in capsys.readouterr().out
        assert session.compiler.catalog.declared("third") is None
        shell.close()
