"""Cases are tried in a process of their own: one that hangs, dies or eats memory is a finding, not the end of the run."""

from __future__ import annotations

import faulthandler
import resource
import signal
import tempfile
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from tests.fuzz.cases import Case, tried
from tests.fuzz.failures import Failure

# Bytes of addresses: a case that takes memory without end gets an error instead of the machine.
ADDRESSES = 8 << 30


class Watched:
    """A process that tries cases; it is started again where one has ended it."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="sqlstream-fuzz-")
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._mine, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._directory.name), daemon=True)
        self._process.start()
        theirs.close()
        self._mine.recv()

    def tried(self, case: Case) -> Failure | None:
        """Try a case; a process that ends or does not answer is a failure, too."""
        self._mine.send(case)
        try:
            if self._mine.poll(case.seconds + 3):
                failure: Failure | None = self._mine.recv()
                # What a process has used it never gives back.
                if failure is not None and failure.kind == "memory":
                    self._restart()
                return failure
        except (EOFError, ConnectionError):
            self._process.join()
            failure = Failure("died", f"the process ended with {self._process.exitcode}\n{self._trace()}")
        else:
            failure = Failure("hangs", f"no answer after {case.seconds} s\n{self._trace()}")
        self._restart()
        return failure

    def _trace(self) -> str:
        trace = Path(self._directory.name, "trace")
        return "\n".join(trace.read_text(errors="replace").splitlines()[:40])

    def _restart(self) -> None:
        self._end()
        self._start()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._mine.close()

    def close(self) -> None:
        self._end()
        self._directory.cleanup()

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _serve(cases: Connection, directory: str) -> None:
    # Ctrl-C is for the process that watches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What a killed process leaves behind is deleted with the directory.
    tempfile.tempdir = directory
    with open(f"{directory}/trace", "w") as trace:
        faulthandler.enable(trace)
        cases.send(None)
        while True:
            try:
                case = cases.recv()
            except EOFError:
                return
            faulthandler.dump_traceback_later(case.seconds, file=trace)
            failure = tried(case)
            faulthandler.cancel_dump_traceback_later()
            cases.send(failure)
