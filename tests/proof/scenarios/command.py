"""The command line of sqlstream, but that jobs run in its own process, and its clock goes as a file says.

`command.py ARGUMENT ..` does what `sqlstream ARGUMENT ..` does, in the folder of a project. The file `clock` there has the
seconds by which the clock is wrong; it may change at any time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from sqlstream.cli.main import main
from sqlstream.jobs import session_jobs
from tests.proof.savepoints.step import InProcess

CLOCK = "clock"


def set_clock(folder: Path) -> None:
    """Let the clock of this process, which jobs read, be as wrong as the file says; files keep the times of the machine."""
    file, true_time = folder / CLOCK, time.time

    def wrong_time() -> float:
        return true_time() + float(file.read_text())

    time.time = wrong_time


if __name__ == "__main__":
    setattr(session_jobs, "SparkEngine", lambda *_: InProcess())  # noqa: B010
    if Path(CLOCK).exists():
        set_clock(Path.cwd())
    main()
