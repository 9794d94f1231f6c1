"""DuckDB checks expressions: it says which type an expression has, or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

import duckdb
from sqlglot import exp

from sqlstream.duck import databases
from sqlstream.duck.clock import variables
from sqlstream.duck.sql import no_rows
from sqlstream.duck.types import kind_of
from sqlstream.errors import BindError, SourceText, Span, SqlStreamError, missing, nearest, sql_types
from sqlstream.logical.bind.expressions.flink_functions import REWRITTEN
from sqlstream.logical.plan.expressions import Field, Schema
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.reading import in_lower_case
from sqlstream.sql.spans import span_of
from sqlstream.units import EPOCH

NULL_TYPE = '"NULL"'
_NO_FUNCTION = re.compile(r"(?:Scalar|Aggregate|Table|Macro)? ?Function with name (\S+) does not exist")
_AMBIGUOUS = re.compile(r'Could not choose a best candidate function for the function call "(.*?)"\. ')
_FORM = re.compile(r"\t(.+?\(.*\))(?: -> .*)?$")
_MADE_UP = re.compile(r"([(]|, )col\d+ ")
_NO_TYPE = re.compile(r"Type with name (.+?) does not exist")
# Not all that there are, but those that one may have meant.
_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "VARCHAR"),
    *("BYTES", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "INTERVAL", "ARRAY", "MAP", "ROW", "UUID", "JSON"),
)
_CAST_ARGUMENTS = "Cast the arguments to the types that it takes."
_NO_FIELD = re.compile(r'Could not find key "(.*)" in struct\s+Candidate Entries: (.*)')
_NO_FIELDS = re.compile(r"struct_extract\((.*), (?:VARCHAR|STRING_LITERAL)\)$")
_CALLED = re.compile(r"(\w+)\(")
_NO_MATCH = re.compile(r"No function matches the given name and argument types '(.*?)'\.? ")


class TypeChecker:
    """Types of expressions over a schema, by preparing them against an empty table.

    The user's functions, whose names are given, are registered in `con`. `broken` says why files with more of them could not be
    loaded.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        functions: Iterable[str] = (),
        broken: Sequence[SqlStreamError] = (),
    ):
        self.con, self.broken = con, broken
        for name, value in variables(EPOCH, None).items():
            con.execute(f"SET VARIABLE {name} = {value}")
        self.aggregates, built_in = _built_in()
        self.functions = built_in.union(functions)

    @property
    def zone(self) -> str:
        """The session's time zone."""
        [(zone,)] = self.con.execute("SELECT current_setting('TimeZone')").fetchall()
        return str(zone)

    def types(self, schema: Schema, expressions: Sequence[exp.Expr], source: SourceText) -> list[str]:
        """Return the DuckDB types of bound expressions over a schema; raise BindError at the part that does not fit."""
        if not expressions:
            return []
        try:
            return self._describe(schema, [to_duckdb(e) for e in expressions])
        except duckdb.Error as e:
            for expression in expressions:
                self._check(schema, expression, source)
            raise self.translate(e, expressions[0], source) from e

    def type(self, schema: Schema, expression: exp.Expr, source: SourceText) -> str:
        return self.types(schema, [expression], source)[0]

    def parts(self, schema: Schema, sql: str) -> Schema:
        """Return the fields of a struct, without names where it has none; of any other value that value, without a name."""
        [kind] = self._describe(schema, [sql])
        if kind_of(kind) != "struct":
            return (Field("", kind),)
        return self.columns(schema, f"SELECT unnest({sql})")

    def columns(self, schema: Schema, select: str) -> Schema:
        """Return the columns of a SELECT over the values of a row. Raises duckdb.Error."""
        rows = self.con.execute(f"DESCRIBE SELECT _made.* FROM {empty(schema)} AS _row, LATERAL ({select}) AS _made")
        return tuple(Field(row[0], row[1]) for row in rows.fetchall())

    def union_types(self, schemas: Iterable[Schema]) -> list[str] | None:
        """Return the column types of a UNION ALL, None where the inputs do not fit together."""
        try:
            rows = self.con.execute("DESCRIBE " + " UNION ALL ".join(f"SELECT * FROM {empty(s)}" for s in schemas))
            return [row[1] for row in rows.fetchall()]
        except duckdb.Error:
            return None

    def canonical(self, type: str) -> str:
        """Return DuckDB's own spelling of a type.

        Raises duckdb.Error when there is no such type.
        """
        [row] = self.con.execute(f"DESCRIBE SELECT CAST(NULL AS {type})").fetchall()
        return str(row[1])

    def _describe(self, schema: Schema, sqls: Sequence[str]) -> list[str]:
        items = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(sqls))
        return [row[1] for row in self.con.execute(f"DESCRIBE SELECT {items} FROM {empty(schema)}").fetchall()]

    def _check(self, schema: Schema, expression: exp.Expr, source: SourceText) -> None:
        """Raise for the smallest part of an expression that DuckDB refuses."""
        try:
            self._describe(schema, [to_duckdb(expression)])
        except duckdb.Error as e:
            # Inside a lambda its parameters would not resolve.
            if not isinstance(expression, exp.Lambda):
                for child in expression.iter_expressions():
                    if isinstance(child, exp.Condition) and not isinstance(child, exp.Lambda | exp.Star | exp.Interval):
                        self._check(schema, child, source)
            raise self.translate(e, expression, source) from e

    def translate(self, error: duckdb.Error, expression: exp.Expr, source: SourceText) -> SqlStreamError:
        """Return our error for what DuckDB said about an expression."""
        span = span_of(expression, source)
        text = str(error)
        if no := no_type(text, span):
            return no
        if found := _NO_FUNCTION.search(text):
            return self.no_function(found.group(1).strip('"'), span)
        if found := _NO_MATCH.search(text) or _AMBIGUOUS.search(text):
            if field := _NO_FIELDS.match(found.group(1)):
                hint = "Write m['key'] for the value of a map, list[1] for an element of a list."
                return BindError(f"a value of type {field[1]} has no fields", span, hint=hint)
            call = found.group(1).replace("INTEGER_LITERAL", "INTEGER").replace("STRING_LITERAL", "VARCHAR")
            forms = [form for line in text.splitlines() if (form := _FORM.match(line))]
            hint = f"it takes: {' or '.join(_form(form[1]) for form in forms)}"
            return BindError(f"no function fits {call}", span, hint=hint if len(forms) <= 3 else _CAST_ARGUMENTS)
        if found := _NO_FIELD.search(text):
            return BindError(
                f'field "{found.group(1)}" does not exist', span, hint=f"existing fields: {found.group(2)}"
            )
        return BindError(plain(text), span)

    def knows(self, name: str) -> bool:
        """Tell whether there is a function of this name."""
        return name.lower() in self.functions

    def no_function(self, name: str, span: Span) -> BindError:
        """Return the error for a function that does not exist."""
        match = nearest(name, sorted(self.functions.union(REWRITTEN)))
        hint = match and f'did you mean "{match}"?'
        if not self.broken:
            return BindError(f'function "{name}" does not exist', span, hint=hint)
        # It may be in a file of functions that could not be loaded.
        detail = "\n".join(f"{error.message}." for error in self.broken)
        return BindError(f'function "{name}" does not exist', span, detail=detail, hint=self.broken[0].hint or hint)


