"""Prepared statements of a connection: parsed once, and run often over other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import Relation

# The most statements that are kept. A job has few views, but a view that reads the clock has a statement for each version.
_MOST_STATEMENTS = 200
_ONCE = "_once"


class _Slot:
    """Rows in memory that DuckDB scans; a statement reads the rows that are in the slot when it runs."""

    def __init__(self, rows: pa.Table):
        self.rows = rows

    def __arrow_c_schema__(self) -> Any:
        return self.rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.rows.__arrow_c_stream__(requested_schema)


class PreparedStatements:
    """The prepared statements of one connection. Parsing a statement takes several times as long as running it over a few rows.

    DuckDB 2 plans a prepared statement each time that it runs, but does not parse it again. The values of a statement are SQL
    constants, of the types to which the statement casts its parameters `$1` to `$n`.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection):
        self._connection = connection
        self._names: dict[tuple[int, pa.Schema], Relation] = {}
        self._slots: dict[str, _Slot] = {}
        self._statements: dict[object, str] = {}
        self._variables: dict[str, str] = {}

    def put(self, number: int, rows: pa.Table) -> Relation:
        """Set the rows of the input `number` of the next statement; return the input, the same for equal schemas."""
        name = self._names.get((number, rows.schema))
        if name is None:
            name = Relation(f"_rows_{len(self._names)}")
            self._slots[name] = _Slot(rows)
            self._connection.register(name, self._slots[name])
            self._names[number, rows.schema] = name
        self._slots[name].rows = rows
        return name

    def execute(
        self, sql: str, values: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Run a statement, prepared before if it has run before; `values` and DuckDB's `variables` are SQL constants."""
        self._set(variables or {})
        # When it plans, DuckDB may replace a variable by its value.
        cache_key = (sql, *(variables or {}).items())
        name = self._statements.get(cache_key)
        if name is None:
            if len(self._statements) >= _MOST_STATEMENTS:
                self._forget()
            name = f"_statement_{len(self._statements)}"
            self._connection.execute(f"PREPARE {name} AS {sql}")
            self._statements[cache_key] = name
        return self._connection.execute(_call(name, values))

    def execute_once(
        self, sql: str, values: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Run a statement without keeping it prepared."""
        self._set(variables or {})
        self._connection.execute(f"PREPARE {_ONCE} AS {sql}")
        return self._connection.execute(_call(_ONCE, values))

    def relation(self, sql: str, values: Sequence[str]) -> duckdb.DuckDBPyRelation:
        """Return the relation of a statement, which stays prepared as in `execute`."""
        if (sql,) not in self._statements:
            self.execute(sql, values)
        return self._connection.sql(_call(self._statements[sql,], values))

    def _set(self, variables: Mapping[str, str]) -> None:
        for variable, value in variables.items():
            if self._variables.get(variable) != value:
                self._connection.execute(f"SET VARIABLE {variable} = {value}")
                self._variables[variable] = value

    def _forget(self) -> None:
        for name in self._statements.values():
            self._connection.execute(f"DEALLOCATE {name}")
        self._statements = {}


def _call(name: str, values: Sequence[str]) -> str:
    return f"EXECUTE {name}({', '.join(values)})" if values else f"EXECUTE {name}"
