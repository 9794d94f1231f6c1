"""Writers of a topic one of which kills something at a fixed place, once: what tests run in the place of a job's own.

The variable MORTAL names the place: `whom:number:batch:where`. The writer of this number kills itself (`writer`), or the driver
and all writers (`job`), when the other writers have their parts of the batch in: `before` its own transaction, or when it is
`committed`, but not written down. MORTAL_ONCE names a file that says that this has happened.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil

from sqlstream.connectors import worker_processes
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.kafka import parts, progress
from sqlstream.connectors.kafka.transactions import TopicTransactions
from tests.processes import wait_until


def written(folder: Path) -> int:
    """Return the last batch that a writer knows to be in."""
    record = folder / "kafka.json"
    return int(json.loads(record.read_text().splitlines()[0])["written"]) if record.exists() else -1


def arm() -> None:
    whom, number, mortal, where = os.environ["MORTAL"].split(":")
    once = Path(os.environ["MORTAL_ONCE"])
    own: dict[str, parts.TopicPart] = {}
    write_part = parts.write_part

    def die() -> None:
        if once.exists():
            return
        folder = Path(own["part"].records)
        wait_until(lambda: all(written(other) >= int(mortal) for other in folder.parent.iterdir() if other != folder))
        once.touch()
        family = psutil.Process().parents()[1] if whom == "job" else psutil.Process()
        for process in [family, *family.children(recursive=True)]:
            if process.pid != os.getpid():
                process.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    def write(part: parts.TopicPart, batch: Batch, client: str) -> parts.PartState:
        own["part"] = part
        return write_part(part, batch, client)

    def wrap(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def wrapped(self: Any, of: int, *arguments: Any) -> Any:
            if of == int(mortal) and own["part"].number == int(number):
                die()
            return method(self, of, *arguments)

        setattr(owner, name, wrapped)

    # The driver names the function by its module and its name.
    parts.write_part = write
    wrap(*{"before": (TopicTransactions, "write"), "committed": (progress.TopicProgress, "done")}[where])


if __name__ == "__main__":
    arm()
    worker_processes.main(*sys.argv[1:])
