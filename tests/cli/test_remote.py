"""`sqlstream --server URL`: the commands that a server answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sqlstream.cli.main import cli
from sqlstream.errors import UsageError
from sqlstream.session.session import Session
from tests.server.serving import serving, settings_of


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose warehouse has a table, `t`."""
    folder = tmp_path_factory.mktemp("remote")
    (folder / "catalog").mkdir()
    with Session(str(folder)) as session:
        session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)")
    with serving(settings_of(folder)) as (url, _):
        yield url


def asked(url: str, *words: str, given: str | None = None) -> tuple[str, str]:
    """Return what a command writes to standard output, and to standard error."""
    result = CliRunner().invoke(cli, ["--server", url, *words], input=given, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


def test_a_query_is_an_argument_a_file_or_on_standard_input(url: str, tmp_path: Path) -> None:
    sql = "SELECT a FROM t ORDER BY a"
    (tmp_path / "query.sql").write_text(sql)
    for words in (sql,), ("-f", str(tmp_path / "query.sql")), ("-",):
        assert asked(url, "query", "--format", "csv", *words, given=sql)[0].split() == ["a", "1", "2"]
    with pytest.raises(UsageError, match="there are two queries"):
        asked(url, "query", "-f", "query.sql", sql)


def test_files_are_one_script(url: str, tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    file.write_text("CREATE TABLE other (a INT) -- the last line; a comment;")
    out, _ = asked(url, "run", str(file), "-e", "SHOW TABLES;")
    assert "other" in out.split()
    with pytest.raises(UsageError, match="there is no SQL"):
        asked(url, "explain")
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        asked(url, "run", "--set", "pipeline.name", "-e", "SHOW TABLES")


def test_jobs_and_savepoints_are_kept_and_dropped(url: str) -> None:
    assert "t_values" in asked(url, "jobs")[0]
    assert asked(url, "savepoint", "t_values", "kept")[1] == 'savepoint "kept" of job "t_values" at version 0\n'
    assert "kept" in asked(url, "savepoints")[0]
    assert asked(url, "drop", "--savepoint", "kept")[1] == 'savepoint "kept" dropped\n'
    assert "kept" not in asked(url, "savepoints")[0]
    with pytest.raises(UsageError, match="works on a warehouse, and not on a server"):
        asked(url, "check")
