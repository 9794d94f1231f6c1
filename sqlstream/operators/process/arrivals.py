"""The input rows of a batch of a process function: numbers the keys, and returns rows by key, in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ARRIVED, FILE_ORDER, MODIFIED, PATH, ROW
from sqlstream.duck.sql import Condition, Relation, Select, no_rows, subquery, typed, union_all
from sqlstream.operators.operator import Inputs
from sqlstream.operators.process.inputs import UNTIL, InputPlan
from sqlstream.operators.process.sorting import sorted_by
from sqlstream.operators.process.tables import listed, same_keys
from sqlstream.operators.process.waiting import due_rows
from sqlstream.operators.scratch import keep_and_count, keep_view
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT, summed
from sqlstream.units import EventTime

# The temporary table of the keys of a batch, with the column of their numbers, from 0.
TOUCHED, NUMBER = Relation("_touched"), "n"
# Whether a row is late. An input has this column if some of its rows come from an operator that emits them when the watermark
# passes their times: these are on time, although their times are behind the watermark.
LATE = Column("_is_late", "BOOLEAN")
# How many rows are converted to Python objects at a time.
BLOCK = 8_000
# The position of a row in the order of arrival, as one number: the rank of its file in the batch, then its number in the file.
_STANDS = Column("o0", "BIGINT")
_ROW_BITS = 40
_MORE_OF_POSITION = tuple(f"o{i}" for i in range(1, len(FILE_ORDER)))


class Arrivals:
    """The input rows of a bucket in a batch. Call `take`, then `touch`, then `rows`.

    `inputs` are all inputs: each is identified by its index among them. `keys` are the key columns in state, none for a call
    without keys. With `gives_times` emitted rows have event times; without `ordered` the order of rows does not matter.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        inputs: Sequence[InputPlan],
        keys: tuple[Column, ...],
        *,
        gives_times: bool,
        ordered: bool = True,
    ):
        self.con, self.inputs, self.keys = con, inputs, keys
        self.ordered = ordered
        # The inputs whose rows have keys, and those whose rows are for all keys, with their indexes.
        self.keyed = [(i, one) for i, one in enumerate(inputs) if not one.broadcast]
        self.broadcast = [(i, one) for i, one in enumerate(inputs) if one.broadcast]
        # The rows of inputs, encoded as they are stored, by index.
        self._stored: dict[int, pa.Table] = {}
        # Inputs whose rows have the column LATE in this batch.
        self.marked: set[str] = set()
        # Whether rows of keys have event times, and whether rows that are emitted have.
        self.timed, self.gives_times = self.keyed[0][1].time is not None, gives_times

    def take(self, state: Bucket, inputs: Inputs, watermark: EventTime | None) -> None:
        """Create the view `_arrived_<index>` of each input's rows, with the columns that `columns` returns for the input.

        For an input that waits, the view shows the temporary table of its due rows, which WaitingRows has made.
        """
        arrived: dict[str, list[tuple[pa.Table, bool]]] = {one.name: [] for one in self.inputs}
        for port, rows in inputs:
            table = state.read(rows, repeated=self._repeated(port.part)) if isinstance(rows, Segment) else rows
            # A table without rows can be without columns, too.
            if table.num_columns:
                arrived[port.part].append((table, port.never_late))
        for number, one in enumerate(self.inputs):
            tables = self._with_lateness(one, arrived[one.name], watermark)
            columns = self.columns(one)
            rows = Select(f"FROM {due_rows(one)}") if one.waits else no_rows(columns)
            if tables:
                if path := self._repeated(one.name):
                    tables = [_as_dictionary(rows, *path) for rows in tables]
                stored = pa.concat_tables(tables, promote_options="permissive")
                self._stored[number] = _with_numbers(stored) if self._has_files(one) else stored
                self.con.register(f"_stored_{number}", self._stored[number])
                rows = Select(f"SELECT {typed(columns)} FROM _stored_{number}")
            keep_view(self.con, f"_arrived_{number}", rows)

    def _with_lateness(
        self, one: InputPlan, arrived: Sequence[tuple[pa.Table, bool]], watermark: EventTime | None
    ) -> list[pa.Table]:
        """Return the tables of an input's rows, with the column LATE if some rows are on time whatever their times are."""
        if not one.time or one.waits or watermark is None or not any(never_late for _, never_late in arrived):
            return [rows for rows, _ in arrived]
        self.marked.add(one.name)
        tables = []
        for rows, never_late in arrived:
            late = pa.repeat(False, rows.num_rows) if never_late else pc.less(rows.column("_time"), watermark)
            tables.append(rows.append_column(LATE.name, late))
        return tables

    def first_in_time(self, number: int, watermark: EventTime | None) -> EventTime | None:
        """Return the least time of an input's rows that are on time although the watermark has reached them, None if none is."""
        if watermark is None or self.inputs[number].name not in self.marked:
            return None
        sql = f"SELECT min(_time) FROM _arrived_{number} WHERE NOT {LATE.name} AND _time <= {watermark}"
        [(first,)] = self.con.sql(sql).fetchall()
        return None if first is None else EventTime(first)

    def touch(self, due: Sequence[Select]) -> int:
        """Create the temporary table TOUCHED of the keys that have rows, or are selected by `due`; return the number of keys.

        `due` select the key columns. A call without keys has one key, if there are rows, with the number 0.
        """
        if not self.keys:
            has_rows = Condition(" OR ".join(f"EXISTS (FROM _arrived_{i})" for i, _ in self.keyed))
            return keep_and_count(self.con, TOUCHED, Select(f"SELECT 0 AS {NUMBER} WHERE {has_rows}"))[1]
        keys = listed(self.keys)
        parts = [Select(f"SELECT {keys} FROM _arrived_{i}") for i, _ in self.keyed]
        distinct = f"SELECT DISTINCT {keys} FROM ({union_all([*parts, *due])})"
        numbered = Select(f"SELECT row_number() OVER () - 1 AS {NUMBER}, * FROM ({distinct})")
        return keep_and_count(self.con, TOUCHED, numbered)[1]

    def by_key(self, number: int) -> tuple[pa.Table, pa.Table] | None:
        """Return two tables: an input's rows, encoded as stored, by key and order of arrival, and the distinct keys, sorted.

        None: only SQL can sort them. NumPy needs one key column, of integers (see `sorted_by`), and one number for the order.
        """
        rows = self._stored.get(number)
        if rows is None or len(self.keys) != 1 or not self._is_numbered(self.inputs[number]):
            return None
        return sorted_by(rows, self.keys[0].name, _STANDS.name)

    def columns(self, one: InputPlan) -> tuple[Column, ...]:
        """Return the columns of an input's rows in `_arrived_<index>`: as they arrive, but with one number for FILE_ORDER."""
        arriving = (*one.arriving(self.keys), *((LATE,) if one.name in self.marked else ()))
        if not self._has_files(one):
            return arriving
        return tuple(_STANDS if c.name == _STANDS.name else c for c in arriving if c.name not in _MORE_OF_POSITION)

    def order(self, one: InputPlan) -> list[str]:
        """Return the names of the columns that give the rows of a key their order of arrival; none if the source has no order."""
        return [c.name for c in self.columns(one) if c.name.startswith("o")]

    def _repeated(self, name: str) -> list[str]:
        """Return the columns of an input's rows to read as dictionaries, because texts are repeated: the paths of files."""
        [one] = (one for one in self.inputs if one.name == name)
        return [f"o{FILE_ORDER.index(PATH)}"] if self._has_files(one) else []

    def _is_numbered(self, one: InputPlan) -> bool:
        numbers = [(c.name, c.type) for c in one.order] == [(ARRIVED.name, ARRIVED.type)]
        return self._has_files(one) or (self.ordered and numbers and not one.waits)

    def _has_files(self, one: InputPlan) -> bool:
        return self.ordered and one.order == FILE_ORDER and not one.waits

    def rows(self, number: int) -> pa.Table:
        """Return the rows of an input, sorted by the numbers of their keys.

        The columns are NUMBER (not of a broadcast table), the columns of the input as c0, c1, .., `_time` (microseconds) if it
        has an event time, LATE if rows are marked, and WEIGHT if the input changes: negative in retractions. Rows of a key are in
        the order that the call declares, or else the order of the source, or else ordered by time and all values. So a repeated
        batch has the same order. The changes of an input are net: retractions come first, each row as often as its weight says.
        """
        one = self.inputs[number]
        arriving = self.columns(one)
        own = [c for c in arriving if c.name.startswith("c")]
        order = [f"r.{name}" for name in self.order(one)]
        if one.waits:
            order = [f"r.{UNTIL.name}"]
            order += [f"r.s{i} {turn}" for i, (_, _, turn) in enumerate(one.sort or ())]
            order += [f"r.{name}" for name in self.order(one)]
        if one.order != FILE_ORDER:
            order += [f"r.{c.name}" for c in arriving if not c.name.startswith("o")]
        arrived = Relation(f"_arrived_{number}")
        if one.changing:
            # Net changes, retractions first, each row as often as its weight says.
            order = [f"r.{WEIGHT} > 0", *order]
            net = summed(tuple(c for c in arriving if c.name != WEIGHT), arrived)
            arrived = subquery(Select(f"SELECT *, unnest(range(abs({WEIGHT}))) FROM ({net})"))
        items = [f"r.{c.name}" for c in own]
        items += [f"r.{UNTIL.name} - 1 AS _time" if one.waits else "r._time"] if one.time else []
        items += [f"r.{LATE.name}"] if one.name in self.marked else []
        items += [f"r.{WEIGHT}"] if one.changing else []
        if one.broadcast:
            return self.con.sql(
                f"SELECT {', '.join(items)} FROM {arrived} r ORDER BY {', '.join(order)}"
            ).to_arrow_table()
        joined = f"{arrived} r JOIN {TOUCHED} t ON {same_keys(self.keys, 'r', 't')}"
        sql = f"SELECT t.{NUMBER}, {', '.join(items)} FROM {joined} ORDER BY t.{NUMBER}, {', '.join(order)}"
        return self.con.sql(sql).to_arrow_table()


