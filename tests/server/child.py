"""Servers for tests in processes of their own: each says its port, and ends with its standard input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@contextmanager
def started(module: str, *arguments: str) -> Iterator[int]:
    """Start the server that a module runs as a program, yield its port, and end it."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.stdin.close()
            assert server.wait(60) == 0
