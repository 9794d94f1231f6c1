"""What a measured process does with its task and its result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from rich.console import Console

T = TypeVar("T")
SQLSTREAM = "sqlstream"
# The variable with the folder for traces of what is measured (`make bench ARGS="--trace DIR"`): none of sqlstream's settings.
TRACES = "BENCH_TRACES"


@contextmanager
def profiled(folder: str | None, task: object) -> Iterator[None]:
    """Write the trace of the engine's jobs in this context into a folder, and their table beside it; nothing without a folder.

    Other systems than sqlstream are not profiled.
    """
    if folder is None or getattr(task, "system", SQLSTREAM) != SQLSTREAM:
        yield
        return
    from sqlstream.cli.profile import profiled as traced
    from sqlstream.cli.profile import show_profile

    module = sys.argv[0].rpartition("/")[2].removesuffix(".py")
    name = f"{folder}/{module}-{getattr(task, 'work', 'smallest_batch')}-{os.getpid()}"
    os.makedirs(folder, exist_ok=True)
    with (
        open(f"{name}.txt", "w") as table,
        traced(f"{name}.json", lambda profile: show_profile(profile, Console(file=table))),
    ):
        yield


def answer(task: type[T], measure: Callable[[T], Any]) -> None:
    """Run the task that the command line gives as JSON, print the result as JSON, and end."""
    of = task(**json.loads(sys.argv[1]))
    with profiled(os.environ.get(TRACES), of):
        result = measure(of)
    print(json.dumps(asdict(result)))
    sys.stdout.flush()
    # Nothing is left to clean up; DuckDB's clean-up at the end of Python prints about itself.
    os._exit(0)
