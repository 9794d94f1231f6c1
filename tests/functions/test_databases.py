"""Databases with functions that a process keeps for the next who asks for the same."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sqlstream.catalog import Function
from sqlstream.compiler.compiler import Compiler
from sqlstream.duck import databases as shared
from sqlstream.functions import databases, declare
from sqlstream.functions.databases import open_database

SETTINGS = {"threads": 1}


def twice(x: int) -> int:
    return x * 2


def logged(path: Path) -> Function:
    log = str(path)

    class Logged:
        def open(self) -> None:
            with open(log, "a") as file:
                file.write("open ")

        def __call__(self, x: int) -> int:
            return x

        def close(self) -> None:
            with open(log, "a") as file:
                file.write("close ")

    return declare(Logged)


@pytest.fixture(autouse=True)
def nothing_idle() -> None:
    databases.close_idle()


def test_one_that_was_given_back_is_used_again_by_who_has_the_same_functions_and_settings() -> None:
    function = declare(twice)
    first = open_database([function], SETTINGS)
    at_the_same_time = open_database([function], SETTINGS)
    assert at_the_same_time is not first
    first.close()
    assert open_database([], SETTINGS) is not first
    assert open_database([function], {"threads": 2}) is not first
    again = open_database([function], SETTINGS)
    assert again is first
    assert again.cursor().execute("SELECT twice(2)").fetchall() == [(4,)]


def test_what_was_added_or_removed_counts() -> None:
    function = declare(twice)
    grown, shrunk = open_database([], SETTINGS), open_database([function], SETTINGS)
    grown.add(function)
    shrunk.remove(function)
    grown.close()
    shrunk.close()
    assert open_database([function], SETTINGS) is grown
    assert open_database([], SETTINGS) is shrunk
    with pytest.raises(duckdb.CatalogException):
        shrunk.cursor().execute("SELECT twice(2)")


def test_nothing_is_left_of_who_used_it_before() -> None:
    database = open_database([], SETTINGS)
    with database.cursor() as con:
        con.execute("CREATE TEMP TABLE t AS SELECT 1 AS x; SET VARIABLE v = 1; SET TimeZone = 'Asia/Tokyo'")
    database.close()
    assert open_database([], SETTINGS) is database
    with database.cursor() as con:
        assert con.execute("SELECT getvariable('v'), current_setting('TimeZone') = 'Asia/Tokyo'").fetchall() == [
            (None, False)
        ]
        with pytest.raises(duckdb.CatalogException):
            con.execute("FROM t")


def test_resources_are_closed_when_it_is_given_back_and_opened_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    function = logged(log)
    for _ in range(2):
        database = open_database([function], SETTINGS)
        database.cursor().execute("SELECT Logged(1)").fetchall()
        database.close()
    assert log.read_text() == "open close open close "


def test_few_are_kept() -> None:
    opened = [open_database([], SETTINGS) for _ in range(databases.IDLE + 2)]
    for database in opened:
        database.close()
    assert databases._idle == opened[2:]


def test_compilers_after_each_other_use_one() -> None:
    used = []
    for _ in range(2):
        compiler = Compiler()
        compiler.add_functions([declare(twice)])
        used.append(compiler._functions._database)
        compiler.close()
    assert used[0] is used[1]
    assert used[0] is not None


def test_what_a_passing_connection_leaves_behind_goes_with_it() -> None:
    with shared.passing() as con:
        con.execute("CREATE TEMP TABLE t AS SELECT 1 AS x; SET TimeZone = 'Asia/Tokyo'")
    with shared.passing() as con:
        assert con.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        with pytest.raises(duckdb.CatalogException):
            con.execute("FROM t")
