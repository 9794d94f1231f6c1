"""A job that copies files into a topic until they end: what tests run in a process of its own, and kill.

`writing_job.py PROJECT WHERE` kills itself at a place of the third batch that it runs: `sent` (its rows are on their way),
`commit` (while the transaction is being committed), `committed` (the topic has the batch, the job does not know it), `job`
(before the job's own commit). A number in its place is after how many batches it waits. With the variable MORTAL one of its
writers kills at a place of `mortal_writers`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors import worker_processes
from sqlstream.connectors.kafka import producing, progress
from sqlstream.errors import SourceText
from sqlstream.options import Options
from sqlstream.storage import joblog
from tests.connectors.two_jobs import PARALLELISM, batches
from tests.kinds import jobs_of

AT = 3


def kill(delay: float = 0.0) -> None:
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(
    owner: Any, name: str, *, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None
) -> None:
    """Have something happen before or after a method's third call in this process."""
    method, calls = getattr(owner, name), [0]

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == AT:
            before(self)
        result = method(self, *arguments, **named)
        if after and calls[0] == AT:
            after(self)
        return result

    setattr(owner, name, wrapped)


def kill_behind_the_rows(sender: producing.Sender) -> None:
    sender.producer.flush(60)
    kill()


def kill_soon(_: Any) -> None:
    """Let a commit begin, which takes some milliseconds."""
    delay = random.Random(os.getpid()).uniform(0.0, 0.008)
    threading.Thread(target=kill, args=[delay]).start()


def arm(where: str) -> None:
    match where:
        case "sent":
            wrap(producing.Sender, "send", after=kill_behind_the_rows)
        case "commit":
            wrap(producing.Sender, "send", after=kill_soon)
        case "committed":
            wrap(progress.TopicProgress, "done", before=lambda _: kill())
        case "job":
            wrap(joblog.JobLog, "append", before=lambda _: kill())


def main(project: str, where: str) -> None:
    arm(where)
    if "MORTAL" in os.environ:
        worker_processes.MODULE = "tests.connectors.kafka.mortal_writers"
    compiler = Compiler(Options({"parallelism.default": str(PARALLELISM)}), project=project)
    [planned] = jobs_of(compiler.scripts([SourceText("job", (Path(project) / "job.sql").read_text())]))
    for number, is_more in enumerate(batches(project, planned), start=1):
        print("batch", flush=True)
        if not is_more:
            break
        if where == str(number):
            signal.pause()
    compiler.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
