"""`sqlstream --server URL`: the commands that a server answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from sqlstream.cli.main import cli
from sqlstream.cli.remote import FOLDERS, LOCAL_COMMANDS, LOCAL_PARAMETERS, remote
from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.local.engine import LocalEngine
from sqlstream.server.client import RemoteError
from sqlstream.server.submissions import Submission
from sqlstream.session.session import Session
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import DRAINED, read_status, write_status
from tests.kinds import job_of, jobs_of
from tests.processes import wait_until
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


@pytest.mark.slow
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


# -- parity with the commands on a warehouse


def options(command: click.Command) -> dict[str, tuple[object, ...]]:
    """Return what can be said of each parameter, by its name."""
    return {
        p.name or "": (p.param_type_name, p.opts, p.nargs, p.multiple, p.required, getattr(p, "is_flag", False))
        for p in command.params
    }


def test_a_server_answers_each_command_with_all_its_parameters_or_says_why_not() -> None:
    context = click.Context(cli)
    assert {*cli.commands} == {*remote.commands, *LOCAL_COMMANDS}
    assert not {*remote.commands} & {*LOCAL_COMMANDS}
    for name, command in remote.commands.items():
        local, only_local = options(cli.commands[name]), LOCAL_PARAMETERS.get(name, {})
        assert only_local.keys() <= local.keys()
        shared = {k: v for k, v in local.items() if k not in only_local and k not in FOLDERS}
        assert options(command) == shared, name
        for parameter in (p for p in cli.commands[name].params if p.name in {*only_local, *FOLDERS}):
            with pytest.raises(UsageError, match="is not for a server") as raised:
                command.make_context(name, [parameter.opts[0], "x"], parent=context)
            assert raised.value.hint
    assert LOCAL_PARAMETERS.keys() <= remote.commands.keys()


PLANS = """
CREATE TABLE visit (page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
CREATE TABLE visits (page STRING, window_start TIMESTAMP(3), n BIGINT);
INSERT INTO visits WITH hourly AS (
    SELECT page, window_start, window_end, COUNT(*) AS n
    FROM TUMBLE(TABLE visit, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY page, window_start, window_end)
SELECT page, window_start, n FROM hourly;
"""
# Where a test can change it.
TOTALS = """
CREATE TABLE item (k INT, n INT) WITH ('connector' = 'filesystem', 'path' = 'items', 'format' = 'csv');
CREATE TABLE totals (k INT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals SELECT k, SUM(n) FROM item {where} GROUP BY k;
"""


class Submissions:
    """Takes submissions in place of `sqlstream run`: their processes end at once."""

    def __init__(self) -> None:
        self.seen: list[Submission] = []

    def __call__(self, submission: Submission, jobs: Sequence[str]) -> list[str]:
        self.seen.append(submission)
        return [sys.executable, "-c", ""]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with jobs that wait for more input, their windows open."""
    folder = tmp_path_factory.mktemp("parity")
    for name in ("catalog", "in", "items"):
        (folder / name).mkdir()
    (folder / "in" / "1.csv").write_text("/a,2026-03-01 10:00:01\n/a,2026-03-01 11:00:02\n/b,2026-03-01 11:00:03\n")
    (folder / "items" / "1.csv").write_text("1,2\n2,3\n1,4\n")
    waiting = "SET 'execution.end-of-input' = 'wait';"
    with Session(str(folder)) as session:
        for script in (PLANS, TOTALS.format(where="")):
            [planned] = jobs_of(session.compile(SourceText("script", waiting + script)))
            job_of(session._jobs.start(planned, {}, engine=LocalEngine())).wait()
        take_savepoint(session.warehouse, "visits", "kept")
    (folder / "visits.sql").write_text(waiting + PLANS)
    (folder / "totals.sql").write_text(waiting + TOTALS.format(where=""))
    (folder / "changed.sql").write_text(waiting + TOTALS.format(where="WHERE n > 2"))
    return folder


@pytest.fixture(scope="module")
def served(project: Path) -> Iterator[tuple[str, Submissions]]:
    taken = Submissions()
    with serving(settings_of(project), taken) as (url, _):
        yield url, taken


def both(project: Path, url: str, *words: str) -> tuple[Result, Result]:
    """Run a command on the warehouse, and on the server."""
    local = CliRunner().invoke(cli, [*words, "--project", str(project)], standalone_mode=False)
    return local, CliRunner().invoke(cli, ["--server", url, *words], standalone_mode=False)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs",),
        ("savepoints",),
        ("savepoints", "visits"),
        ("savepoints", "totals"),
        ("query", "SELECT * FROM totals ORDER BY k"),
        ("diff", "visits.hourly", "0", "1"),
        ("diff", "totals.aggregate_1", "kept", "0"),
        ("diff", "visits.hourly", "kept", "1", "--format", "csv"),
        ("why", "visits.hourly", "/a"),
        ("why", "visits.hourly", "page=/b", "--at", "kept"),
        ("why", "totals.aggregate_1", "1", "--format", "json"),
        ("why", "totals.aggregate_1", "1", "2"),
        ("why", "totals.aggregate_1", "kk=1"),
        ("ttl", "totals", "1h", "7d"),
        ("verify", "visits"),
        ("verify", "totals", "{}/totals.sql"),
        ("verify", "totals", "{}/visits.sql"),
        ("verify", "visits", "--at", "kept"),
        ("verify", "nothing"),
        ("explain", "{}/visits.sql"),
        ("explain", "--verbose", "{}/totals.sql"),
        ("explain", "--stage", "state", "{}/visits.sql"),
        ("explain", "--stage", "logical", "{}/visits.sql"),
        ("explain", "--batch", "{}/visits.sql"),
        ("explain", "--batch", "visits"),
        ("explain", "--against", "totals", "{}/changed.sql"),
        ("explain", "--set-table", "visit.path=other", "--stage", "optimized", "{}/visits.sql"),
        ("stop", "--all"),
        ("stop", "totals"),
    ],
)
def test_a_command_says_the_same_on_a_warehouse_and_on_a_server(
    project: Path, served: tuple[str, Submissions], words: tuple[str, ...]
) -> None:
    local, far = both(project, served[0], *(word.format(project) for word in words))
    assert local.stdout == far.stdout
    assert local.stderr == far.stderr
    failed = [type(found.exception) for found in (local, far) if isinstance(found.exception, SqlStreamError)]
    assert len(failed) in (0, 2)
    assert (local.exit_code, local.return_value) == (far.exit_code, far.return_value)
    if failed:
        assert isinstance(local.exception, SqlStreamError)
        assert isinstance(far.exception, RemoteError)
        assert local.exception.message == far.exception.message


def test_a_job_that_is_over_is_not_submitted(project: Path, served: tuple[str, Submissions]) -> None:
    url, taken = served
    warehouse = Warehouse(str(project / "warehouse"))
    status = read_status(warehouse.fs, warehouse.job("visits"))
    assert status is not None
    write_status(warehouse.fs, warehouse.job("visits"), replace(status, state=DRAINED))
    count = len(taken.seen)
    try:
        out, said = asked(url, "run", str(project / "visits.sql"))
    finally:
        write_status(warehouse.fs, warehouse.job("visits"), status)
    assert out == ""
    assert said.startswith('job "visits" is drained and was skipped. All its windows were closed')
    assert said.count("\n") == 1
    assert len(taken.seen) == count


def test_an_upgrade_is_shown_before_it_is_submitted(project: Path, served: tuple[str, Submissions]) -> None:
    url, taken = served
    changed = str(project / "changed.sql")
    count = len(taken.seen)
    with pytest.raises(UsageError, match="an upgrade has to be confirmed"):
        asked(url, "run", "--upgrade", changed)
    assert len(taken.seen) == count
    out, _ = asked(url, "explain", "--against", "totals", changed)
    _, said = asked(url, "run", "--upgrade", "--yes", changed)
    assert said.startswith(out)
    assert said.endswith('job "totals" submitted\n')
    wait_until(lambda: len(taken.seen) > count)
    assert taken.seen[-1].upgrade


def test_what_is_given_beside_a_script_goes_along(project: Path, served: tuple[str, Submissions]) -> None:
    url, taken = served
    more = "CREATE TABLE copied (k INT, n INT); INSERT INTO copied SELECT k, n FROM item;"
    count = len(taken.seen)
    words = (
        "-e",
        TOTALS.format(where="") + more,
        "--set-table",
        "item.source.max-files-per-batch=1",
        "--job",
        "Copied",
    )
    _, said = asked(url, "run", *words, "--set", "parallelism.default=2", "--fresh")
    assert said == 'job "copied" submitted\n'
    wait_until(lambda: len(taken.seen) > count)
    last = taken.seen[-1]
    assert (last.jobs, last.fresh) == (("copied",), ("copied",))
    assert last.tables == {"item": {"source.max-files-per-batch": "1"}}
    assert last.settings == {"parallelism.default": "2"}
    with pytest.raises(RemoteError, match='there is no job "nothing" in the SQL'):
        asked(url, "run", *words[:2], "--job", "nothing")
    with pytest.raises(RemoteError, match="a job begins anew, or is upgraded"):
        asked(url, "run", *words[:2], "--fresh=copied", "--upgrade", "--yes")
