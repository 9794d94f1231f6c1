"""`sqlstream shell` whose session runs all its jobs in this process: for tests of what the shell does with them."""

from __future__ import annotations

import fcntl
import os
import termios

from sqlstream.jobs.session_jobs import SessionJobs
from sqlstream.local.engine import LocalEngine
from sqlstream.session.session import Session


def run_in_process(session: Session) -> None:
    """Let a session run its jobs without Spark."""
    jobs = session._jobs
    assert isinstance(jobs, SessionJobs)
    jobs.spark = LocalEngine()  # type: ignore[assignment]


if __name__ == "__main__":
    from sqlstream.cli.main import main

    if os.isatty(0):
        # Ctrl-C on it is for this process.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    opened = Session.__init__

    def without_spark(session: Session, *arguments: object, **named: object) -> None:
        opened(session, *arguments, **named)  # type: ignore[arg-type]
        run_in_process(session)

    Session.__init__ = without_spark  # type: ignore[method-assign,assignment]
    main()
