"""The result of a verification, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# The causes of differences, in the order in which they are looked for. Without a cause, sqlstream or the input is at fault.
CAUSES = {
    "untimed": "rows without a time",
    "late": "late rows",
    "expired": "expired keys",
    "due": "not yet due",
    "batches": "batches and their times",
    "lookup": "lookups that changed",
    "float": "floating point",
    "unexplained": "UNEXPLAINED",
}
_EXPLANATIONS = {
    "untimed": "The batch counts rows whose event time is NULL; the job drops them.",
    "late": "The batch counts rows that came behind the watermark; the job drops them.",
    "expired": "A key that was silent for its time to live begins anew; what was written for it before stays.",
    "due": "The watermark has not reached the time at which the job writes them.",
    "batches": "What a process function emits can depend on which rows came together, and when; these batches are repeated.",
    "lookup": "The lookup table has other rows now than when the job asked it.",
    "float": "Sums of floating-point numbers differ in their last digits with the order of the rows.",
    "unexplained": "",
}
# The most example rows that a report shows for a cause.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of one cause between a table and the batch answer: the numbers of missing and of extra rows.

    `examples` are a few of these rows, as (sign, row): `-` is a row of the batch answer only, `+` a row of the table only.
    """

    cause: str
    missing: int
    extra: int
    examples: tuple[tuple[str, tuple[Any, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class TableReport:
    """The comparison of one table: its rows, the rows of the batch answer over all input, and the differences by cause."""

    table: str
    columns: tuple[str, ...]
    rows: int
    batch_rows: int
    differences: tuple[Difference, ...]

    @property
    def unexplained(self) -> int:
        return sum(d.missing + d.extra for d in self.differences if d.cause == "unexplained")


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of all tables that a job writes, at a version. It is true if every difference is explained.

    `read` has the number of rows that the job had read of each table, as (table, rows). `notes` say what was not checked.
    """

    job: str
    version: int
    read: tuple[tuple[str, int], ...]
    tables: tuple[TableReport, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_explained(self) -> bool:
        """Whether every difference between the tables and the batch answer is explained."""
        return not any(table.unexplained for table in self.tables)

    def __bool__(self) -> bool:
        return self.is_explained

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the example rows of all differences, as (table, cause, `-` or `+`, row as text)."""
        return [
            (t.table, CAUSES[d.cause].lower(), sign, _shown(t.columns, row))
            for t in self.tables
            for d in t.differences
            for sign, row in d.examples
        ]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Let IPython and Jupyter show the report."""
        printer.text(str(self))

    def __str__(self) -> str:
        read = ", ".join(f"{count:,} row{'' if count == 1 else 's'} of {name}" for name, count in self.read)
        lines = [f'job "{self.job}" at version {self.version}: a batch over {read or "no rows"}']
        for table in self.tables:
            lines += _lines(table)
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def _lines(table: TableReport) -> Sequence[str]:
    if not table.differences:
        return [f'table "{table.table}": {_count(table.rows)}, equal to the batch answer']
    verdict = "NOT EXPLAINED" if table.unexplained else "every difference is explained"
    lines = [f'table "{table.table}": {_count(table.rows)}, the batch answer {_count(table.batch_rows)}: {verdict}']
    for difference in table.differences:
        lines.append(f"  {CAUSES[difference.cause]}: {_sum(difference)}. {_EXPLANATIONS[difference.cause]}".rstrip())
        lines += [f"    {sign} {_shown(table.columns, row)}" for sign, row in difference.examples]
        if (remaining := difference.missing + difference.extra - len(difference.examples)) > 0:
            lines.append(f"    and {remaining:,} more")
    return lines


def _count(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _sum(difference: Difference) -> str:
    parts = [
        f"{_count(number)} {where}"
        for number, where in (
            (difference.missing, "only in the batch answer"),
            (difference.extra, "only in the table"),
        )
        if number
    ]
    return ", ".join(parts)


def _shown(columns: Sequence[str], row: Sequence[Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in zip(columns, row, strict=True))
