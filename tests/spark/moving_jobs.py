"""A run of a project's jobs for test_moved: `python moving_jobs.py PROJECT`, with few descriptors kept."""

import sys
from pathlib import Path

from sqlstream import Session
from sqlstream.runtime import feed, job_thread

feed.KEPT = 2
job_thread.SWEEP_SECONDS = 0.0

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with Session(str(folder), conf={"parallelism.default": "2"}) as session:
        session.sql((folder / "jobs.sql").read_text())
        session.wait()
