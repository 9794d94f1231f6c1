"""Types of expressions, and errors in them, from DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

import duckdb
from sqlglot import exp

from sqlstream.duck import databases
from sqlstream.duck.sql import no_rows
from sqlstream.duck.time_variables import variables
from sqlstream.duck.types import kind_of
from sqlstream.errors import BindError, SourceText, Span, SqlStreamError, missing, nearest, sql_types
from sqlstream.logical.bind.expressions.aggregate_names import OTHER_AGGREGATES
from sqlstream.logical.bind.expressions.flink_functions import REWRITTEN
from sqlstream.logical.bind.expressions.meaning import ExpressionSemantics
from sqlstream.logical.plan.expressions import Field, Schema
from sqlstream.logical.plan.state_settings import Semantics
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.required_tokens import in_lower_case
from sqlstream.sql.spans import span_of
from sqlstream.units import EPOCH

NULL_TYPE = '"NULL"'
_NO_FUNCTION = re.compile(r"(?:Scalar|Aggregate|Table|Macro)? ?Function with name (\S+) does not exist")
_AMBIGUOUS = re.compile(r'Could not choose a best candidate function for the function call "(.*?)"\. ')
_FORM = re.compile(r"\t(.+?\(.*\))(?: -> .*)?$")
_MADE_UP = re.compile(r"([(]|, )col\d+ ")
_NO_TYPE = re.compile(r"Type with name (.+?) does not exist")
# The types that hints suggest.
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
    """Returns the types of expressions over a schema, by preparing them in DuckDB against an empty table.

    `functions` are the names of the user's functions, which are registered in `con`. `broken` are the errors of files of
    functions that could not be loaded. `semantics` says whose values expressions have.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        functions: Iterable[str] = (),
        broken: Sequence[SqlStreamError] = (),
        semantics: Semantics = "flink",
    ):
        self.con, self.broken, self.meaning = con, broken, ExpressionSemantics(semantics)
        for name, value in variables(EPOCH, None).items():
            con.execute(f"SET VARIABLE {name} = {value}")
        self.aggregates, built_in = _built_in()
        self.functions = built_in.union(functions, OTHER_AGGREGATES)

    @property
    def zone(self) -> str:
        """The session's time zone."""
        [(zone,)] = self.con.execute("SELECT current_setting('TimeZone')").fetchall()
        return str(zone)

    def types(self, schema: Schema, expressions: Sequence[exp.Expr], source: SourceText) -> list[str]:
        """Return the DuckDB types of bound expressions over a schema. Raises BindError at the smallest part that is wrong."""
        if not expressions:
            return []
        try:
            return self._describe(schema, [to_duckdb(e) for e in expressions])
        except duckdb.Error as e:
            for expression in expressions:
                self._check(schema, expression, source)
            raise self.translate(e, expressions[0], source) from e

    def type(self, schema: Schema, expression: exp.Expr, source: SourceText) -> str:
        """Return the type of a bound expression, as `types` does."""
        return self.types(schema, [expression], source)[0]

    def constant(self, expression: exp.Expr) -> object:
        """Return the value of a bound expression without columns. Raises duckdb.Error."""
        [(value,)] = self.con.execute(f"SELECT {to_duckdb(expression)}").fetchall()
        return value

    def parts(self, schema: Schema, sql: str) -> Schema:
        """Return the fields of the STRUCT that `sql` computes over a schema; for any other type one field with an empty name.

        Raises duckdb.Error.
        """
        [kind] = self._describe(schema, [sql])
        if kind_of(kind) != "struct":
            return (Field("", kind),)
        return self.columns(schema, f"SELECT unnest({sql})")

    def columns(self, schema: Schema, select: str) -> Schema:
        """Return the columns of a SELECT that may read the columns of a row, as LATERAL does. Raises duckdb.Error."""
        rows = self.con.execute(f"DESCRIBE SELECT _made.* FROM {empty(schema)} AS _row, LATERAL ({select}) AS _made")
        return tuple(Field(row[0], row[1]) for row in rows.fetchall())

    def union_types(self, schemas: Iterable[Schema]) -> list[str] | None:
        """Return the column types of a UNION ALL, None if the inputs have no common types."""
        try:
            rows = self.con.execute("DESCRIBE " + " UNION ALL ".join(f"SELECT * FROM {empty(s)}" for s in schemas))
            return [row[1] for row in rows.fetchall()]
        except duckdb.Error:
            return None

    def canonical(self, type: str) -> str:
        """Return DuckDB's own spelling of a type. Raises duckdb.Error if there is no such type."""
        [row] = self.con.execute(f"DESCRIBE SELECT CAST(NULL AS {type})").fetchall()
        return str(row[1])

    def _describe(self, schema: Schema, sqls: Sequence[str]) -> list[str]:
        items = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(sqls))
        return [row[1] for row in self.con.execute(f"DESCRIBE SELECT {items} FROM {empty(schema)}").fetchall()]

    def _check(self, schema: Schema, expression: exp.Expr, source: SourceText) -> None:
        """Raise an error for the smallest part of an expression that DuckDB refuses."""
        try:
            self._describe(schema, [to_duckdb(expression)])
        except duckdb.Error as e:
            # The parameters of a lambda have no type outside of it.
            if not isinstance(expression, exp.Lambda):
                for child in expression.iter_expressions():
                    if isinstance(child, exp.Condition) and not isinstance(child, exp.Lambda | exp.Star | exp.Interval):
                        self._check(schema, child, source)
            raise self.translate(e, expression, source) from e

    def translate(self, error: duckdb.Error, expression: exp.Expr, source: SourceText) -> SqlStreamError:
        """Return the error to raise for an error of DuckDB about a bound expression."""
        span = span_of(expression, source)
        text = str(error)
        if no := no_type(text, span):
            return no
        if match := _NO_FUNCTION.search(text):
            return self.no_function(match.group(1).strip('"'), span)
        if match := _NO_MATCH.search(text) or _AMBIGUOUS.search(text):
            if field := _NO_FIELDS.match(match.group(1)):
                hint = "Write m['key'] for the value of a map, list[1] for an element of a list."
                return BindError(f"a value of type {field[1]} has no fields", span, hint=hint)
            call = match.group(1).replace("INTEGER_LITERAL", "INTEGER").replace("STRING_LITERAL", "VARCHAR")
            forms = [form for line in text.splitlines() if (form := _FORM.match(line))]
            hint = f"it takes: {' or '.join(_form(form[1]) for form in forms)}"
            return BindError(f"no function fits {call}", span, hint=hint if len(forms) <= 3 else _CAST_ARGUMENTS)
        if match := _NO_FIELD.search(text):
            return BindError(
                f'field "{match.group(1)}" does not exist', span, hint=f"existing fields: {match.group(2)}"
            )
        return BindError(plain(text), span)

    def knows(self, name: str) -> bool:
        """Return whether DuckDB or the user has a scalar or aggregate function of this name, in any case."""
        return name.lower() in self.functions

    def no_function(self, name: str, span: Span) -> BindError:
        """Return the error for a function that does not exist."""
        match = nearest(name, sorted(self.functions.union(REWRITTEN)))
        hint = match and f'did you mean "{match}"?'
        if not self.broken:
            return BindError(f'function "{name}" does not exist', span, hint=hint)
        # A file of functions that could not be loaded may define it.
        detail = "\n".join(f"{error.message}." for error in self.broken)
        return BindError(f'function "{name}" does not exist', span, detail=detail, hint=self.broken[0].hint or hint)


