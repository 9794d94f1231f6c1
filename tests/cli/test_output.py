"""Where the output of a command goes: a pipe that nobody reads any more, a terminal, a file."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import run_command

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "SELECT range FROM range(300000)", "--format", "csv"],
        ["query", "SELECT range FROM range(1000000000)"],
        ["run", "-e", "VALUES (1), (2)"],
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "sqlstream", *arguments]
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(command, cwd=tmp_path, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    # What a shell says of a command that SIGPIPE ended.
    assert done.returncode == 141
    assert "error" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


ESCAPES = "SELECT 'a' || chr(27) || '[31m' || chr(155) || 'b' AS x"


def test_a_terminal_gets_no_control_characters_of_values(tmp_path: Path) -> None:
    def on_a_terminal(*arguments: str) -> bytes:
        own, its = os.openpty()
        command = [sys.executable, "-m", "sqlstream", "query", ESCAPES, *arguments]
        with subprocess.Popen(command, cwd=tmp_path, stdout=its, stderr=subprocess.DEVNULL) as process:
            os.close(its)
            shown = b""
            with contextlib.suppress(OSError):
                while piece := os.read(own, 65536):
                    shown += piece
            assert process.wait() == 0
        os.close(own)
        return shown

    for form in ("table", "csv"):
        assert rb"a\x1b[31m\x9bb" in on_a_terminal("--format", form)
    assert rb'"a\u001b[31m\u009bb"' in on_a_terminal("--format", "json")
    # A file or a pipe gets the value as it is; a table is for people wherever it goes.
    assert run_command(tmp_path, "query", ESCAPES, "--format", "csv").stdout == "x\na\x1b[31m\x9bb\n"
    assert json.loads(run_command(tmp_path, "query", ESCAPES, "--format", "json").stdout) == [{"x": "a\x1b[31m\x9bb"}]
    assert "\x1b" not in run_command(tmp_path, "query", ESCAPES).stdout
    shown = run_command(tmp_path, "run", "-e", "SELECT x FROM (VALUES (chr(27) || '[31m')) AS v(x)").stdout
    assert "+I | \\x1b[31m" in shown