def _as_dictionary(rows: pa.Table, name: str) -> pa.Table:
    column = rows.column(name)
    return rows.set_column(rows.column_names.index(name), name, column.dictionary_encode())


def _with_numbers(rows: pa.Table) -> pa.Table:
    """Replace the columns FILE_ORDER by one number that sorts as they do: sorting by text is slow."""
    modified, path, row = (rows.column(f"o{FILE_ORDER.index(column)}") for column in (MODIFIED, PATH, ROW))
    paths = path.dictionary_encode().unify_dictionaries().combine_chunks()
    positions, times = paths.indices.to_numpy(), modified.to_numpy()
    # The rows of a file come one after the other, in one stretch or in a few.
    begins = np.flatnonzero(np.concatenate(([True], (positions[1:] != positions[:-1]) | (times[1:] != times[:-1]))))
    names = paths.dictionary.to_pylist()
    files = [(times[begin], names[positions[begin]]) for begin in begins]
    ranks = {file: rank for rank, file in enumerate(sorted(set(files)))}
    stretches = np.array([ranks[file] for file in files], dtype=np.int64)
    numbers = np.repeat(stretches << _ROW_BITS, np.diff(begins, append=len(positions))) + row.to_numpy()
    others = rows.drop_columns([f"o{i}" for i in range(len(FILE_ORDER))])
    return others.append_column(_STANDS.name, pa.array(numbers))


def blocks(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in slices of BLOCK rows."""
    for start in range(0, table.num_rows, BLOCK):
        yield table.slice(start, BLOCK)