def no_type(text: str, span: Span) -> BindError | None:
    """Return our error where DuckDB says that a type does not exist."""
    found = _NO_TYPE.search(text)
    if found is None:
        return None
    hint = missing("type", found.group(1).upper(), _TYPES)
    return BindError(f'type "{found.group(1)}" does not exist', span, hint=hint)


def plain(text: str) -> str:
    """Return the first line of an error of DuckDB's as ours begin and end.

    >>> plain("Conversion Error: Could not convert string 'x' to INT32\\n\\nLINE 1: ...")
    "could not convert string 'x' to INTEGER"
    """
    line = sql_types(text.partition("\n")[0])
    return in_lower_case((line.partition(": ")[2] or line).rstrip(".!"))


def _form(text: str) -> str:
    """Return how a function is called, without the names that DuckDB 2.0.0 makes up for parameters that have none.

    >>> _form("weighted_mean(col0 DOUBLE, col1 BIGINT, /)"), _form("weighted_mean(DOUBLE, BIGINT)")
    ('weighted_mean(DOUBLE, BIGINT)', 'weighted_mean(DOUBLE, BIGINT)')
    """
    unnamed = text.endswith(", /)") and _MADE_UP.search(text)
    return _MADE_UP.sub(r"\1", text.removesuffix(", /)")) + ")" if unnamed else text


@cache
def _built_in() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of DuckDB's aggregates, and of all its functions that can stand in an expression."""
    with databases.passing() as con:
        rows = con.execute("SELECT function_name, function_type, macro_definition FROM duckdb_functions()").fetchall()
    functions = frozenset(name for name, kind, _ in rows if kind in ("scalar", "aggregate", "macro"))
    aggregates = {name for name, kind, _ in rows if kind == "aggregate"}
    # A macro that calls an aggregate is one, such as json_group_array; wavg calls one that does.
    calls = {name: set(_CALLED.findall(body)) for name, kind, body in rows if kind == "macro" and body}
    while found := {name for name, called in calls.items() if called & aggregates} - aggregates:
        aggregates |= found
    return frozenset(aggregates), functions


def empty(schema: Schema) -> str:
    """Return a relation of the given columns without rows, to go behind FROM."""
    return f"({no_rows(schema) if schema else 'SELECT 1 WHERE false'})"
