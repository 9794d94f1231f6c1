"""Runs a command of `sqlstream` that starts no JVM to its end, in a process that is forked.

`tests/cli/test_commands.py` compares each command with one in a new interpreter.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.forked import run_python


def run_command(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    given: str = "",
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `sqlstream` in a folder to its end; `given` is its standard input. A `user` is one of `tests.users`."""
    return run_python("-m", "sqlstream", *arguments, cwd=folder, environment=environment, given=given, user=user)
