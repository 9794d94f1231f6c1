"""Regular joins: state and changes are Z-sets, and a batch reads the state of the keys that it has rows for.

The change of the result is a sum over the inputs: the changes of input i, joined with the inputs before i as they are after the
batch, and with the inputs behind i as they were before it. So the state holds nothing but the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import EXPIRES_AT, INTERNAL, UPDATED_AT
from sqlstream.duck.sql import Relation, Relations, Rows, Select, names, no_rows, subquery, typed, union_all
from sqlstream.duck.types import encoded
from sqlstream.operators.joins.matching import JoinCondition
from sqlstream.operators.keyed_state import AT, KeyedState
from sqlstream.operators.operator import Holds, Inputs, Operator, StepTimes
from sqlstream.operators.scratch import keep, keep_view, leaving
from sqlstream.storage.bucket import WEIGHTS, Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, repeated, summed, zset
from sqlstream.units import Duration, to_millis
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration

# The inputs, by kind of join, whose rows without a match are computed: they are emitted or, in a semi join, left out.
PRESERVED = {"left": (0,), "right": (1,), "full": (0, 1), "semi": (0,), "anti": (0,)}


@dataclass(frozen=True)
class RegularJoin(Operator):
    """Joins inputs. For each input, `changing` says whether it is a changelog, `ttls` how long its keys live (0: for ever).

    `join` is inner, left, right, full, semi or anti; only an inner join can have more than two inputs. State tables are Z-sets,
    named by the index of the input: `rows_<index>` has its rows; with a time to live `keys_<index>` has its keys with the time of
    their last row. If rows of the other input expire, `alone_<index>` has the rows that were emitted without a match: the
    remaining rows do not tell which these are.
    """

    matching: JoinCondition
    join: str
    changing: tuple[bool, ...]
    ttls: tuple[Duration, ...]

    @property
    def kind(self) -> str:
        return "join"

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self.matching.key_names

    @cached_property
    def _indexes(self) -> range:
        return range(len(self.changing))

    @property
    def _preserved(self) -> tuple[int, ...]:
        return PRESERVED.get(self.join, ())

    @property
    def weighted(self) -> bool:
        """Whether the result is a changelog: its rows have weights, and can be retracted."""
        return self.join not in ("inner", "semi") or any(self.changing)

    # -- what is stored

    def _keeps_alone(self, index: int) -> bool:
        return index in self._preserved and self.ttls[1 - index] > 0

    @cached_property
    def _states(self) -> tuple[KeyedState, ...]:
        states = []
        for index in self._indexes:
            stored, ttl = self.matching.stored(index), self.ttls[index]
            tables = {f"rows_{index}": stored}
            if self._keeps_alone(index):
                tables[f"alone_{index}"] = stored
            if ttl:
                tables[f"keys_{index}"] = (*self.matching.key_columns, AT)
            states.append(
                KeyedState(
                    self.matching.key_names, tables, f"keys_{index}", ttl, touched_by=Relation(f"_touched_{index}")
                )
            )
        return tuple(states)

    @cached_property
    def remembered(self) -> tuple[ExpiringState, ...]:
        """The stored rows of each input, named by the input's index (from 0).

        Of an input without a time to live, the versions that changed rows of a key tell when its last row came.
        """
        by_input = []
        for index, state in enumerate(self._states):
            asks = tuple(f"rows_{other}" for other in self._indexes if other != index)
            # Rows without a match are in `rows_<index>`, too.
            tables = tuple(name for name in state.tables if name != f"alone_{index}")
            ttl_state = replace(state.remembered, tables=tables, name=str(index), asks=asks)
            by_input.append(
                ttl_state if state.ttl else replace(ttl_state, last_row_times=f"rows_{index}", at="", bare=False)
            )
        return tuple(by_input)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return tuple(zset(name, columns) for state in self._states for name, columns in state.tables.items())

    @property
    def holds(self) -> Holds:
        states = enumerate(self._states)
        rows = ((index, name) for index, state in states for name in state.tables if name != state.last_row_times)
        return self.matching.holds(rows)

    @cached_property
    def parts(self) -> dict[str, Select]:
        """For each `rows_<index>`: the input's state columns and the weight, which is 1 for an append-only input.

        Rows with a NULL key are left out, unless rows of the input without a match count.
        """
        selects = {}
        for index in self._indexes:
            stored = self.matching.stored(index)
            select = self.matching.select(index, WEIGHT if self.changing[index] else f"CAST(1 AS BIGINT) AS {WEIGHT}")
            # A row that cannot match is of use only if rows without a match are computed.
            where = "" if index in self._preserved else f" WHERE {self.matching.has_keys()}"
            rows = Relation(f"(SELECT * FROM ({select}){where})")
            rows = subquery(summed(stored, rows)) if self.changing[index] else rows
            selects[f"rows_{index}"] = encoded((*stored, WEIGHT_COLUMN), rows)
        return selects

    @cached_property
    def columns_out(self) -> tuple[Column, ...]:
        """The columns of the result without the weight: of all inputs, or of the left one in a semi or anti join."""
        shown = self.matching.columns[:1] if self.join in ("semi", "anti") else self.matching.columns
        return tuple(c for columns in shown for c in columns)

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.columns_out, WEIGHT_COLUMN) if self.weighted else self.columns_out

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch]:
        """Emit the changes of the result, store the changes of the inputs, and sweep expired keys.

        In a join without weights all emitted rows are inserts.
        """
        arrived: dict[str, list[pa.Table]] = {f"rows_{index}": [] for index in self._indexes}
        for port, rows in inputs:
            arrived[port.part].append(state.read(rows) if isinstance(rows, Segment) else rows)
        came = [any(r.num_rows for r in rows) for rows in arrived.values()]
        if any(came):
            for index in self._indexes:
                self._register(con, index, arrived[f"rows_{index}"])
            for index in self._indexes:
                self._load(con, state, index, came, times)
            for index in self._preserved:
                keep(con, f"_alone_{index}", self._alone(index))
            changed = union_all([*self._changes(came)] or [no_rows(self.outputs)])
            if any(self.changing) or self.join == "semi":
                changed = summed(self.columns_out, subquery(changed))
            if self.join == "semi" and not self.weighted:
                changed = repeated(self.columns_out, subquery(changed))
            yield from leaving(con, self.outputs, changed)
            for index in self._indexes:
                self._store(con, state, index, times, came=came[index])
        for keyed in self._states:
            keyed.sweep(con, state, times)

    def _register(self, con: duckdb.DuckDBPyConnection, index: int, rows: list[pa.Table]) -> None:
        """Make the view `_delta_<index>` of the changes of an input in this batch, with weights."""
        columns = (*self.matching.stored(index), WEIGHT_COLUMN)
        select = no_rows(columns)
        if rows:
            con.register(f"_arrived_{index}", pa.concat_tables(rows, promote_options="permissive"))
            select = Select(f"SELECT {typed(columns)} FROM _arrived_{index}")
            if self.changing[index]:
                select = summed(self.matching.stored(index), subquery(select))
        keep_view(con, f"_delta_{index}", select)

    def _load(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, index: int, came: list[bool], times: StepTimes
    ) -> None:
        """Make relations of an input's rows with keys of this batch: `_old_rows_<index>` before it, `_new_<index>` after it."""
        keyed, columns = self._states[index], self.matching.stored(index)
        touching = [p for p in self._indexes if came[p] and (p != index or self._looks_at_own(index))]
        by = ", ".join(self.matching.key_names) or "true AS _all"
        # A NULL key matches nothing, but with a time to live its rows must be loaded, to retract or expire them.
        where = "" if keyed.ttl else f" WHERE {self.matching.has_keys()}"
        keys = " UNION ".join(f"SELECT {by} FROM _delta_{p}{where}" for p in touching)
        keep(con, keyed.touched_by, Select(keys or f"SELECT {by} FROM _delta_{index} WHERE false"))
        if touching:
            keyed.load(con, state, times)
        else:
            for table, stored in keyed.tables.items():
                keep_view(con, f"_old_{table}", no_rows((*stored, WEIGHT_COLUMN)))
        listed, old = f"{names(columns)}, {WEIGHT}", Relation(f"_old_rows_{index}")
        before = Select(f"SELECT {listed} FROM {old}")
        if self.join == "inner" and not self.weighted:
            # Without weights in the result, equal rows are emitted once for each copy.
            before = Select(f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({repeated(columns, old)})")
        keep_view(con, f"_before_{index}", before)
        both = Select(f"SELECT {listed} FROM _before_{index} UNION ALL SELECT {listed} FROM _delta_{index}")
        if self.changing[index]:
            both = summed(columns, subquery(both))
        if self.changing[index] and keyed.ttl:
            # Retractions of rows of an expired key find nothing.
            new = keep(con, f"_new_{index}", Select(f"SELECT * FROM ({both}) WHERE {WEIGHT} > 0"))
            effective = keep(con, f"_effective_{index}", difference(columns, new, old))
            keep_view(con, f"_delta_{index}", Select(f"FROM {effective}"))
        else:
            keep_view(con, f"_new_{index}", both)

    def _looks_at_own(self, index: int) -> bool:
        """Tell whether an input's own changes need its older rows of the same keys."""
        return self.ttls[index] > 0 or any(p != index for p in self._preserved)

    def _changes(self, came: list[bool]) -> Iterator[Select]:
        """Yield the changes of the result, part by part."""
        weight = f", {WEIGHT}" if self.weighted else ""
        match self.join:
            case "semi":
                # The change of the left rows, less the change of the left rows without a match.
                negated = f"SELECT * REPLACE (-{WEIGHT} AS {WEIGHT}) FROM _alone_0"
                rows = Relation(f"(SELECT * FROM _delta_0 UNION ALL {negated})")
                yield Select(
                    f"SELECT {self.matching.shown((0,))}, {WEIGHT} FROM {self.matching.named(0, rows, WEIGHT)}"
                )
            case "anti":
                rows = self.matching.named(0, Relation("_alone_0"), WEIGHT)
                yield Select(f"SELECT {self.matching.shown((0,))}{weight} FROM {rows}")
            case _:
                yield from (self._pairs(index) for index in self._indexes if came[index])
                for index in self._preserved:
                    shown = self.matching.shown((0, 1), (1 - index,))
                    rows = self.matching.named(index, Relation(f"_alone_{index}"), WEIGHT)
                    yield Select(f"SELECT {shown}{weight} FROM {rows}")

    def _pairs(self, changed: int) -> Select:
        """Join an input's changes with new rows of inputs before it, and old rows of inputs behind it."""
        sources = [
            f"_new_{p}" if p < changed else f"_delta_{p}" if p == changed else f"_before_{p}" for p in self._indexes
        ]
        return self._joined([self.matching.named(p, Relation(rows), WEIGHT) for p, rows in enumerate(sources)])

    def _joined(self, relations: list[Relation]) -> Select:
        """Return the matching rows of all inputs; their weight is the product of the weights."""
        weight = " * ".join(f"_{p}.{WEIGHT}" for p in range(len(relations)))
        added = f", {weight} AS {WEIGHT}" if self.weighted else ""
        shown = self.matching.shown(range(len(relations)))
        return Select(f"SELECT {shown}{added} FROM {self._tables(relations, 'inner')}")

    def _tables(self, relations: list[Relation], join: str) -> Relation:
        """Join a relation of each input; the condition is checked in the last join."""
        tables, last = f"{relations[0]} _0", len(relations) - 1
        for index, rows in enumerate(relations[1:], 1):
            on = self.matching.on("_0", f"_{index}", condition=index == last)
            tables += f" {join.upper()} JOIN {rows} _{index} ON {on}"
        return Relation(tables)

    def _alone(self, index: int) -> Select:
        """Return the changes, with weights, of the set of an input's rows that have no match."""
        other = 1 - index
        stored = (*self.matching.stored(index), WEIGHT_COLUMN)
        old, delta, new = (Relation(f"{name}_{other}") for name in ("_old_rows", "_delta", "_new"))
        # An older row can gain or lose its last match only if it matches a change of the other input.
        touched = self._select(index, Relation(f"_old_rows_{index}"), "SEMI", delta)
        if self._keeps_alone(index):
            before = self._select(index, Relation(f"_old_alone_{index}"), "SEMI", delta)
        else:
            before = self._select(index, touched, "ANTI", old)
        after = self._select(index, touched, "ANTI", new)
        added = self._select(index, Relation(f"_delta_{index}"), "ANTI", new)
        negated = f"{names(self.matching.stored(index))}, -{WEIGHT}"
        rows = f"FROM {after} UNION ALL SELECT {negated} FROM {before} UNION ALL FROM {added}"
        return summed(stored[:-1], subquery(Select(rows)))

    def _select(self, index: int, rows: Relation, how: str, others: Relation) -> Relation:
        """Return the `rows` of an input that match a row of `others` (`how` is SEMI), or that match none (ANTI)."""
        other = 1 - index
        if how == "ANTI" and self.changing[other]:
            # A row that was retracted before it was inserted does not count as a match.
            others = Relation(f"(FROM {others} WHERE {WEIGHT} > 0)")
        named = [f"{c.name} AS {INTERNAL}own_{c.name}" for c in self.matching.stored(index)]
        own = self.matching.named(index, rows, *named, WEIGHT)
        items = ", ".join(f"{INTERNAL}own_{c.name} AS {c.name}" for c in self.matching.stored(index))
        on = self.matching.on(f"_{index}", f"_{other}")
        join = f"{own} _{index} {how} JOIN {self.matching.named(other, others)} _{other} ON {on}"
        return Relation(f"(SELECT {items}, {WEIGHT} FROM {join})")

    def _store(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, index: int, times: StepTimes, *, came: bool
    ) -> None:
        """Store the changes of an input, and delete the loaded rows of expired keys."""
        keyed, rows = self._states[index], f"rows_{index}"
        if keyed.ttl:
            new = summed(keyed.tables[rows], Relation(f"_new_{index}"))
            keyed.store(con, state, rows, subquery(new), times)
            by = "".join(f"{name}, " for name in self.matching.key_names)
            at = f"SELECT {by}max({AT.name}) AS {AT.name}, CAST(1 AS BIGINT) AS {WEIGHT}"
            row_times = (
                f"SELECT {by}{AT.name} FROM _old_keys_{index} "
                f"UNION ALL SELECT {by}CAST({to_millis(times.time)} AS BIGINT) AS {AT.name} FROM _delta_{index}"
            )
            # Without keys the table has one row as soon as the input has rows.
            grouped = f" GROUP BY {by[:-2]}" if by else " HAVING count(*) > 0"
            keyed.store(con, state, f"keys_{index}", Relation(f"({at} FROM ({row_times}){grouped})"), times)
        elif came:
            self._append(con, state, rows, Relation(f"_delta_{index}"), times)
        if self._keeps_alone(index):
            table = f"alone_{index}"
            if keyed.ttl:
                columns = keyed.tables[table]
                both = Relation(f"(SELECT * FROM _old_{table} UNION ALL SELECT * FROM _alone_{index})")
                keyed.store(con, state, table, subquery(summed(columns, both)), times)
            else:
                self._append(con, state, table, Relation(f"_alone_{index}"), times)

    def _append(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, table: str, rows: Relation, times: StepTimes
    ) -> None:
        columns = next(t.columns for t in self.tables if t.name == table)
        changes = con.sql(encoded(columns, rows)).to_arrow_table()
        state.append(table, changes, times.batch)
        state.count(WEIGHTS, pc.sum(changes.column(WEIGHT)).as_py() or 0)

    # -- the views

    def _rows(self, index: int, relations: Relations) -> Relation:
        """Return an input's rows whose keys have not expired, each as often as its weight says."""
        keyed = self._states[index]
        current = keyed.current({name: relations[name] for name in keyed.tables})
        return subquery(repeated(self.matching.stored(index), current[f"rows_{index}"]))

    def side_views(self, relations: Relations, watermark: str) -> tuple[Rows, ...]:
        indexes = range(len(self.matching.columns))
        return tuple(Rows.of(self.view(p, relations, watermark), self.view_columns(p)) for p in indexes)

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the current result: the join of all rows in state."""
        rows = [self.matching.named(p, self._rows(p, relations)) for p in self._indexes]
        shown = (0,) if self.join in ("semi", "anti") else tuple(self._indexes)
        return Select(f"SELECT {self.matching.shown(shown)} FROM {self._tables(rows, self.join)}")

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        """The columns of `current`: the result's, without a weight."""
        return self.columns_out

    def view(self, index: int, relations: Relations, watermark: str) -> Select:
        """Return an input's rows in state, with `_matched` and, with a time to live, the times of their keys.

        `_matched` is whether a row has a match now; with more than two inputs, whether each of the others has a row of the same
        keys. `relations` read the state tables; the watermark is not used.
        """
        keyed = self._states[index]
        own = self.matching.named(index, self._rows(index, relations))
        matched = []
        for other in self._indexes:
            if other != index:
                on = self.matching.on(f"_{index}", f"_{other}", condition=len(self._indexes) == 2)
                others = self.matching.named(other, self._rows(other, relations))
                matched.append(f"EXISTS (SELECT 1 FROM {others} _{other} WHERE {on})")
        items = f"{self.matching.shown((index,))}, {' AND '.join(matched)} AS _matched"
        if not keyed.ttl:
            return Select(f"SELECT {items} FROM {own} _{index}")
        times = keyed.current({name: relations[name] for name in keyed.tables})[f"keys_{index}"]
        instants = f"{keyed.updated_at} AS {UPDATED_AT}, {keyed.expires_at} AS {EXPIRES_AT}"
        same = keyed.same(f"_{index}", "_times")
        return Select(f"SELECT {items}, {instants} FROM {own} _{index} JOIN {times} _times ON {same}")

    def view_columns(self, index: int) -> tuple[Column, ...]:
        """Return the columns of `view`: the input's columns, `_matched`; with a time to live `_updated_at` and `_expires_at`."""
        times = (UPDATED_AT, EXPIRES_AT) if self.ttls[index] else ()
        more = (Column(name, "TIMESTAMP WITH TIME ZONE") for name in times)
        return (*self.matching.columns[index], Column("_matched", "BOOLEAN"), *more)
