"""The keys of the terminal while a statement runs: what is typed is not shown, and waits for the prompt."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL_MODES = 3


@contextmanager
def hidden_keys() -> Iterator[None]:
    """Let the terminal not show what is typed meanwhile, where it would be in the middle of what is drawn; Ctrl-C still works."""
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):
        # Keys come from elsewhere.
        yield
        return
    changed = [*before]
    changed[_LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
