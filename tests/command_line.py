"""Runs `sqlstream` to its end, in a process of its own that need not import what most of a short command's time goes into.

A server, one for each process of tests, has imported the command line's modules and nothing else has happened in it. For every
command it forks a process, which gets the command's folder, environment, standard files and arguments, and ends as the command
does. `tests/cli/test_commands.py` compares each command with one in a new interpreter.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

from tests.processes import SECONDS

_MODULES = (
    "sqlstream.cli.check",
    "sqlstream.cli.main",
    "sqlstream.cli.query",
    "sqlstream.cli.run",
    "sqlstream.compiler.project",
    "sqlstream.jobs.ending",
    "sqlstream.jobs.launch",
    "sqlstream.session.explaining",
    "sqlstream.session.session",
)
_server: socket.socket | None = None


def run_command(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `sqlstream` in a folder to its end; `given` is its standard input."""
    with tempfile.TemporaryFile() as in_, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        in_.write(given.encode())
        in_.seek(0)
        code = _forked(folder, arguments, dict(os.environ if environment is None else environment), [in_, out, err])
        return subprocess.CompletedProcess(["sqlstream", *arguments], code, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _forked(folder: Path, arguments: tuple[str, ...], environment: dict[str, str], files: list[IO[bytes]]) -> int:
    """Have the server fork a process for a command; return its exit code, the negative signal if one killed it."""
    server = _running()
    request = json.dumps([str(folder), arguments, environment]).encode()
    socket.send_fds(server, [request], [file.fileno() for file in files])
    pid = int(server.recv(64))
    try:
        return int(server.recv(64))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"it did not end in time: sqlstream {' '.join(arguments)}") from None


def _running() -> socket.socket:
    global _server
    if _server is None:
        _server, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _server.settimeout(SECONDS)
        with its:
            command = [sys.executable, "-m", "tests.command_line", str(its.fileno())]
            root = Path(__file__).parents[1]
            subprocess.Popen(command, cwd=root, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        atexit.register(_server.close)
    return _server


def _serve(channel: socket.socket) -> None:
    """Fork a process for every request until nobody can make one any more; say its id, and how it ended."""
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        request, files, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            channel.close()
            folder, arguments, environment = json.loads(request)
            _become(folder, arguments, environment, files)
        for file in files:
            os.close(file)
        channel.send(str(pid).encode())
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(folder: str, arguments: list[str], environment: dict[str, str], files: list[int]) -> NoReturn:
    """Do in this process what `python -m sqlstream` does in one of its own."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = folder
    sys.argv = ["sqlstream", *arguments]
    try:
        from sqlstream.cli.main import main

        main()
    except BaseException:
        traceback.print_exc()
    # The command line ends its process itself.
    os._exit(70)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    # As the command line: what is frozen is no leak.
    os._exit(0)
