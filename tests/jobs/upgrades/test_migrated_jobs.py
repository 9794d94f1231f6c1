"""Jobs that go on with state that MIGRATE STATE has made: of the same query, of another one, and from savepoints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import plan_restore
from sqlstream.local.engine import LocalEngine
from sqlstream.session.upgrades import upgrade_with
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.jobs.savepoint_jobs import (
    FIRST,
    FORK,
    INPUT,
    JOB,
    SCRIPT,
    SECOND,
    THIRD,
    Rows,
    batch,
    open_session,
    put,
    results,
    rows_of,
    run_over,
    wait_until_done,
)
from tests.processes import SECONDS

pytestmark = pytest.mark.slow

# The first job counts by k; the changed one by whether k is even.
BY_KEY = (
    INPUT
    + """
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals WITH counted AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT k, n FROM counted;
"""
)
BY_PARITY = (
    INPUT
    + """
CREATE TABLE parities (even BOOLEAN, n BIGINT, last TIMESTAMP(3), PRIMARY KEY (even) NOT ENFORCED);
SET 'pipeline.name' = 'totals';
INSERT INTO parities WITH counted AS (SELECT k % 2 = 0 AS even, count(*) AS n, max(ts) AS last FROM t GROUP BY k % 2 = 0)
SELECT even, n, last FROM counted;
"""
)


def go_on(
    session: Session, script: str, rows: Rows, migrate: str, *, savepoint: str | None = None, name: str | None = None
) -> None:
    """Let a job go on with what a file of migrations says, until it has read some rows in all, and stop it."""
    compiled, restored = plan_restore(session.compile(SourceText("script", script)), session.warehouse, savepoint, name)
    source = SourceText("repair.sql", migrate)
    upgrade = upgrade_with(session.project, session.compiler, compiled, source, restored.values())
    [planned] = [one for one in compiled if isinstance(one, PlannedJob)]
    restore = restored.get(planned.name)
    job = session._jobs.start(planned, {}, engine=LocalEngine(), restore=restore, upgrade=upgrade)
    wait_until_done(session, job, rows)
    job.stop()
    assert job.wait(SECONDS)


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """A job that has counted the first rows, and files for it to go on with."""
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        take_savepoint(s.warehouse, JOB, "first")
    put(tmp_path, "b", SECOND)
    return tmp_path


REPAIR = (
    "MIGRATE STATE {job}.by_key AS SELECT k, CASE WHEN k = 1 THEN n + 100 ELSE n END AS n, last FROM by_key.partials"
)


def repaired(rows: Rows) -> tuple[object, object]:
    """Return what a job has that read some rows, of which a hundred more of key 1 were before."""
    windows, totals = batch(rows)
    return windows, sorted(((k, n + 100 if k == 1 else n, s) for k, n, s in totals), key=repr)  # type: ignore[operator]


def test_state_is_repaired_while_the_query_stays(counted: Path) -> None:
    with open_session(counted) as s:
        go_on(s, SCRIPT, [*FIRST, *SECOND], REPAIR.format(job=JOB))
        assert results(s) == repaired([*FIRST, *SECOND])
        # It goes on as any other job, without the file, and the savepoint that was taken leads back.
        put(counted, "c", THIRD)
        run_over(s, [*FIRST, *SECOND, *THIRD])
        assert results(s) == repaired([*FIRST, *SECOND, *THIRD])
        [(taken,)] = rows_of(s, "SELECT savepoint FROM sqlstream.savepoints WHERE savepoint <> 'first'")
        run_over(s, [*FIRST, *SECOND, *THIRD], restore=str(taken))
        assert results(s) == batch([*FIRST, *SECOND, *THIRD])


def test_a_job_goes_back_behind_a_migration_after_which_nothing_came(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        run_over(s, FIRST)
        go_on(s, SCRIPT, FIRST, REPAIR.format(job=JOB))
        [taken] = s.warehouse.savepoints()
        put(tmp_path, "b", SECOND)
        run_over(s, [*FIRST, *SECOND], restore=taken)
        assert results(s) == batch([*FIRST, *SECOND])


def test_a_fork_of_a_savepoint_is_repaired_and_the_job_is_not(counted: Path) -> None:
    with open_session(counted) as s:
        run_over(s, [*FIRST, *SECOND])
        # The fork can be called by its name, and by that of the job of the savepoint.
        go_on(s, FORK, [*FIRST, *SECOND], REPAIR.format(job=JOB), savepoint="first", name="other")
        assert results(s, "windows_b", "totals_b") == repaired([*FIRST, *SECOND])
        assert results(s) == batch([*FIRST, *SECOND])
        go_on(s, SCRIPT, [*FIRST, *SECOND], REPAIR.format(job=JOB), savepoint="first")
        assert results(s) == repaired([*FIRST, *SECOND])


def test_a_query_with_other_keys_goes_on_with_state_that_is_made_of_the_old_one(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    migrate = """
    MIGRATE STATE totals.counted AS
    SELECT k % 2 = 0 AS even, sum(n)::BIGINT AS n, NULL AS last FROM counted.partials GROUP BY ALL
    """
    with open_session(tmp_path) as s:
        run_over(s, FIRST, BY_KEY)
        put(tmp_path, "b", SECOND)
        go_on(s, BY_PARITY, [*FIRST, *SECOND], migrate)
        found = rows_of(s, "SELECT even, n, epoch(last)::BIGINT FROM state.totals.counted")
    counts = Counter(k % 2 == 0 for k, _ in [*FIRST, *SECOND])
    # The old state knew no times: those of the rows that came since count.
    last = {even: max(s for k, s in SECOND if (k % 2 == 0) == even) for even in counts}
    assert found == sorted(((even, n, last[even]) for even, n in counts.items()), key=repr)


@pytest.mark.parametrize(
    ("migrate", "message"),
    [
        # Found before anything is done, and while the rows are computed.
        (f"MIGRATE STATE {JOB}.by_key AS SELECT k, n FROM by_key.partials", 'column "last" is missing'),
        (
            f"MIGRATE STATE {JOB}.by_key AS SELECT k, CAST('x' || n AS BIGINT) AS n, last FROM by_key.partials",
            "could not convert",
        ),
        (
            f"MIGRATE STATE {JOB}.by_window AS SELECT * REPLACE (_window_end - INTERVAL 10 SECOND AS _window_end) "
            "FROM by_window.partials",
            'column "_window_end" is behind the watermark in 1 of the rows',
        ),
    ],
)
def test_what_is_refused_changes_nothing(counted: Path, migrate: str, message: str) -> None:
    with open_session(counted) as s:
        with pytest.raises(SqlStreamError, match=message) as refused:
            go_on(s, SCRIPT, [*FIRST, *SECOND], migrate)
        assert refused.value.span is not None
        assert refused.value.span.source.name == "repair.sql"
        assert results(s) == batch(FIRST)
        assert s.warehouse.savepoints() == ["first"]
        run_over(s, [*FIRST, *SECOND])
        assert results(s) == batch([*FIRST, *SECOND])


def test_a_job_that_is_not_there_has_no_state_to_migrate(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        with pytest.raises(SqlStreamError, match=f'job "{JOB}" has no state to migrate'):
            go_on(s, SCRIPT, FIRST, REPAIR.format(job=JOB))
        with pytest.raises(SqlStreamError, match='"other" is no job that goes on here'):
            go_on(s, SCRIPT, FIRST, REPAIR.format(job="other"))


class Killed(BaseException):
    """The process is gone."""


def test_a_job_that_dies_while_its_state_is_put_in_place_goes_on_with_that_state(
    counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its query and its time of creation stay, so these do not tell whether it is the old job or the new one."""
    with open_session(counted) as s:
        run_over(s, [*FIRST, *SECOND])
        commits = s.warehouse.job(JOB).commits

        def dying(fs: LocalFilesystem, path: str) -> None:
            if path == commits:
                newest = max(int(name) for name in fs.list(path))
                assert newest > 0
                fs.delete(f"{path}/{newest}")
                raise Killed
            delete_tree(fs, path)

        delete_tree = LocalFilesystem.delete_tree
        with monkeypatch.context() as patch:
            patch.setattr(LocalFilesystem, "delete_tree", dying)
            with pytest.raises(Killed):
                go_on(s, SCRIPT, [*FIRST, *SECOND], REPAIR.format(job=JOB))
    with open_session(counted) as s:
        # Whoever says the same again does not repair it twice.
        with pytest.raises(SqlStreamError, match=f'job "{JOB}" has been upgraded now'):
            go_on(s, SCRIPT, [*FIRST, *SECOND], REPAIR.format(job=JOB))
        run_over(s, [*FIRST, *SECOND])
        windows, totals = repaired([*FIRST, *SECOND])
        assert rows_of(s, f"SELECT k, n, epoch(last)::BIGINT FROM state.{JOB}.by_key") == totals
        assert rows_of(s, "FROM windows") == windows
