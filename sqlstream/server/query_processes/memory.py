"""How much memory the process of a query may have: DuckDB's own limit is not heeded inside of its functions."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from sqlstream.errors import QueryError
from sqlstream.queries.query import QueryLimits

# Beside what DuckDB may have there are Arrow, Python's objects and the text that is sent, and stacks of threads for each core.
_BESIDE, _FOR_CORE = 512 << 20, 16 << 20
# A process that has kept so much more than it began with is not used again.
_GROWN = 256 << 20


def bound_memory(limits: QueryLimits) -> int:
    """Let this process have no more addresses than it has by now and a query may use; return what it has in memory.

    What the functions of a project import is in it by now. Where the system does not tell (macOS), there is no such bound.
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
    """Let this process have so many more addresses than it may have by now."""
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        most = most + more if hard == resource.RLIM_INFINITY else min(most + more, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def has_grown(resident: int) -> bool:
    """Tell whether this process has much more in memory than it had."""
    return _sizes()[1] > resident + _GROWN


def _sizes() -> tuple[int, int]:
    """Return how many bytes of addresses this process has, and how many in memory; 0 where that is not known."""
    try:
        pages = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0, 0
    size = os.sysconf("SC_PAGE_SIZE")
    return int(pages[0]) * size, int(pages[1]) * size


def out_of_memory(memory: int | None, noun: str = "query") -> QueryError:
    """Return the error of a query, or something else, whose process had not memory enough."""
    most = "there is" if memory is None else f"the {memory >> 20:,} MiB that it may have"
    return QueryError(
        f"out of memory: the {noun} takes more than {most}",
        hint="Ask for less at a time, or have the limit raised (--query-memory).",
    )
