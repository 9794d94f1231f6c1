"""Starts Python programs, each in a process of its own that need not import what most of a short program's time goes into.

A server, one for each process of tests, has imported the command line's modules, and those of jobs when the first one was
started; nothing else has happened in it. For every program it forks a process, which gets the program's folder, environment,
standard files and arguments. Another one, between the two, waits for the end of the program and says how it ended.

Programs of one server share the seed of `hash` (PYTHONHASHSEED), so sets have the same order in all of them, and modules that one
forgot to import are there. Tests of such things start new interpreters.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NoReturn

from tests.processes import SECONDS
from tests.users import become

_FOR_COMMANDS = (
    "sqlstream.cli.check",
    "sqlstream.cli.main",
    "sqlstream.cli.query",
    "sqlstream.cli.run",
    "sqlstream.project",
    "sqlstream.jobs.ending",
    "sqlstream.jobs.launch",
    "sqlstream.session.explaining",
    "sqlstream.session.session",
)
_FOR_JOBS = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.testing.utils",
    "sqlstream.local.engine",
    "sqlstream.spark.jvm",
    "sqlstream.spark.run",
)
_ROOT = Path(__file__).parents[1]
_server: socket.socket | None = None
# Programs that run jobs and may still be running.
_jobs: list[Forked] = []


@dataclass(frozen=True, slots=True)
class _Request:
    """A program to run, as the server is told."""

    folder: str
    words: list[str]
    environment: dict[str, str]
    own_group: bool
    job: bool
    user: int | None


class Forked:
    """A process that runs a program, with what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, status: IO[bytes], stdout: IO[str] | None = None, *, leads_group: bool = False):
        self.pid, self.stdout = pid, stdout
        self._leads_group = leads_group
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit code, the negative signal if one killed it, None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, None]:
        """Return all that it still writes, when it has ended. Raises subprocess.TimeoutExpired."""
        assert self.stdout is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        output = b""
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.stdout], [], [], left)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0, output)
            if not (chunk := os.read(self.stdout.fileno(), 1 << 16)):
                break
            output += chunk
        self.stdout.close()
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return output.decode(), None

    def kill(self) -> None:
        """Kill it, with its group if it leads one, if it has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                # One that has just been forked leads no group yet.
                os.kill(self.pid, signal.SIGKILL)
                if self._leads_group:
                    os.killpg(self.pid, signal.SIGKILL)


def start_python(
    *words: str,
    cwd: Path = _ROOT,
    environment: Mapping[str, str] | None = None,
    own_group: bool = False,
    user: int | None = None,
) -> Forked:
    """Start `python WORDS`, which run a job; `stdout` has what it says, also about errors.

    Words are `-m MODULE ..` or `SCRIPT ..`.
    With `own_group` it leads a session and a process group. A `user` is one of `tests.users`.
    """
    reading, writing = os.pipe()
    with open(os.devnull, "rb") as in_, open(writing, "wb") as out:
        # Before the process exists, so that nothing is lost if this fails.
        stdout = os.fdopen(reading, encoding="utf-8")
        variables = dict(os.environ if environment is None else environment)
        request = _Request(str(cwd), list(words), variables, own_group, job=True, user=user)
        process = _started(request, [in_, out, out], stdout)
    _jobs.append(process)
    return process


def kill_left() -> None:
    """Kill the programs that `start_python` has started and that still run: a test that failed while it waited left them."""
    while _jobs:
        process = _jobs.pop()
        if process.poll() is None:
            process.kill()
            process.wait(SECONDS)


def run_python(
    *words: str,
    cwd: Path = _ROOT,
    environment: Mapping[str, str] | None = None,
    given: str = "",
    job: bool = False,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` to its end; `given` is its standard input. With `job` all that runs jobs is imported already.

    A `user` is one of `tests.users`.
    """
    with tempfile.TemporaryFile() as in_, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        in_.write(given.encode())
        in_.seek(0)
        variables = dict(os.environ if environment is None else environment)
        request = _Request(str(cwd), list(words), variables, own_group=False, job=job, user=user)
        process = _started(request, [in_, out, err])
        try:
            code = process.wait(SECONDS)
        finally:
            process.kill()
        return subprocess.CompletedProcess(["python", *words], code, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _started(request: _Request, files: Sequence[IO[bytes]], stdout: IO[str] | None = None) -> Forked:
    server = _running()
    reading, writing = os.pipe()
    with open(writing, "wb") as says:
        socket.send_fds(server, [json.dumps(asdict(request)).encode()], [file.fileno() for file in [*files, says]])
    # Nothing is buffered, so that to ask whether there is something to read asks about all of it.
    status = os.fdopen(reading, "rb", buffering=0)
    assert select.select([status], [], [], SECONDS)[0], f"it did not begin in time: python {' '.join(request.words)}"
    return Forked(int(status.readline()), status, stdout, leads_group=request.own_group)


def _running() -> socket.socket:
    global _server
    if _server is None:
        _server, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [sys.executable, "-m", "tests.forked", str(its.fileno())]
            subprocess.Popen(command, cwd=_ROOT, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        atexit.register(_server.close)
    return _server


def _serve(channel: socket.socket) -> None:
    """Fork a process for every request until nobody can make one any more."""
    _import(_FOR_COMMANDS)
    has_jobs = False
    # Nobody waits for those that wait for programs.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, files, _, _ = socket.recv_fds(channel, 1 << 20, 4)
        if not text:
            return
        request = _Request(**json.loads(text))
        if request.job and not has_jobs:
            _import(_FOR_JOBS)
            has_jobs = True
        if os.fork() == 0:
            channel.close()
            _watch(request, files)
        for file in files:
            os.close(file)


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _watch(request: _Request, files: list[int]) -> NoReturn:
    """Fork the process of a program, and say its id, and then how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, status = files
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(request, standard)
    for file in {*standard, 0, 1, 2}:
        os.close(file)
    with open(status, "wb", buffering=0) as says:
        says.write(b"%d\n" % pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        # The tests may have ended first.
        with contextlib.suppress(BrokenPipeError):
            says.write(b"%d\n" % code)
    os._exit(0)


def _become(request: _Request, files: list[int]) -> NoReturn:
    """Do in this process what Python does in one of its own."""
    if request.own_group:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in set(files):
        os.close(file)
    if request.user is not None:
        become(request.user)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    code = 70
    try:
        code = _run(request.words)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        # As at the end of an interpreter. What is frozen is no leak, of which DuckDB's bindings would complain later.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(words: list[str]) -> int:
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path[0] = os.path.dirname(words[0])
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    # As the command line: what is frozen is no leak.
    os._exit(0)
