"""The text of a comparison, for people who are about to upgrade a job."""

from __future__ import annotations

from collections.abc import Iterator

from sqlstream.jobs.upgrades.changes import (
    SINCE,
    AdaptedOperator,
    Comparison,
    DroppedOperator,
    KeptOperator,
    NewOperator,
    UnadaptableOperator,
)

_WIDTH = 9
_BEFORE_ALL = "rows that are kept come before all others, and among each other in the order of their columns"


def explanation(comparison: Comparison, job: str, version: int) -> str:
    """Return a text with a line for the change of each operator and table of a job, and notes below the lines."""
    lines = [f'-- job "{job}" after version {version}, with this query']
    lines += [line for parts in _operators(comparison) for line in _lines(*parts)]
    lines += [line for parts in _tables(comparison) for line in _lines(*parts)]
    lines += [line for parts in _ties(comparison) for line in _lines(*parts)]
    lines += [line for parts in _values(comparison) for line in _lines(*parts)]
    for reason in comparison.refused:
        lines += _lines("refused", reason, ())
    return "\n".join(lines).replace(SINCE, f"from batch {version + 1} on")


def _lines(what: str, name: str, notes: tuple[str, ...]) -> list[str]:
    return [f"{what:<{_WIDTH}} {name}", *(f"{'':<{_WIDTH}}   {note}" for note in notes)]


def _operators(comparison: Comparison) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for one in comparison.operators:
        match one:
            case KeptOperator():
                yield "kept", one.operator, one.notes
            case AdaptedOperator():
                yield "adapted", one.operator, one.notes
            case NewOperator():
                yield "new", one.operator, one.notes
            case DroppedOperator():
                yield "dropped", one.was, one.notes
            case UnadaptableOperator():
                # Its reason stands at the end.
                continue


def _ties(comparison: Comparison) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield a line about what decides ties, if the values of columns have decided them in the job so far."""
    if comparison.ties_before == "arrival":
        return
    if comparison.ties == "arrival":
        yield "ties", f"by arrival {SINCE}, and were by columns", (f"{_BEFORE_ALL}",)
    else:
        yield "ties", "by columns, as before", comparison.keeps_ties


def _values(comparison: Comparison) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield a line about the semantics of expressions, if these were DuckDB's in the job so far."""
    if comparison.semantics_before == "flink":
        return
    if comparison.semantics == "flink":
        yield "values", f"Flink's {SINCE}, and were DuckDB's", ("what is kept stays as it is",)
    else:
        yield "values", "DuckDB's, as before", comparison.keeps_semantics


def _tables(comparison: Comparison) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for source in comparison.sources:
        goes_on = () if source.was is None else ("goes on where it is",)
        yield "read", source.table, (*goes_on, *source.notes)
    for table in comparison.dropped_sources:
        yield "read", table, ("no more",)
    for sink in comparison.sinks:
        goes_on = () if sink.was is None else ("goes on behind what was written",)
        yield "write", sink.table, (*goes_on, *sink.notes)
    for table in comparison.dropped_sinks:
        yield (
            "write",
            table,
            (
                "no more: rows in a table of the warehouse go, also published ones; the savepoint has them. Rows elsewhere stay",
            ),
        )
