"""A job that goes on with a query, also a changed one: what tests run in a process of its own, which kills itself.

`mortal_upgrades.py PROJECT SCRIPT ROWS WHERE` upgrades the job of a file to its query. It dies `after N` changes of files of the
upgrade, when the job is `laid-out` but for its version, or when all sinks have the batch with the last of so many rows, and the
job has not (`written`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlstream.jobs.savepoints import restored_files
from sqlstream.runtime.commits import Commits
from tests.jobs.savepoint_jobs import open_session
from tests.jobs.upgrades.test_killed_upgrades import die_at
from tests.jobs.upgrades.test_upgraded_sinks import start
from tests.processes import SECONDS

put: Any = setattr


def kill(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_when_written(rows: int) -> None:
    commit: Any = Commits.commit

    def killed(commits: Commits, *given: Any) -> None:
        commit(commits, *given)
        if commits.totals.rows_in == rows:
            kill()

    put(Commits, "commit", killed)


def main(project: str, script: str, rows: str, where: str) -> None:
    if where == "written":
        die_when_written(int(rows))
    elif where == "laid-out":
        put(restored_files, "write_record", kill)
    else:
        die_at(put, int(where.removeprefix("after ")), kill)
    with open_session(Path(project)) as session:
        start(session, Path(script).read_text(), upgrade=True).wait(SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
