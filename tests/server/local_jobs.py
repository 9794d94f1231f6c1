"""A program that runs jobs of the script on its standard input as `sqlstream run` does, but on the engine that needs no JVM.

Its arguments are the folder of the project, where files of its tables must lie (`--files-within=..`), and the names of the jobs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sqlstream.cli.main import _exit
from sqlstream.cli.run import run_jobs
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.jobs.launch import only_jobs
from sqlstream.jobs.session_jobs import SessionJobs
from sqlstream.session.session import Session

_WITHIN = "--files-within="


class OnLocalEngine(Session):
    """A session whose jobs all run on the local engine."""

    def __init__(self, project: str):
        super().__init__(project)
        jobs: SessionJobs = self._jobs
        jobs.spark = jobs._local  # type: ignore[assignment]


def main(project: str, *words: str) -> None:
    code = 0
    names = [word for word in words if not word.startswith(_WITHIN)]
    try:
        with OnLocalEngine(project) as session:
            within = (word.removeprefix(_WITHIN) for word in words if word.startswith(_WITHIN))
            session.compiler.table_options.within = tuple(within)
            compiled = session.compile(SourceText("script", sys.stdin.read()))
            run_jobs(session, only_jobs(compiled, names), fresh=(), restored={}, debug=False)
    except SqlStreamError as error:
        print(error.render())
        code = error.exit_code
    _exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
