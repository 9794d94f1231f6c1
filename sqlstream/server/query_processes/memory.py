"""The memory limit of a query's process: DuckDB's functions ignore DuckDB's own limit."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from sqlstream.errors import QueryError
from sqlstream.queries.query import QueryLimits

# In addition to DuckDB's memory: Arrow, Python's objects and the text that is sent; and stacks of threads for each core.
_BESIDE, _FOR_CORE = 512 << 20, 16 << 20
# A process that holds this many more bytes than at its start is not used again.
_GROWN = 256 << 20


def bound_memory(limits: QueryLimits) -> int:
    """Limit this process to its present address space plus the memory of a query; return its resident memory in bytes.

    Call it after the project's functions were imported, so that these imports do not count. Without /proc (macOS) there is no
    limit.
    """
    addresses, resident = _sizes()
    if addresses and limits.memory is not None:
        most = addresses + limits.memory + _BESIDE + _FOR_CORE * (os.cpu_count() or 1)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    return resident


def add_memory(more: int) -> None:
    """Raise the limit of this process's address space by `more` bytes."""
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        most = most + more if hard == resource.RLIM_INFINITY else min(most + more, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def has_grown(resident: int) -> bool:
    """Return whether this process has much more resident memory than it had (bytes)."""
    return _sizes()[1] > resident + _GROWN


def _sizes() -> tuple[int, int]:
    """Return the address space and the resident memory of this process in bytes; 0 if they are unknown."""
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0, 0
    size = os.sysconf("SC_PAGE_SIZE")
    return int(pages[0]) * size, int(pages[1]) * size


def out_of_memory(memory: int | None, noun: str = "query") -> QueryError:
    """Return the error for a query, or another computation (`noun`), that exceeded its memory (bytes; None: no limit)."""
    most = "there is" if memory is None else f"the {memory >> 20:,} MiB that it may have"
    return QueryError(
        f"out of memory: the {noun} takes more than {most}",
        hint="Ask for less at a time, or have the limit raised (--query-memory).",
    )
