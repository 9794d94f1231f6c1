"""Reads the splits of a scan: the rows of its table, with their positions in the order of arrival if the query needs these.

Sources do not know the column ARRIVED. A source that numbers its rows gives the columns `TableSource.numbering` in its stead, and
a row's position is that of its split plus its number in the split. The splits of other sources are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import Split
from sqlstream.connectors.interface import ReadContext, TableSource
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.connectors.registry import source_of
from sqlstream.duck.internal_columns import ARRIVED, PATH, ROW
from sqlstream.duck.sql import Relation, Select, quote_text, subquery, union_all
from sqlstream.runtime.batch_descriptors import Work

# The positions of splits, and the rows of one split.
_POSITIONS, _OF_SPLIT = "_arrival_places", "_arrival_rows_"
# So many runs of rows are told apart by conditions, more by a join.
_FEW = 16


@dataclass(frozen=True, slots=True)
class _Run:
    """Successive rows of one file, numbered from `first` to `following` - 1, and successive in the order of arrival.

    A row's position in that order is its number plus `shift`. Splits that follow each other in a file are one run.
    """

    path: str
    first: int
    following: int
    shift: int


def source_without_positions(table: Table) -> TableSource:
    """Return the source of a table, as if it lacked the column ARRIVED."""
    return source_of(replace(table, columns=tuple(c for c in table.columns if c.name != ARRIVED.name)))


class ScanRows:
    """The rows of the splits in `work`, which is about one scan of `table` in one batch."""

    def __init__(self, table: Table, work: Sequence[Work], context: ReadContext):
        self.source = source_without_positions(table)
        self._context = context
        self._has_positions = any(c.name == ARRIVED.name for c in table.columns)
        read = [one for one in work if one.split is not None]
        self.splits = [self.source.located(self.source.split(one.split or ()), context) for one in read]
        self._positions = [one.arrived for one in read]
        # The source that reads, which adds the columns `_added`.
        self._reader = self.source
        self._added: tuple[Column, ...] = ()
        self._runs: list[_Run] = []
        if self._has_positions and self.source.numbering:
            own = self.source.table
            self._runs = _runs(self.source, self.splits, self._positions)
            # In one file, numbers tell the rows apart: to read paths of files costs as much as to read a few columns.
            needed = self.source.numbering if len(self._paths) > 1 else (ROW,)
            self._added = tuple(c for c in needed if c not in own.columns)
            self._reader = source_of(replace(own, columns=(*own.columns, *self._added)))

    def take(self, con: duckdb.DuckDBPyConnection) -> ReadPlan:
        """Return the plan of all splits, after `ReadPlan.take`. Raises DataError and duckdb.Error, as sources do."""
        if not self._has_positions or self.source.numbering or len(self.splits) == 1:
            return self._reader.take(con, self.splits, self._context)
        lost, selects = 0, []
        for number, (split, position) in enumerate(zip(self.splits, self._positions, strict=True)):
            plan = self._reader.take(con, [split], self._context)
            name = f"{_OF_SPLIT}{number}"
            con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {_in_turn(plan.well_formed, position)}")
            lost += plan.lost
            plan.forget(con)
            selects.append(Select(f"SELECT * FROM {name}"))
        return ReadPlan(union_all(selects), lost=lost)

    def read_again(self, con: duckdb.DuckDBPyConnection, error: duckdb.Error) -> ReadPlan | None:
        """Return another plan for the splits after the plan of `take` failed with `error`; None if there is no other way."""
        return self._reader.read_again(con, error, self.splits, self._context)

    def well_formed(self, con: duckdb.DuckDBPyConnection, plan: ReadPlan) -> Relation:
        """Return the well-formed rows of a plan from `take` or `read_again`, with their positions if the table has the column."""
        rows = plan.well_formed
        if not self._has_positions:
            return rows
        if not self.source.numbering:
            return subquery(_in_turn(rows, self._positions[0])) if len(self.splits) == 1 else rows
        hidden = f" EXCLUDE ({', '.join(c.name for c in self._added)})" if self._added else ""
        if len(self._runs) <= _FEW:
            return subquery(Select(f"SELECT *{hidden}, {self._shift} + {ROW.name} AS {ARRIVED.name} FROM {rows}"))
        names = [field.name for field in fields(_Run)]
        con.register(_POSITIONS, pa.table({name: [getattr(run, name) for run in self._runs] for name in names}))
        path = f"r.{PATH.name}" if len(self._paths) > 1 else quote_text(self._paths[0])
        within = f"p.path = {path} AND r.{ROW.name} >= p.first AND r.{ROW.name} < p.following"
        items = f"r.*{hidden}, p.shift + r.{ROW.name} AS {ARRIVED.name}"
        return subquery(Select(f"SELECT {items} FROM {rows} r JOIN {_POSITIONS} p ON {within}"))

    @property
    def _paths(self) -> list[str]:
        return list(dict.fromkeys(run.path for run in self._runs))

    @property
    def _shift(self) -> str:
        """The SQL of the difference between a row's position in the order of arrival and its number in the file."""
        of_paths = {path: _shift_of([run for run in self._runs if run.path == path]) for path in self._paths}
        if len(of_paths) == 1:
            return of_paths[self._paths[0]]
        cases = " ".join(f"WHEN {quote_text(path)} THEN {shift}" for path, shift in of_paths.items())
        return f"CASE {PATH.name} {cases} END"

    def of_split(self, con: duckdb.DuckDBPyConnection, split: Split, error: duckdb.Error | None) -> Relation:
        """Return the rows of one split by the plan that did not fail, with NULL in ARRIVED if the table has that column.

        `error` is the error of the plan of `take`, None if it did not fail.
        """
        again = self.source.read_again(con, error, [split], self._context) if error is not None else None
        rows = (again or self.source.read(con, [split], self._context)).relation
        if not self._has_positions:
            return rows
        return subquery(Select(f"SELECT *, CAST(NULL AS {ARRIVED.type}) AS {ARRIVED.name} FROM {rows}"))


def _runs(source: TableSource, splits: Sequence[Split], positions: Sequence[int]) -> list[_Run]:
    """Return the runs of splits of a source that numbers its rows, in the order of their paths and numbers."""
    runs: list[_Run] = []
    firsts = (source.first_row(split) for split in splits)
    for (path, first), position, split in sorted(zip(firsts, positions, splits, strict=True), key=lambda one: one[:2]):
        run = _Run(path, first, first + source.most_rows(split), position - first)
        if runs and (runs[-1].path, runs[-1].shift) == (path, run.shift):
            run = replace(run, first=runs.pop().first)
        runs.append(run)
    return runs


def _shift_of(runs: Sequence[_Run]) -> str:
    """Return the SQL of the `shift` of a row, over the rows of the file to which all `runs` belong."""
    cases = (f"WHEN {ROW.name} < {run.following} THEN {run.shift}" for run in runs[:-1])
    return f"CASE {' '.join(cases)} ELSE {runs[-1].shift} END" if len(runs) > 1 else str(runs[-1].shift)


def _in_turn(rows: Relation, position: int) -> Select:
    """Return rows with the column ARRIVED: they get the positions from `position` on, in the order in which they are read."""
    return Select(f"SELECT *, {position} + row_number() OVER () - 1 AS {ARRIVED.name} FROM {rows}")
