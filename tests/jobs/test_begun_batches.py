"""Whether sinks may have more of a job than its newest version says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import JobError, SourceText, SqlStreamError
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.rollbacks import has_gone_on
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.commits import Commits
from sqlstream.warehouse.savepoint_records import find_savepoint
from tests.jobs.savepoint_jobs import FIRST, open_session, put
from tests.jobs.upgrades.upgrade_jobs import go_on
from tests.processes import SECONDS
from tests.verification.test_upgraded import WINDOWS

SCRIPT = WINDOWS.format(column="", value="", where="")


@pytest.mark.parametrize("dies", [False, True])
def test_a_batch_that_only_closes_windows_may_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    put(tmp_path, "a", FIRST)
    if dies:
        right = Commits.commit

        def dying(self: Commits, batch: int, *arguments: Any) -> None:
            if batch > 0:
                raise JobError("the process died")
            right(self, batch, *arguments)

        monkeypatch.setattr(Commits, "commit", dying)
        with open_session(tmp_path) as session:
            [planned] = [one for one in session.compile(SourceText("s", SCRIPT)) if isinstance(one, PlannedJob)]
            with pytest.raises(SqlStreamError, match="the process died"):
                session._jobs.start(planned, {}, engine=LocalEngine()).wait(SECONDS)
    else:
        go_on(tmp_path, SCRIPT, FIRST)
    with open_session(tmp_path) as session:
        taken = take_savepoint(session.warehouse, "windows")
        assert has_gone_on(session.warehouse, find_savepoint(session.warehouse, taken.record.name)) is dies
