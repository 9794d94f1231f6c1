"""The tables of a process function under test: their columns come from hints, from declarations, and from the first rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from sqlstream.catalog import ProcessFunction, TableArgument
from sqlstream.duck import databases
from sqlstream.duck.sql import quote_name
from sqlstream.errors import UsageError, missing

# A mapping, an object with fields, or a tuple.
Row: TypeAlias = Any
Shaped = Mapping[str, Any] | Sequence[Any]


class HarnessTable:
    """A table argument: the columns that partition it, and the column with its event time."""

    def __init__(self, argument: TableArgument, keys: tuple[str, ...], time: str | None, declared: str | None):
        self.row, self.keys, self.time, self.declared = argument, keys, time, declared
        # Whether rows come in the order of their times.
        self.ordered = False

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def argument(self) -> str:
        """The argument of the call, as SQL."""
        keys = ", ".join(map(quote_name, self.keys))
        order = f" ORDER BY {quote_name(self.time)}" if self.ordered and self.time else ""
        order += " BROADCAST" if self.row.broadcast else ""
        return f"{self.name} => TABLE {quote_name(self.name)}" + (f" PARTITION BY ({keys})" if keys else "") + order

    def declare(self, rows: Sequence[Row]) -> str:
        """Return the CREATE TABLE statement; `rows`, the first ones, give types that nothing declares. May raise UsageError."""
        columns = self.declared or ", ".join(f"{quote_name(n)} {type}" for n, type in self._columns(rows).items())
        # No row moves the watermark: the harness moves it.
        watermark = f", WATERMARK FOR {quote_name(self.time)} AS CAST(NULL AS TIMESTAMP)" if self.time else ""
        return f"CREATE TABLE {quote_name(self.name)} ({columns}{watermark})"

    def _columns(self, rows: Sequence[Row]) -> dict[str, str]:
        shaped = [_by_name(row) for row in rows]
        named = [row for row in shaped if isinstance(row, Mapping)]
        hinted = {c.name: c.type for c in self.row.columns or ()}
        if self.row.columns is None and not named:
            what = "has no hint, and its first rows have no names" if rows else "has no hint, and no row has come"
            hint = f'Declare them: ProcessHarness(.., columns={{"{self.name}": "id BIGINT, ts TIMESTAMP"}}).'
            raise UsageError(f'the columns of table "{self.name}" are not known: its row {what}', hint=hint)
        names = [*self.keys, *hinted, *(name for row in named for name in row), *([self.time] if self.time else [])]
        declared_types = hinted | ({self.time: "TIMESTAMP"} if self.time else {})
        types = {}
        for name in dict.fromkeys(names):
            values = [row.get(name) for row in named]
            if not named and len(shaped) and name not in declared_types:
                # Tuples are in the order of the columns, and keys come first.
                values = [row[names.index(name)] for row in shaped if isinstance(row, Sequence)]
            types[name] = declared_types.get(name) or self._type(name, values)
        return types

    def _type(self, name: str, values: list[Any]) -> str:
        """Return the DuckDB type of values that have no declared type. Raises UsageError if they do not show one."""
        try:
            array = pa.array(values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._unknown(name) from error
        if array.null_count == len(array):
            raise self._unknown(name)
        with databases.passing() as con:
            con.register("_given", pa.table({"v": array}))
            [(type_name,)] = con.execute("SELECT typeof(v) FROM _given WHERE v IS NOT NULL LIMIT 1").fetchall()
        return str(type_name)

    def _unknown(self, name: str) -> UsageError:
        hint = f'Declare all columns: ProcessHarness(.., columns={{"{self.name}": "{name} BIGINT, .."}}).'
        return UsageError(f'the type of column "{name}" of table "{self.name}" is not known', hint=hint)

    def shaped(self, rows: Sequence[Row]) -> list[Shaped]:
        """Return rows as a stream takes them. Raises UsageError for a mapping without the key or the event time."""
        shaped_rows = [_by_name(row) for row in rows]
        needed = {**dict.fromkeys(self.keys, "by which rows are partitioned")}
        needed |= {self.time: "the event time"} if self.time else {}
        for number, row in enumerate(shaped_rows, 1):
            for name, why in needed.items():
                if isinstance(row, Mapping) and name.lower() not in map(str.lower, row):
                    raise UsageError(f'row {number} for table "{self.name}" has no "{name}", {why}: {dict(row)}')
        return shaped_rows


def harness_tables(
    function: ProcessFunction,
    keys: str | Sequence[str] | Mapping[str, str | Sequence[str]],
    on_time: str | Mapping[str, str] | None,
    columns: str | Mapping[str, str] | None,
    *,
    ordered: bool,
) -> list[HarnessTable]:
    """Return the tables of a function, in their order. Raises UsageError for names and declarations that do not fit it.

    Broadcast tables have no keys. They have an event time if rows are `ordered`, or if `on_time` is a mapping that names them.
    """
    names = [t.name for t in function.tables]
    for value, what in ((keys, "keys"), (on_time, "on_time"), (columns, "columns")):
        if isinstance(value, Mapping) and (odd := [name for name in value if name not in names]):
            raise UsageError(f'{what}: the function has no table "{odd[0]}"', hint=missing("table", odd[0], names))
    if isinstance(columns, str) and len(names) > 1:
        hint = f'Write columns={{"{names[0]}": ".."}}.'
        raise UsageError("the function reads several tables: columns are declared for each", hint=hint)
    tables = []
    for table in function.tables:
        own = keys.get(table.name, ()) if isinstance(keys, Mapping) else () if table.broadcast else keys
        if table.broadcast and own:
            raise UsageError(f'table "{table.name}" is broadcast: its rows have no key')
        time = on_time.get(table.name) if isinstance(on_time, Mapping) else on_time
        if table.broadcast and not ordered and not isinstance(on_time, Mapping):
            time = None
        declared = columns.get(table.name) if isinstance(columns, Mapping) else columns
        tables.append(HarnessTable(table, (own,) if isinstance(own, str) else tuple(own), time, declared))
    return tables


def _by_name(row: Row) -> Shaped:
    """Return an object with fields as a mapping, a mapping or a sequence as it is. Raises UsageError for anything else."""
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.asdict(row)
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return dict(zip(row._fields, row, strict=True))
    if isinstance(row, Mapping | list | tuple):
        return row
    raise UsageError(f"a row is a mapping, an object with fields or a tuple, not {row!r}")
