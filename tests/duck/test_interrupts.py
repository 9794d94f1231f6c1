"""Ctrl-C while DuckDB works: whatever becomes of it on the way, what runs ends with KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import duckdb
import pytest

from sqlstream.duck.interrupts import keyboard_interrupts


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
