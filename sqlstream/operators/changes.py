"""What all operators whose result changes share: state and changes are Z-sets, and only the keys of a batch are looked at.

The state knows when a row last came for a key. With a time to live, a key for which none came so long is forgotten: what was
emitted for it stays, and when it returns it starts afresh. Forgotten keys leave the state when they return, or with a sweep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.logical.clock import NOW
from sqlstream.operators.step import Clock, Port
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.segments import Segment, encoded, quote_name
from sqlstream.storage.tables import EXPIRED, RETURNED, WEIGHTS, Bucket
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, names, summed, zset

BATCH_ROWS = 100_000
# When the last row came for a key: processing time in milliseconds.
AT = Column("_at", "BIGINT")
# The state table of the keys alone, for operators whose other tables have no one row for each.
KEYS = "keys"
# The columns that the view of a state has beside those of the result.
UPDATED_AT, EXPIRES_AT = "_updated_at", "_expires_at"
# So often within its time to live forgotten keys are looked for.
SWEEPS = 4
# The counter that holds the time of the last sweep.
SWEPT_AT = "swept_at"


class Changes(ABC):
    """An operator that emits, for the keys that a batch touches, the difference of the results after and before it.

    `keys` are columns with the SQL that makes them from input rows. Of each part, `deltas` are the columns in which a batch's
    rows arrive, and `stored` those of the state: both begin with the keys. One part has one row for each key, with AT as its
    last column; where that is KEYS, no rows arrive for it. `advance` says what a part's state becomes, `result` what follows
    from the state of some keys; both are the same whatever other keys there are. `ttl` is in milliseconds, 0 for ever.
    """

    keys: tuple[tuple[Column, str], ...]
    ttl: int

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def parts(self) -> dict[str, str]: ...

    @property
    @abstractmethod
    def deltas(self) -> Mapping[str, tuple[Column, ...]]: ...

    @property
    @abstractmethod
    def stored(self) -> Mapping[str, tuple[Column, ...]]: ...

    @property
    @abstractmethod
    def columns_out(self) -> tuple[Column, ...]: ...

    @property
    @abstractmethod
    def result_keys(self) -> tuple[str, ...]:
        """The SQL of the keys over a row of the result."""

    @abstractmethod
    def advance(self, part: str, old: str, delta: str) -> str:
        """Return the SELECT of a part's new state, with weights, from FROM-able SQL of the old one and of what has arrived."""

    @abstractmethod
    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result, without weights, over FROM-able SQL of the parts of the state, a row each."""

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(len(self.keys)))

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, c.type) for name, (c, _) in zip(self.key_names, self.keys, strict=True))

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self.key_names

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return tuple(zset(name, columns) for name, columns in self.stored.items())

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.columns_out, WEIGHT_COLUMN)

    @cached_property
    def clocked(self) -> str:
        """The part that has a row for each key, with the time of its last row."""
        return next(part for part, columns in self.stored.items() if columns[-1] == AT)

    def current(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the current result over the state tables, with the time of each key's last row."""
        tables = {part: f"({summed(columns, relations[part])})" for part, columns in self.stored.items()}
        keys = tables[self.clocked]
        if self.ttl:
            keys = f"(SELECT * FROM {keys} WHERE {AT.name} > epoch_ms({NOW}) - {self.ttl})"
            tables = {
                part: f"(SELECT * FROM {rows} _rows_ SEMI JOIN {keys} _keys_ ON {self._same('_rows_', '_keys_')})"
                for part, rows in tables.items()
            }
        times = [f"make_timestamptz({AT.name} * 1000) AS {UPDATED_AT}"]
        if self.ttl:
            times.append(f"make_timestamptz(({AT.name} + {self.ttl}) * 1000) AS {EXPIRES_AT}")
        listed = ", ".join([*self.key_names, *times])
        found = ", ".join(
            [*(f"{sql} AS _of_{k}" for k, sql in zip(self.key_names, self.result_keys, strict=True)), "*"]
        )
        same = " AND ".join(f"_result_._of_{k} IS NOT DISTINCT FROM _keys_.{k}" for k in self.key_names) or "true"
        columns = ", ".join([*(quote_name(c.name) for c in self.columns_out), *self.times])
        rows = f"(SELECT {found} FROM ({self.result(tables)}))"
        return f"SELECT {columns} FROM {rows} _result_ JOIN (SELECT {listed} FROM {keys}) _keys_ ON {same}"

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of `current` beside those of the result: instants."""
        return (UPDATED_AT, EXPIRES_AT) if self.ttl else (UPDATED_AT,)

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Iterable[tuple[Port, pa.Table | Segment]],
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, and emit what changes."""
        arrived: dict[str, list[pa.Table]] = {part: [] for part in self.deltas}
        for port, rows in inputs:
            arrived[port.part].append(state.read(rows) if isinstance(rows, Segment) else rows)
        if not any(arrived.values()):
            return
        for part, columns in self.deltas.items():
            _keep(con, f"_delta_{part}", _decoded(con, part, columns, arrived[part]))
        if self.keys:
            touched = " UNION ".join(f"SELECT {', '.join(self.key_names)} FROM _delta_{p}" for p in self.deltas)
            _keep(con, "_touched", touched)
        for part, columns in self.stored.items():
            _keep(con, f"_stored_{part}", summed(columns, f"({self._touched(state, part, columns)})"))
        self._forget_expired(con, state, clock)
        for part in self.stored:
            _keep(con, f"_new_{part}", self._advanced(part, clock))
            self._store(con, state, part, f"_new_{part}", f"_stored_{part}", clock)
        [new, old] = [f"({self.result({p: f'_{age}_{p}' for p in self.stored})})" for age in ("new", "old")]
        weighted = [f"(SELECT *, 1 AS {WEIGHT} FROM {rows})" for rows in (new, old)]
        changes = difference(self.columns_out, *weighted)
        yield from con.sql(encoded(self.outputs, f"({changes})")).to_arrow_reader(BATCH_ROWS)
        self._sweep(con, state, clock)

    def _touched(self, state: Bucket, part: str, columns: Sequence[Column]) -> str:
        rows = state.relation(part)
        if rows is None:
            nothing = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in (*columns, WEIGHT_COLUMN))
            return f"SELECT {nothing} WHERE false"
        if not self.keys:
            return f"SELECT * FROM {rows}"
        return f"SELECT * FROM {rows} _state SEMI JOIN _touched ON {self._same('_state', '_touched')}"

    def _same(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.{k} IS NOT DISTINCT FROM {b}.{k}" for k in self.key_names) or "true"

    def _forget_expired(self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock) -> None:
        """Make the old state: what is stored of the touched keys, less those whose time to live is over."""
        expired = 0
        if self.ttl:
            listed = ", ".join(self.key_names) or "true AS _all"
            past = f"SELECT {listed} FROM _stored_{self.clocked} WHERE {AT.name} <= {clock.time - self.ttl}"
            expired = _keep(con, "_expired", past)
        for part in self.stored:
            live = f" _stored_ ANTI JOIN _expired ON {self._same('_stored_', '_expired')}" if expired else ""
            con.execute(f"CREATE OR REPLACE TEMP VIEW _old_{part} AS SELECT * FROM _stored_{part}{live}")
        state.count(EXPIRED, expired)
        state.count(RETURNED, expired)

    def _advanced(self, part: str, clock: Clock) -> str:
        if part in self.deltas:
            new = self.advance(part, f"_old_{part}", f"_delta_{part}")
        else:
            others = " UNION ".join(f"SELECT {', '.join(self.key_names) or 'true'} FROM _new_{p}" for p in self.deltas)
            new = f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({others})"
        if part != self.clocked:
            return new
        listed = ", ".join([*(quote_name(c.name) for c in self.stored[part][:-1]), WEIGHT])
        return f"SELECT {listed}, CAST({clock.time} AS BIGINT) AS {AT.name} FROM ({new})"

    def _store(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, part: str, new: str, old: str, clock: Clock
    ) -> None:
        """Let the state of some keys become what is new, given what of them is stored."""
        columns = self.stored[part]
        changed = difference(columns, new, old)
        rows = con.sql(encoded((*columns, WEIGHT_COLUMN), f"({changed})")).to_arrow_table()
        state.append(part, rows, clock.batch)
        if part in self.deltas:
            state.count(WEIGHTS, pc.sum(rows.column(WEIGHT)).as_py() or 0)

    def _sweep(self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock) -> None:
        """Take keys out of the state for which no row came for their time to live, every now and then."""
        if not self.ttl:
            return
        swept = state.counters.setdefault(SWEPT_AT, clock.time)
        if clock.time - swept < max(self.ttl // SWEEPS, 1):
            return
        state.counters[SWEPT_AT] = clock.time
        rows = state.relation(self.clocked)
        if rows is None:
            return
        listed = ", ".join(self.key_names) or "true AS _all"
        keys = summed(self.stored[self.clocked], rows)
        found = _keep(con, "_touched", f"SELECT {listed} FROM ({keys}) WHERE {AT.name} <= {clock.time - self.ttl}")
        if not found:
            return
        for part, columns in self.stored.items():
            _keep(con, f"_stored_{part}", summed(columns, f"({self._touched(state, part, columns)})"))
            nothing = f"(SELECT * FROM _stored_{part} WHERE false)"
            self._store(con, state, part, nothing, f"_stored_{part}", clock)
        state.count(EXPIRED, found)


def _keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> int:
    """Make a temporary table of a query, and return how many rows it has."""
    [(count,)] = con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}").fetchall()
    return int(count)


def _decoded(con: duckdb.DuckDBPyConnection, part: str, columns: Sequence[Column], rows: Sequence[pa.Table]) -> str:
    """Return the SELECT of rows that have arrived, in an order that does not depend on that of their arrival."""
    items = ", ".join(f"CAST({quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in columns)
    if not rows:
        nothing = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in columns)
        return f"SELECT {nothing} WHERE false"
    con.register(f"_arrived_{part}", pa.concat_tables(rows, promote_options="permissive"))
    # Sums of floating-point numbers depend on their order.
    order = f" ORDER BY {names(columns)}" if len(rows) > 1 else ""
    return f"SELECT {items} FROM _arrived_{part}{order}"