def no_type(text: str, span: Span) -> BindError | None:
    """Return the error for a type that does not exist; None if the text of DuckDB's error is about something else."""
    match = _NO_TYPE.search(text)
    if match is None:
        return None
    hint = missing("type", match.group(1).upper(), _TYPES)
    return BindError(f'type "{match.group(1)}" does not exist', span, hint=hint)


def plain(text: str) -> str:
    """Return the first line of an error of DuckDB in the form of a message: lower case, without its kind and full stop.

    >>> plain("Conversion Error: Could not convert string 'x' to INT32\\n\\nLINE 1: ...")
    "could not convert string 'x' to INTEGER"
    """
    line = sql_types(text.partition("\n")[0])
    return in_lower_case((line.partition(": ")[2] or line).rstrip(".!"))


def _form(text: str) -> str:
    """Return the signature of a function without the names that DuckDB 2.0.0 invents for nameless parameters.

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
    # A macro that calls an aggregate is an aggregate, such as json_group_array; wavg calls such a macro.
    calls = {name: set(_CALLED.findall(body)) for name, kind, body in rows if kind == "macro" and body}
    while macros := {name for name, called in calls.items() if called & aggregates} - aggregates:
        aggregates |= macros
    return frozenset(aggregates), functions


def empty(schema: Schema) -> str:
    """Return a FROM item with the columns of a schema and no rows."""
    return f"({no_rows(schema) if schema else 'SELECT 1 WHERE false'})"
