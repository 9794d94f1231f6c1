"""The rows of a batch, by key: keys get numbers, and rows come sorted by them, in the order in which they arrived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import MODIFIED, PATH, PLACE, ROW
from sqlstream.duck.sql import no_rows, quote_name, typed
from sqlstream.operators.operator import Inputs
from sqlstream.operators.process.sorting import sorted_by
from sqlstream.operators.process.tables import listed
from sqlstream.operators.process.waiting import UNTIL, due_name
from sqlstream.operators.scratch import keep
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT, summed
from sqlstream.units import EventTime

if TYPE_CHECKING:
    from sqlstream.operators.process.operator import InputPlan

# The keys of a batch with their numbers, from 0 on.
TOUCHED, NUMBER = "_touched", "n"
# Whether the watermark was beyond the event time of a row before the row came. It is a column of inputs of which some rows come
# from an operator that emits them when the watermark passes them: their times do not tell.
LATE = Column("_is_late", "BOOLEAN")
# So many rows become Python objects together.
BLOCK = 8_000
# Where a row stands among those of a batch: the number of its file, then its number in it.
_STANDS = Column("o0", "BIGINT")
_ROW_BITS = 40
_MORE_OF_PLACE = tuple(f"o{i}" for i in range(1, len(PLACE)))


class Arrivals:
    """What has come for a bucket in a batch."""

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
        # Whether the order in which rows come is of use.
        self.ordered = ordered
        # Inputs whose rows have keys, and those whose rows are for all keys, with their numbers.
        self.keyed = [(i, one) for i, one in enumerate(inputs) if not one.broadcast]
        self.broadcast = [(i, one) for i, one in enumerate(inputs) if one.broadcast]
        # The rows of inputs as they are stored.
        self._stored: dict[int, pa.Table] = {}
        # Inputs whose rows have the column LATE in this batch.
        self.marked: set[str] = set()
        # Whether rows of keys have event times, and what is emitted for them, too.
        self.timed, self.gives_times = self.keyed[0][1].time is not None, gives_times

    def take(self, state: Bucket, inputs: Inputs, watermark: EventTime | None) -> None:
        """Make `_arrived_<n>` of the rows of each input; of those that waited some are due, which are there already."""
        arrived: dict[str, list[tuple[pa.Table, bool]]] = {one.name: [] for one in self.inputs}
        for port, rows in inputs:
            table = state.read(rows, repeated=self._repeated(port.part)) if isinstance(rows, Segment) else rows
            # A call without rows has no columns either.
            if table.num_columns:
                arrived[port.part].append((table, port.on_time))
        for number, one in enumerate(self.inputs):
            found = self._with_lateness(one, arrived[one.name], watermark)
            columns = self.columns(one)
            rows = f"FROM {due_name(one)}" if one.waits else no_rows(columns)
            if found:
                if path := self._repeated(one.name):
                    found = [_as_dictionary(rows, *path) for rows in found]
                stored = pa.concat_tables(found, promote_options="permissive")
                self._stored[number] = _with_numbers(stored) if self._has_files(one) else stored
                self.con.register(f"_stored_{number}", self._stored[number])
                rows = f"SELECT {typed(columns)} FROM _stored_{number}"
            self.con.execute(f"CREATE OR REPLACE TEMP VIEW _arrived_{number} AS {rows}")

    def _with_lateness(
        self, one: InputPlan, arrived: Sequence[tuple[pa.Table, bool]], watermark: EventTime | None
    ) -> list[pa.Table]:
        """Return the rows of an input, with the column LATE where needed; of each table it is known if its rows are on time."""
        if not one.time or one.waits or watermark is None or not any(on_time for _, on_time in arrived):
            return [rows for rows, _ in arrived]
        self.marked.add(one.name)
        found = []
        for rows, on_time in arrived:
            late = pa.repeat(False, rows.num_rows) if on_time else pc.less(rows.column("_time"), watermark)
            found.append(rows.append_column(LATE.name, late))
        return found

    def first_on_time(self, number: int, watermark: EventTime | None) -> EventTime | None:
        """Return the first time of the rows of an input that are on time though the watermark has reached them, if any."""
        if watermark is None or self.inputs[number].name not in self.marked:
            return None
        sql = f"SELECT min(_time) FROM _arrived_{number} WHERE NOT {LATE.name} AND _time <= {watermark}"
        [(first,)] = self.con.sql(sql).fetchall()
        return None if first is None else EventTime(first)

    def touch(self, due: Sequence[str]) -> int:
        """Number the keys that have rows, or are among those that some SELECTs give; return how many there are."""
        if not self.keys:
            has_rows = " OR ".join(f"EXISTS (FROM _arrived_{i})" for i, _ in self.keyed)
            return keep(self.con, TOUCHED, f"SELECT 0 AS {NUMBER} WHERE {has_rows}")
        keys = listed(self.keys)
        parts = [f"SELECT {keys} FROM _arrived_{i}" for i, _ in self.keyed]
        distinct = f"SELECT DISTINCT {keys} FROM ({' UNION ALL '.join([*parts, *due])})"
        return keep(self.con, TOUCHED, f"SELECT row_number() OVER () - 1 AS {NUMBER}, * FROM ({distinct})")

    def by_key(self, number: int) -> tuple[pa.Table, pa.Table] | None:
        """Return the stored rows of an input in the order of their key, and the distinct keys; None where that takes SQL."""
        rows = self._stored.get(number)
        if rows is None or len(self.keys) != 1 or not self._has_files(self.inputs[number]):
            return None
        return sorted_by(rows, self.keys[0].name, _STANDS.name)

    def columns(self, one: InputPlan) -> tuple[Column, ...]:
        """The columns of the rows of an input: as they arrive, but with one number for the order of files."""
        arriving = (*one.arriving(self.keys), *((LATE,) if one.name in self.marked else ()))
        if not self._has_files(one):
            return arriving
        return tuple(_STANDS if c.name == _STANDS.name else c for c in arriving if c.name not in _MORE_OF_PLACE)

    def order(self, one: InputPlan) -> list[str]:
        """The columns by which the rows of a key are in the order in which they arrived."""
        return [c.name for c in self.columns(one) if c.name.startswith("o")]

    def _repeated(self, name: str) -> list[str]:
        """Return the columns of the rows of an input in which a text stands many times: the paths of files."""
        [one] = (one for one in self.inputs if one.name == name)
        return [f"o{PLACE.index(PATH)}"] if self._has_files(one) else []

    def _has_files(self, one: InputPlan) -> bool:
        return self.ordered and one.order == PLACE and not one.waits

    def same(self, a: str, b: str) -> str:
        """Return the condition that rows of two relations have the same key."""
        return " AND ".join(f"{a}.{k.name} IS NOT DISTINCT FROM {b}.{k.name}" for k in self.keys) or "true"

    def rows(self, number: int) -> pa.Table:
        """Return the rows of an input in the order of their keys' numbers, which are the first column; the last is their time.

        Those of a broadcast table have no such number. Rows of a key are in the order that the call wants, or of their source
        where that is known, else of their time, then of their values: so a batch that is repeated gives them in the same order.
        """
        one = self.inputs[number]
        arriving = self.columns(one)
        own = [c for c in arriving if c.name.startswith("c")]
        order = [f"r.{name}" for name in self.order(one)]
        if one.waits:
            order = [f"r.{UNTIL.name}"]
            order += [f"r.s{i} {turn}" for i, (_, _, turn) in enumerate(one.sort or ())]
        if one.order != PLACE:
            order += [f"r.{c.name}" for c in arriving if not c.name.startswith("o")]
        arrived = f"_arrived_{number}"
        if one.changing:
            # What is added and taken away again is not there; what is taken away comes first, each row as often as it is.
            order = [f"r.{WEIGHT} > 0", *order]
            net = summed(tuple(c for c in arriving if c.name != WEIGHT), arrived)
            arrived = f"(SELECT *, unnest(range(abs({WEIGHT}))) FROM ({net}))"
        items = [f"r.{c.name}" for c in own]
        items += [f"r.{UNTIL.name} - 1 AS _time" if one.waits else "r._time"] if one.time else []
        items += [f"r.{LATE.name}"] if one.name in self.marked else []
        items += [f"r.{WEIGHT}"] if one.changing else []
        if one.broadcast:
            return self.con.sql(
                f"SELECT {', '.join(items)} FROM {arrived} r ORDER BY {', '.join(order)}"
            ).to_arrow_table()
        joined = f"{arrived} r JOIN {TOUCHED} t ON {self.same('r', 't')}"
        sql = f"SELECT t.{NUMBER}, {', '.join(items)} FROM {joined} ORDER BY t.{NUMBER}, {', '.join(order)}"
        return self.con.sql(sql).to_arrow_table()


def _as_dictionary(rows: pa.Table, name: str) -> pa.Table:
    column = rows.column(name)
    return rows.set_column(rows.column_names.index(name), name, column.dictionary_encode())


def _with_numbers(rows: pa.Table) -> pa.Table:
    """Return rows with a number in the place of the columns of PLACE, in the same order: text is slow to sort by."""
    modified, path, row = (rows.column(f"o{PLACE.index(column)}") for column in (MODIFIED, PATH, ROW))
    paths = path.dictionary_encode().unify_dictionaries().combine_chunks()
    places, times = paths.indices.to_numpy(), modified.to_numpy()
    # The rows of a file come one after the other, in one stretch or in a few.
    begins = np.flatnonzero(np.concatenate(([True], (places[1:] != places[:-1]) | (times[1:] != times[:-1]))))
    names = paths.dictionary.to_pylist()
    files = [(times[begin], names[places[begin]]) for begin in begins]
    ranks = {file: rank for rank, file in enumerate(sorted(set(files)))}
    stretches = np.array([ranks[file] for file in files], dtype=np.int64)
    numbers = np.repeat(stretches << _ROW_BITS, np.diff(begins, append=len(places))) + row.to_numpy()
    others = rows.drop_columns([f"o{i}" for i in range(len(PLACE))])
    return others.append_column(_STANDS.name, pa.array(numbers))


def blocks(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in blocks that become Python objects together."""
    for start in range(0, table.num_rows, BLOCK):
        yield table.slice(start, BLOCK)


def dense(items: str, columns: Sequence[Column], rows: str, keys: Arrivals) -> str:
    """Return the SELECT of items over columns of a relation for every key of the batch, in the order of their numbers."""
    own = ", ".join(f"s.{quote_name(c.name)}" for c in columns)
    joined = f"{TOUCHED} t LEFT JOIN ({rows}) s ON {keys.same('t', 's')}"
    return f"SELECT {items} FROM (SELECT t.{NUMBER}, {own} FROM {joined}) ORDER BY {NUMBER}"
