"""What all operators whose result changes share: state and changes are Z-sets, and only the keys of a batch are looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.operators.step import Clock, Port
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.segments import Segment, encoded, quote_name
from sqlstream.storage.tables import WEIGHTS, Bucket
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, difference, names, summed, zset

BATCH_ROWS = 100_000


class Changes(ABC):
    """An operator that emits, for the keys that a batch touches, the difference of the results after and before it.

    `keys` are columns with the SQL that makes them from input rows. Of each part, `deltas` are the columns in which a batch's
    rows arrive, and `stored` those of the state: both begin with the keys. `advance` says what a part's state becomes,
    `result` what follows from the state of some keys; both are the same whatever other keys there are.
    """

    keys: tuple[tuple[Column, str], ...]

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

    @abstractmethod
    def advance(self, part: str, old: str, delta: str) -> str:
        """Return the SELECT of a part's new state, with weights, from FROM-able SQL of the old one and of what has arrived."""

    @abstractmethod
    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result, without weights, over FROM-able SQL of the parts of the state, a row each."""

    def counters(self, old: Mapping[str, str], delta: Mapping[str, str]) -> Mapping[str, str]:
        """Return SELECTs of numbers to add to counters, over FROM-able SQL of the parts before a batch and of what arrived."""
        return {}

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

    def current(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the current result over the state tables."""
        return self.result({part: f"({summed(columns, relations[part])})" for part, columns in self.stored.items()})

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
            _keep(con, f"_old_{part}", summed(columns, f"({self._touched(state, part, columns)})"))
            _keep(con, f"_new_{part}", self.advance(part, f"_old_{part}", f"_delta_{part}"))
            changed = difference(columns, f"_new_{part}", f"_old_{part}")
            rows = con.sql(encoded((*columns, WEIGHT_COLUMN), f"({changed})")).to_arrow_table()
            state.append(part, rows, clock.batch)
            state.count(WEIGHTS, pc.sum(rows.column(WEIGHT)).as_py() or 0)
        for counter, sql in self.counters(
            *({p: f"_{age}_{p}" for p in self.stored} for age in ("old", "delta"))
        ).items():
            [(number,)] = con.execute(sql).fetchall()
            state.count(counter, number)
        [new, old] = [f"({self.result({p: f'_{age}_{p}' for p in self.stored})})" for age in ("new", "old")]
        weighted = [f"(SELECT *, 1 AS {WEIGHT} FROM {rows})" for rows in (new, old)]
        changes = difference(self.columns_out, *weighted)
        yield from con.sql(encoded(self.outputs, f"({changes})")).to_arrow_reader(BATCH_ROWS)

    def _touched(self, state: Bucket, part: str, columns: Sequence[Column]) -> str:
        rows = state.relation(part)
        if rows is None:
            nothing = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in (*columns, WEIGHT_COLUMN))
            return f"SELECT {nothing} WHERE false"
        if not self.keys:
            return f"SELECT * FROM {rows}"
        same = " AND ".join(f"_state.{k} IS NOT DISTINCT FROM _touched.{k}" for k in self.key_names)
        return f"SELECT * FROM {rows} _state SEMI JOIN _touched ON {same}"


def _keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> None:
    con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")


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
