"""The keys of the terminal while a statement runs: typed characters are not echoed, and wait for the prompt."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL_MODES = 3


@contextmanager
def hidden_keys() -> Iterator[None]:
    """Switch off the terminal's echo inside of the context: it would appear in the output. Ctrl-C still works."""
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):
        # Standard input is no terminal.
        yield
        return
    changed = [*before]
    changed[_LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
