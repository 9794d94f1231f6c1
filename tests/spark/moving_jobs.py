"""A run of a project's jobs for test_moved: `python moving_jobs.py PROJECT [live]`, with few descriptors kept.

A live run watches its input and does not end by itself.
"""

import sys
from pathlib import Path

from sqlstream import Session
from sqlstream.runtime import feed, job_thread

feed.KEPT = 2
job_thread.SWEEP_SECONDS = 0.0

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    options = {"readings": {"source.monitor-interval": "100 ms"}} if "live" in sys.argv else {}
    with Session(str(folder), conf={"parallelism.default": "2"}, table_options=options) as session:
        session.sql((folder / "jobs.sql").read_text())
        session.wait()
