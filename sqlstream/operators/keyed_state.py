"""Keyed state with a time to live: Z-sets in which a batch reads and changes only the rows of the keys that it touches.

The state records when a row last came for each key. With a time to live, a key expires that long after its last row. The results
that were emitted for it stay, and a new row for it starts from empty state. The rows of an expired key are deleted when a row for
it comes, or by a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import EXPIRES_AT, UPDATED_AT
from sqlstream.duck.sql import (
    FALSE,
    Condition,
    Items,
    Relation,
    Relations,
    Select,
    names,
    no_rows,
    rows_where,
    same_columns,
    subquery,
)
from sqlstream.duck.time_variables import NOW
from sqlstream.duck.types import encoded
from sqlstream.operators.operator import StepTimes
from sqlstream.operators.scratch import keep, keep_and_count, keep_view
from sqlstream.storage.bucket import EXPIRED, RETURNED, WEIGHTS, Bucket
from sqlstream.storage.manifests import SWEPT_AT
from sqlstream.storage.zsets import KEYS, WEIGHT, WEIGHT_COLUMN, difference, replacement, summed
from sqlstream.units import MILLISECOND, Duration, ProcessingTime, to_millis
from sqlstream.warehouse.declarations import ExpiringState

# When the last row came for a key: a processing time in milliseconds, not microseconds (see `units`).
AT = Column("_at", "BIGINT")
# The temporary table of the keys for which a batch has rows.
TOUCHED = Relation("_touched")
# How many times per time to live a sweep looks for expired keys.
SWEEPS = 4


@dataclass(frozen=True)
class KeyedState:
    """The keyed state of an operator: Z-set `tables`, by name, whose columns (without the weight) begin with the `keys`.

    A `ttl` of 0 is for ever. Expiry, and the times in views, need the table `last_row_times`: one row per key, with AT as its
    last column. The rows of `ordered` tables are loaded in the order of their columns. `touched_by` is a temporary table with the
    keys of the batch; the operator makes it before `load`. `lasts` is the condition over the keys that a key never expires.
    """

    keys: tuple[str, ...]
    tables: Mapping[str, tuple[Column, ...]]
    last_row_times: str
    ttl: Duration
    ordered: frozenset[str] = frozenset()
    touched_by: Relation = TOUCHED
    lasts: Condition = FALSE

    @property
    def remembered(self) -> ExpiringState:
        """The state that the time to live bounds: all of the tables."""
        tables = tuple(self.tables)
        bare = len(self.tables.get(self.last_row_times, ())) == len(self.keys) + 1
        return ExpiringState(
            tables, self.last_row_times, self.keys, AT.name, MILLISECOND, self.ttl, lasts=self.lasts, bare=bare
        )

    def load(self, con: duckdb.DuckDBPyConnection, state: Bucket, times: StepTimes) -> None:
        """Make temporary views `_old_<table>` of what `live_rows` returns for the keys in `touched_by`."""
        for table, rows in self.live_rows(con, state, self.touched_by, times).items():
            keep_view(con, f"_old_{table}", Select(f"SELECT * FROM {rows}"))

    def live_rows(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, touched: Relation, times: StepTimes
    ) -> dict[str, Relation]:
        """Load the rows of the keys in `touched`, with summed weights, into temporary tables `_stored_<table>`.

        Return them by table, without the rows of expired keys. Count these keys as EXPIRED and RETURNED.
        """
        self._keep_stored(con, state, touched)
        stored = {table: Relation(f"_stored_{table}") for table in self.tables}
        if not self.ttl:
            return stored
        past = f"SELECT {self._listed} FROM _stored_{self.last_row_times} WHERE {self._is_past(times)}"
        _, expired = keep_and_count(con, self._expired, Select(past))
        state.count(EXPIRED, expired)
        state.count(RETURNED, expired)
        if not expired:
            return stored
        live = f"_stored_ ANTI JOIN {self._expired} ON {self.same('_stored_', self._expired)}"
        return {table: Relation(f"(SELECT * FROM {rows} {live})") for table, rows in stored.items()}

    def store(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        table: str,
        new: Relation,
        times: StepTimes,
        *,
        replaces: bool = False,
    ) -> None:
        """Append to a table the difference between its loaded rows and `new`, rows with weights.

        Afterwards `new` is the table's content for the loaded keys. The counter WEIGHTS changes by the number of rows that are
        added, less those that are deleted, unless the table is KEYS. Load before. `replaces` says that no new row equals a
        loaded one, so that the difference need not look for such.
        """
        columns, stored = self.tables[table], Relation(f"_stored_{table}")
        changed = (replacement if replaces else difference)(columns, new, stored)
        rows = con.sql(encoded((*columns, WEIGHT_COLUMN), subquery(changed))).to_arrow_table()
        state.append(table, rows, times.batch)
        if table != KEYS:
            state.count(WEIGHTS, pc.sum(rows.column(WEIGHT)).as_py() or 0)

    def sweep(self, con: duckdb.DuckDBPyConnection, state: Bucket, times: StepTimes) -> None:
        """Delete the expired keys of the whole bucket, at most SWEEPS times per time to live; count them as EXPIRED.

        Overwrites the temporary tables `touched_by` and `_stored_<table>`.
        """
        if not self.ttl:
            return
        counter = f"{SWEPT_AT}_{self.last_row_times}"
        swept = state.counters.setdefault(counter, times.time)
        if times.time - swept < max(self.ttl // SWEEPS, MILLISECOND):
            return
        state.counters[counter] = times.time
        rows = state.relation(self.last_row_times)
        if rows is None:
            return
        keys = summed(self.tables[self.last_row_times], rows)
        past = Select(f"SELECT {self._listed} FROM ({keys}) WHERE {self._is_past(times)}")
        _, count = keep_and_count(con, self.touched_by, past)
        if count:
            self._keep_stored(con, state, self.touched_by)
            for table in self.tables:
                self.store(con, state, table, rows_where(Relation(f"_stored_{table}"), FALSE), times)
            state.count(EXPIRED, count)

    def current(self, relations: Relations) -> dict[str, Relation]:
        """Return, by table, rows with the sum of their weights, of the keys live at the time of NOW().

        `relations` read the state tables.
        """
        net_rows = {table: subquery(summed(columns, relations[table])) for table, columns in self.tables.items()}
        if not self.ttl:
            return net_rows
        is_live = Condition(f"{self._micros} > epoch_us({NOW}) - {self.ttl} OR {self.lasts}")
        keys = rows_where(net_rows[self.last_row_times], is_live)
        live = f"SEMI JOIN {keys} _keys_ ON {self.same('_rows_', '_keys_')}"
        return {table: Relation(f"(SELECT * FROM {rows} _rows_ {live})") for table, rows in net_rows.items()}

    def times(self, columns: Iterable[Column]) -> tuple[Column, ...]:
        """Return the time columns of a view with `columns`: `_updated_at` and, with a time to live, `_expires_at`.

        Both are instants. A time column is left out if the view already has a column of its name.
        """
        view_names = {c.name.lower() for c in columns}
        time_names = (UPDATED_AT, EXPIRES_AT) if self.ttl else (UPDATED_AT,)
        return tuple(Column(name, "TIMESTAMP WITH TIME ZONE") for name in time_names if name not in view_names)

    def timed(
        self, rows: Select, keys: Sequence[str], columns: Sequence[Column], current: Relations, *, all: bool
    ) -> Select:
        """Return `columns` of `rows`, joined with the columns of `times`.

        `keys` are the SQL expressions of the keys over `rows`; `current` is what the method `current` returns. With `all` the
        join is a left join: rows whose key has no state have NULL as times.
        """
        expires = f"CASE WHEN NOT ({self.lasts}) THEN {self.expires_at} END"
        instants = {UPDATED_AT: self.updated_at, EXPIRES_AT: expires}
        times = [f"{instants[c.name]} AS {c.name}" for c in self.times(columns)]
        of = [f"{sql} AS _of_{k}" for k, sql in zip(self.keys, keys, strict=True)]
        same = " AND ".join(f"_result_._of_{k} IS NOT DISTINCT FROM _keys_.{k}" for k in self.keys) or "true"
        keyed_rows = f"(SELECT {', '.join([*of, '*'])} FROM ({rows}))"
        key_times = f"(SELECT {', '.join([*self.keys, *times, AT.name])} FROM {current[self.last_row_times]})"
        listed = names((*columns, *self.times(columns)))
        joined = f"{keyed_rows} _result_ {'LEFT ' if all else ''}JOIN {key_times} _keys_ ON {same}"
        return Select(f"SELECT {listed} FROM {joined}")

    @property
    def updated_at(self) -> str:
        """The SQL, over the table `last_row_times`, of the time of the key's last row as an instant."""
        return f"make_timestamptz({self._micros})"

    @property
    def expires_at(self) -> str:
        """The SQL, over the table `last_row_times`, of the time at which the key expires as an instant."""
        return f"make_timestamptz({self._micros} + {self.ttl})"

    @property
    def _micros(self) -> str:
        return f"{AT.name} * {MILLISECOND}"

    def touched(self, rows: Relation) -> Select:
        """Return the rows whose keys are in `touched_by`; all rows if there are no keys."""
        if not self.keys:
            return Select(f"SELECT * FROM {rows}")
        same = self.same("_state", self.touched_by)
        return Select(f"SELECT * FROM {rows} _state SEMI JOIN {self.touched_by} ON {same}")

    def same(self, a: str, b: str) -> Condition:
        """Return the condition that rows of the relations `a` and `b` have equal keys, where NULL equals NULL."""
        return same_columns(a, b, self.keys)

    def _is_past(self, times: StepTimes) -> Condition:
        last = to_millis(ProcessingTime(times.time - self.ttl))
        return Condition(f"{AT.name} <= {last} AND NOT ({self.lasts})")

    @property
    def _expired(self) -> str:
        return f"_expired_{self.last_row_times}"

    @property
    def _listed(self) -> Items:
        return Items(", ".join(self.keys) or "true AS _all")

    def _keep_stored(self, con: duckdb.DuckDBPyConnection, state: Bucket, touched: Relation) -> None:
        for table, columns in self.tables.items():
            stored = state.rows_of(con, table, self.keys, touched)
            rows = subquery(no_rows((*columns, WEIGHT_COLUMN))) if stored is None else stored
            keep(con, f"_stored_{table}", self.in_order(table, summed(columns, rows)))

    def in_order(self, table: str, rows: Select) -> Select:
        """Return rows ordered by all columns if the table is `ordered`."""
        order = f" ORDER BY {names(self.tables[table])}" if table in self.ordered else ""
        return Select(f"SELECT * FROM ({rows}){order}")
