"""JSON_VALUE, JSON_QUERY and JSON_EXISTS of standard SQL as DuckDB SQL.

The parser gives a call with clauses further arguments: what JSON_VALUE returns, how JSON_QUERY wraps a value, and what a call
gives ON EMPTY and ON ERROR, each as an exp.Var such as NULL, ERROR or DEFAULT; values of DEFAULT come last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sqlglot import exp

from sqlstream.duck.sql import quote_text
from sqlstream.logical.bind.expressions.flink_call import FlinkCall, WrongArgument
from sqlstream.sql.dialect import to_duckdb

# A key in brackets: ["a.b"].
_KEY = re.compile(r"""[.]?\[\s*(["'])(.*?)\1\s*\]""")
_MODE = re.compile(r"(lax|strict)\s+", re.IGNORECASE)
_NOTHING = {
    "NULL": "NULL",
    "EMPTY ARRAY": "'[]'",
    "EMPTY OBJECT": "'{}'",
    "TRUE": "true",
    "FALSE": "false",
    "UNKNOWN": "NULL",
}


class _Path(NamedTuple):
    """DuckDB's path of a call as a text of SQL. A `strict` path has an error where a `lax` one finds nothing."""

    sql: str
    strict: bool

    @property
    def finds_lists(self) -> bool:
        """Whether it has a wildcard, so that it finds a list of values."""
        return "*" in self.sql

    @property
    def kind(self) -> str:
        """The SQL of the kind of what it finds: NULL for nothing, 'NULL' for null."""
        return "'ARRAY'" if self.finds_lists else f"json_type(_0, {self.sql})"

    @property
    def text(self) -> str:
        """The SQL of what it finds, as text of JSON."""
        value = f"json_extract(_0, {self.sql})"
        return f"CAST({f'to_json({value})' if self.finds_lists else value} AS VARCHAR)"


def value(call: FlinkCall) -> str | None:
    """Return the form of JSON_VALUE(json, path), with RETURNING, ON EMPTY and ON ERROR. Raises WrongArgument."""
    if len(call.arguments) < 2:
        return None
    path = _path(call)
    text = "NULL" if path.finds_lists else f"json_value(_0, {path.sql}) ->> '$'"
    target = call.arguments[2] if len(call.arguments) > 2 else None
    type = to_duckdb(target) if isinstance(target, exp.DataType) else None
    if len(call.arguments) < 5:
        valid = f"CASE WHEN json_valid(_0) THEN {text} END"
        return f"TRY_CAST({valid} AS {type})" if type is not None else valid
    empty, wrong = (call.arguments[number].name for number in (3, 4))
    cast = type or "VARCHAR"
    on_empty, index = _sql_of(call, empty, 5, "has no value at this path")
    on_error, _ = _sql_of(call, wrong, index, "is no JSON, or has no value of the type at this path")
    on_empty, on_error = (f"CAST({sql} AS {cast})" for sql in (on_empty, on_error))
    # A text that is no JSON is an error, and so is a value of another type.
    missing = f" WHEN {path.kind} IS NULL OR {path.kind} IN ('OBJECT', 'ARRAY') THEN {on_error}" if path.strict else ""
    cases = f"WHEN NOT json_valid(_0) THEN {on_error}{missing} WHEN ({text}) IS NULL THEN {on_empty}"
    if type is not None:
        cases += f" WHEN TRY_CAST({text} AS {type}) IS NULL THEN {on_error} ELSE TRY_CAST({text} AS {type})"
    else:
        cases += f" ELSE {text}"
    return f"CASE WHEN _0 IS NULL THEN NULL {cases} END"


def query(call: FlinkCall) -> str:
    """Return the form of JSON_QUERY(json, path), with RETURNING, WRAPPER, ON EMPTY and ON ERROR. Raises WrongArgument."""
    path = _path(call)
    plain = len(call.arguments) == 2
    type, wrapper, empty, wrong = (None, "WITHOUT", "NULL", "NULL") if plain else _clauses(call)
    on_empty, _ = _sql_of(call, empty, 0, "has no object or array at this path")
    on_error, _ = _sql_of(call, wrong, 0, "is no JSON, or has no object or array at this path")
    kind, text, absent = path.kind, path.text, on_error if path.strict else on_empty
    in_array = f"'[' || {text} || ']'"
    match wrapper:
        case "UNCONDITIONAL":
            here = f"WHEN {kind} <> 'NULL' THEN {in_array}"
        case "CONDITIONAL":
            here = f"WHEN {kind} = 'ARRAY' THEN {text} WHEN {kind} <> 'NULL' THEN {in_array}"
        case _:
            here = f"WHEN {kind} IN ('OBJECT', 'ARRAY') THEN {text}"
    here = f"CASE {here} WHEN {kind} = 'NULL' THEN {on_empty} ELSE {absent} END"
    otherwise = "" if wrong == "NULL" else f" WHEN _0 IS NOT NULL THEN {on_error}"
    result = f"CASE WHEN json_valid(_0) THEN {here}{otherwise} END"
    if type is None or type == "VARCHAR":
        return result
    return f"TRY_CAST(CAST({result} AS JSON) AS {type})"


def exists(call: FlinkCall) -> str:
    """Return the form of JSON_EXISTS(json, path), with ON ERROR. Raises WrongArgument."""
    path, wrong = _path(call), call.arguments[2].name if len(call.arguments) == 3 else "FALSE"
    on_error, _ = _sql_of(call, wrong, 0, "is no JSON, or has nothing at this path")
    is_there = f"json_exists(_0, {path.sql})"
    if wrong == "FALSE":
        return f"CASE WHEN NOT json_valid(_0) THEN false ELSE {is_there} END"
    absent = f" WHEN NOT {is_there} THEN CAST({on_error} AS BOOLEAN)" if path.strict else ""
    return f"CASE WHEN _0 IS NULL THEN NULL WHEN NOT json_valid(_0) THEN CAST({on_error} AS BOOLEAN){absent} ELSE {is_there} END"


def array(call: FlinkCall) -> str:
    """Return the form of JSON_ARRAY(x, y, ..), which leaves NULLs out."""
    values = ", ".join(f"to_json(_{number})" for number in range(len(call.arguments)))
    return f"to_json(list_filter([{values}], lambda __sqlstream_v: __sqlstream_v IS NOT NULL))"


def _clauses(call: FlinkCall) -> tuple[str | None, str, str, str]:
    target, *others = call.arguments[2:6]
    kind = to_duckdb(target) if isinstance(target, exp.DataType) else None
    wrapper, empty, wrong = (other.name for other in others)
    return kind, wrapper, empty, wrong


def _sql_of(call: FlinkCall, behaviour: str, index: int, why: str) -> tuple[str, int]:
    """Return the SQL of what a call gives, and the position of the next value of DEFAULT."""
    if behaviour == "DEFAULT":
        return f"_{index}", index + 1
    if behaviour == "ERROR":
        return f"error({quote_text(f'{call.name}: the text {why}')})", index
    if behaviour not in _NOTHING:
        raise WrongArgument(2, f"{call.name} takes a text of JSON and a path")
    return _NOTHING[behaviour], index


def _path(call: FlinkCall) -> _Path:
    """Return DuckDB's path for the path of a call: $["a.b"] is $."a.b"."""
    path = call.text(1, "path").strip()
    mode = _MODE.match(path)
    path = path[mode.end() :] if mode is not None else path
    strict = mode is not None and mode[1].lower() == "strict"
    return _Path(quote_text(_KEY.sub(lambda key: f'."{key[2]}"', path)), strict)
