"""Processes that tests kill may have ended by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.processes import Process, kill_family, kill_group


@pytest.mark.parametrize("kill", [kill_group, kill_family])
def test_one_that_has_ended_can_be_killed(kill: Callable[[Process], None]) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE, start_new_session=True)
    process.wait()
    kill(process)
    assert process.returncode == 0
