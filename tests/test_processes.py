"""Processes that tests start: those that are killed may have ended by themselves, and none is left running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import kill_left, start_python
from tests.processes import Process, is_gone, kill_family, kill_group


@pytest.mark.parametrize("kill", [kill_group, kill_family])
def test_one_that_has_ended_can_be_killed(kill: Callable[[Process], None]) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE, start_new_session=True)
    process.wait()
    kill(process)
    assert process.returncode == 0


@pytest.mark.parametrize("own_group", [False, True])
def test_what_a_test_leaves_running_is_killed(tmp_path: Path, own_group: bool) -> None:
    (tmp_path / "waiting.py").write_text("input_that_never_comes = __import__('threading').Event().wait()")
    process = start_python(str(tmp_path / "waiting.py"), own_group=own_group)
    assert process.poll() is None
    kill_left()
    assert process.poll() == -9
    assert is_gone(process.pid)
