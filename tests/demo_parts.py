"""Parts of a demo: processes that are watched while they run and never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread


class PartFailed(Exception):
    """Say which part of the demo failed and how, and show the end of its log."""

    def __init__(self, name: str, how: str, log: str):
        super().__init__(f"{name} {how}. The end of its log:\n\n" + "\n".join(log.splitlines()[-20:]))


class Part:
    """A running process whose stderr goes to a log file."""

    def __init__(self, process: subprocess.Popen[str], log: Path, deadline: float):
        self.process, self.log, self.deadline = process, log, deadline

    def failed(self, how: str) -> PartFailed:
        return PartFailed(self.log.stem, how, self.log.read_text())

    def wait_until(self, goal: str, reached: Callable[[], bool]) -> None:
        """Wait for something that this part brings about while it runs."""
        while not reached():
            if self.process.poll() is not None:
                raise self.failed(f"ended with exit code {self.process.returncode} before {goal}")
            if time.monotonic() > self.deadline:
                raise self.failed(f"took too long to get to {goal}")
            time.sleep(0.2)

    def wait(self, *codes: int) -> None:
        """Wait for the end of this part, with one of these exit codes."""
        try:
            code = self.process.wait(timeout=max(1.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self.failed("did not end in time") from None
        if code not in codes:
            raise self.failed(f"ended with exit code {code}")


@contextmanager
def start(
    command: tuple[object, ...], log: Path, show: Callable[[str], None], env: Mapping[str, str], deadline: float
) -> Iterator[Part]:
    """Start a part, show each line that it prints, and leave nothing of its process group behind, whatever happens.

    The deadline is a reading of `time.monotonic`.
    """
    words = [str(word) for word in command]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env, start_new_session=True
        ) as process,
    ):
        printer = Thread(target=_show_lines, args=(process, show))
        printer.start()
        try:
            yield Part(process, log, deadline)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            printer.join()


def _show_lines(process: subprocess.Popen[str], show: Callable[[str], None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        show(line.rstrip())
