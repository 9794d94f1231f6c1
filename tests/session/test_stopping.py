"""Ctrl-C while DuckDB works: whatever becomes of it on the way, what runs ends with KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

import duckdb
import pytest

from sqlstream.duck.interrupts import keyboard_interrupts
from sqlstream.session.stopping import InterruptedBySignals

# It would take days.
LONG = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


@pytest.fixture(autouse=True)
def ctrl_c_raises() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def run_short_statements(connection: duckdb.DuckDBPyConnection) -> None:
    with keyboard_interrupts():
        while True:
            connection.execute("SELECT json_serialize_sql('SELECT 1')").fetchall()


def test_ctrl_c_between_and_within_short_statements_is_a_keyboard_interrupt() -> None:
    with duckdb.connect() as connection:
        for number in range(20):
            timer = threading.Timer(0.02 + number / 1000, press_ctrl_c)
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                run_short_statements(connection)
            timer.join()


def fail() -> None:
    with keyboard_interrupts():
        raise RuntimeError("of a function")


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="of a function"):
        fail()


def query_after_a_lost_ctrl_c(connection: duckdb.DuckDBPyConnection | None) -> None:
    with InterruptedBySignals() as interrupted:
        # As DuckDB does with what is raised in a module that it imports.
        with contextlib.suppress(KeyboardInterrupt):
            press_ctrl_c()
        if connection is not None:
            interrupted.opened(connection)
            connection.execute(LONG)


def test_a_ctrl_c_that_got_lost_before_the_query_ends_it() -> None:
    with duckdb.connect() as connection, pytest.raises(KeyboardInterrupt):
        query_after_a_lost_ctrl_c(connection)


def test_a_ctrl_c_that_got_lost_counts_when_the_query_has_ended() -> None:
    with pytest.raises(KeyboardInterrupt):
        query_after_a_lost_ctrl_c(None)
