"""Ctrl-C while DuckDB runs a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# What DuckDB raises in place of the KeyboardInterrupt of a signal's handler.
_INTERRUPTED = "Query interrupted"


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt in place of the RuntimeError by which DuckDB reports Ctrl-C during a statement."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from None
