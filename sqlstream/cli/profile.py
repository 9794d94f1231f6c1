"""The profile of `sqlstream run`: a trace in a file, and a table on standard error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqlstream import profiling
from sqlstream.errors import UsageError

if TYPE_CHECKING:
    from sqlstream.cli.traces import Profile

# The statements that a table shows; a trace has all.
_STATEMENTS = 15


@contextmanager
def profiled(path: str | None, show: Callable[[Profile], None] | None = None) -> Iterator[None]:
    """Profile jobs that start inside of the context, and write the trace into a file at its end; do nothing without a path.

    `show` gets the figures. Raises UsageError for a file that is not named .json, or cannot be written.
    """
    if path is None:
        yield
        return
    from sqlstream.cli.traces import write_trace

    if os.path.splitext(path)[1].lower() != ".json":
        raise UsageError(
            f'the trace "{path}" is no JSON file', hint="Name it .json: Perfetto (ui.perfetto.dev) opens it."
        )
    try:
        with open(path, "wb"):
            pass
    except OSError as error:
        raise UsageError(f'the trace "{path}" cannot be written: {error.strerror}') from error
    with TemporaryDirectory(prefix="sqlstream-profile-") as folder:
        profiling.start(folder)
        try:
            yield
        finally:
            profiling.stop()
            profile = write_trace(folder, path)
            if show is not None:
                show(profile)


def show_profile(profile: Profile, console: Console | None = None) -> None:
    """Print where the time went: by phase, by operator and bucket, and by statement."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        # Nothing is cut off in a file.
        console.width = 160
    if not profile.batches:
        console.print("profile: no batch ran")
        return
    times = profile.batches.values()
    count = f"{len(times):,} batch{'' if len(times) == 1 else 'es'}"
    console.print(Text(f"profile: {count}, {sum(times):,.0f} ms, p50 {median(times):,.1f} ms a batch"))
    phases = _table("part", "phase", "batches:", "total ms:", "p50 ms:", "share:")
    for p in profile.phases:
        phases.add_row(p.part, p.phase, f"{p.batches:,}", _ms(p.total_ms), _ms(p.p50_ms), f"{p.share:.1%}")
    operators = _table("job", "operator", "bucket:", "batches:", "total ms:", "p50 ms:", "DuckDB ms:", "statements:")
    for o in profile.operators:
        counts = (_ms(o.total_ms), _ms(o.p50_ms), _ms(o.duckdb_ms), f"{o.statements:,}")
        operators.add_row(o.job, o.operator, str(o.bucket), f"{o.batches:,}", *counts)
    statements = _table("operator", "statement", "runs:", "total ms:", "ms a run:", "rows:")
    for s in profile.statements[:_STATEMENTS]:
        times_of = (_ms(s.total_ms), _ms(s.total_ms / max(s.runs, 1)))
        statements.add_row(s.operator or "(driver)", Text(s.statement), f"{s.runs:,}", *times_of, f"{s.rows:,}")
    for table in (phases, operators, statements):
        console.print(table)


def _table(*columns: str) -> Table:
    """Return a table without rows; a name with a colon is of a column of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.endswith(":")
        table.add_column(column.rstrip(":"), justify="right" if is_number else "left", no_wrap=True)
    return table


def _ms(value: float) -> str:
    return f"{value:,.1f}"
