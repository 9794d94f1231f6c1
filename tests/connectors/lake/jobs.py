"""Jobs over lakehouse tables, until their input ends: what tests run in a process of its own, which kills itself on the way.

`jobs.py PROJECT SCRIPT [WHEN NUMBER]` kills the process with SIGKILL before or after its nth commit to a table of a lakehouse:
behind that of a batch in the table, and before that of the job.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.lakes.commits import LakeCommits
from sqlstream.errors import SourceText
from sqlstream.options import Options
from tests.connectors.two_jobs import PARALLELISM, batches
from tests.kinds import jobs_of


def run(project: str, script: str) -> None:
    """Run the jobs of a script batch by batch in turns, first what earlier processes left, until none has a batch."""
    compiler = Compiler(Options({"parallelism.default": str(PARALLELISM)}), project=project)
    try:
        jobs = [batches(project, planned) for planned in jobs_of(compiler.scripts([SourceText("jobs", script)]))]
        while any(list(map(next, jobs))):
            pass
    finally:
        compiler.close()


def kill_at(when: str, number: int) -> None:
    commits = iter(range(1, 1_000_000))

    def killing(commit: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*arguments: Any) -> Any:
            last = next(commits) == number
            if last and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = commit(*arguments)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return killed

    LakeCommits.commit = killing(LakeCommits.commit)  # type: ignore[method-assign]


if __name__ == "__main__":
    if len(sys.argv) > 3:
        kill_at(sys.argv[3], int(sys.argv[4]))
    with open(sys.argv[2]) as text:
        run(sys.argv[1], text.read())
