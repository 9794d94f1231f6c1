"""Jobs from and into databases, until their files end: what tests run in a process of its own, and kill.

`database_jobs.py PROJECT ROUNDS` runs so many batches of each job of the script `jobs.sql` there, and waits then.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.connectors import two_jobs

if __name__ == "__main__":
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else None
    two_jobs.main(sys.argv[1], rounds, (Path(sys.argv[1]) / "jobs.sql").read_text())
