"""What becomes of a signal that comes while DuckDB runs a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# What DuckDB raises in place of the KeyboardInterrupt of a signal's handler.
_INTERRUPTED = "Query interrupted"


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Let Ctrl-C end what runs with KeyboardInterrupt, also where it came while DuckDB ran a statement."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from None
