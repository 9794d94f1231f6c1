"""JSON lines and values, with a check of each row, so that malformed ones can be skipped, counted, or named."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.json_columns import documents
from sqlstream.connectors.formats.json_options import is_complete
from sqlstream.connectors.formats.malformed import does_not_hold, skips
from sqlstream.connectors.formats.whole_numbers import (
    FLOATS,
    READ_AS_TEXT,
    as_text,
    fraction,
    infinite,
    is_exact,
    number_type,
    overflow,
    whole,
    wrong_keys,
)
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Select, quote_name, quote_text
from sqlstream.duck.text_files import NO_OBJECT, duckdb_paths

# The text of an object, and the object as a struct.
_TEXT, _ROW = internal("text"), internal("object")
# The path of a row's file, and how much of a value is shown in an error.
_FILE, _SHOWN = internal("file"), 200
_NESTED = ("struct", "list", "map", "array")


def read_json(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
    *,
    exactly: bool = False,
    check: str | None = None,
) -> ReadPlan:
    """Return the plan that reads files of JSON lines, see `ReadFiles`.

    Unless the table skips malformed rows, the plan fails at numbers that DuckDB reads as infinite, such as 1e400. With `exactly`
    it judges such a number by its text, which takes longer: `Infinity` is valid, 1e400 is not. With `check`, the SQL function of
    this name judges: it takes the path of a file that has such a number, and returns what is wrong with the file, or "".
    """
    paths = duckdb_paths([copies.get(s.path, s.path) for s in splits])
    if skips(table) or is_complete(table):
        names = ", ".join(quote_name(c.name) for c in columns) or "1"
        lines = Relation(f"read_ndjson_objects({paths}, ignore_errors = true, hive_partitioning = false)")
        marked = Select(
            f"SELECT {names}, {WRONG} FROM {_marked(con, lines, columns, NO_OBJECT, complete=is_complete(table))}"
        )
        if skips(table):
            return ReadPlan.of_marked(marked, keep=True)
        # `faults.translate` then looks for the line.
        whole_row = f"CASE WHEN {WRONG} IS NULL THEN true ELSE error(concat('\" is malformed: ', {WRONG})) END"
        return ReadPlan(Select(f"SELECT {names} FROM ({marked}) WHERE {whole_row}"), keep=True)
    typed = [(c, con.sqltype(c.type)) for c in columns or table.physical]
    floats = "JSON" if exactly else None
    types = ", ".join(f"{quote_text(c.name)}: {quote_text(as_text(t, floats) or c.type)}" for c, t in typed)
    items, where = whole(typed if columns else [], floats)
    options = f"format = 'newline_delimited', columns = {{{types}}}, hive_partitioning = false"
    if (exactly or check) and columns:
        options += f", filename = {quote_text(_FILE)}"
        where = f" WHERE {_fits(typed, check)}"
    rows = Select(f"SELECT {items} FROM read_json({paths}, {options}){where}")
    items_of = [(quote_name(c.name), documents(quote_name(c.name), t)) for c, t in typed] if columns else []
    if any(sql for _, sql in items_of):
        rows = Select(f"SELECT {', '.join(f'{sql or name} AS {name}' for name, sql in items_of)} FROM ({rows})")
    return ReadPlan(rows, keep=True)


def _fits(typed: Sequence[tuple[Column, Any]], check: str | None) -> str:
    """Return a condition that is true for well-formed rows, and fails with an error that names the file and the value for others.

    With `check`, see `read_json`, floating-point columns were read as floating-point numbers, otherwise as JSON.
    """
    cases = []
    for column, type_ in typed:
        name = quote_name(column.name)
        wrong = [*filter(None, [fraction(name, type_, floats=check is None)])]
        if infinite(name, type_) and check is None:
            wrong.append(f"({name} IS NOT NULL AND TRY_CAST({name} AS {column.type}) IS NULL)")
        if wrong:
            why = quote_text(f'" is malformed: {does_not_hold(column)}: ')
            text = f"concat('file \"', {_FILE}, {why}, left(CAST({name} AS VARCHAR), {_SHOWN}))"
            cases.append(f"WHEN {' OR '.join(wrong)} THEN error({text})")
    doubts = [doubt for column, type_ in typed if (doubt := infinite(quote_name(column.name), type_))]
    if check is not None and doubts:
        # For a few rows: the function reads the file once more.
        fault = f"{check}({_FILE})"
        cases.append(f"WHEN {' OR '.join(doubts)} THEN CASE WHEN {fault} = '' THEN true ELSE error({fault}) END")
    return f"CASE {' '.join(cases)} ELSE true END" if cases else "true"


def json_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values, each of them the text of a JSON object, see `ReadValues`."""
    # A text that is no JSON would be an error. TRY is cheaper if all texts are JSON, and slow for thousands of rows around one
    # that is not.
    whole_text = f"CASE WHEN json_valid({VALUE}) THEN {VALUE} END" if skips(table) else VALUE
    return _marked(
        con,
        values,
        columns,
        "The value is not a JSON object",
        passthrough,
        text=VALUE,
        whole_text=whole_text,
        complete=is_complete(table),
    )


def _marked(
    con: duckdb.DuckDBPyConnection,
    lines: Relation,
    columns: Sequence[Column],
    no_object: str,
    passthrough: Sequence[str] = (),
    *,
    text: str = "json",
    whole_text: str = "json",
    complete: bool = False,
) -> Relation:
    """Return marked rows: the columns `passthrough`, the table's `columns`, and WRONG.

    `text` is the column of `lines` with the object. It is either JSON (NULL for a line that is not JSON), or VALUE, any text.
    `whole_text` is the SQL of the text to parse; to parse a text that is not JSON is slow. If `complete`, an object that lacks a
    field of the table is malformed. `no_object` is the reason for a text that is not an object; all its columns are NULL.

    Only rows in which a value is NULL or in doubt are checked for faults.
    """
    typed = [(c, con.sqltype(c.type)) for c in columns]
    shape = quote_text(json.dumps({c.name: number_type(t) or as_text(t, None) or c.type for c, t in typed}))
    row = f"TRY(json_transform({whole_text}, {shape}))" if columns else "NULL"
    items, suspicious, cases, texts = list[str](), list[str](), list[str](), dict[str, str]()
    # A malformed text or whole number is NULL or in doubt. Other types need a stricter check: any NULL in the row causes one.
    nulls_show_faults = all(_shows_faults_as_null(t) for _, t in typed)
    for column, type_ in typed:
        name, value = f"{_ROW}.{quote_name(column.name)}", f"json_extract({_TEXT}, {_json_key(column.name)})"
        item, doubted = name if as_text(type_, None) is None else f"TRY_CAST({name} AS {column.type})", name
        if number_type(type_):
            doubted = internal(f"text_{len(texts)}")
            texts[doubted] = _text_in_doubt(name, column.name, is_unsigned=type_.id.startswith("u"))
            item = f"CASE WHEN {doubted} IS NULL THEN {item} ELSE TRY_CAST({doubted} AS {column.type}) END"
        items.append(f"{documents(item, type_) or item} AS {quote_name(column.name)}")
        # A value that does not fit becomes NULL, so most lines need no second look.
        fault, fractions = _misfit(value, type_), filter(None, [fraction(doubted, type_, floats=False)])
        if type_.id == "struct" and nulls_show_faults:
            missing = " OR ".join([_missing(quote_name(column.name), type_), *fractions])
            suspicious.append(f"({name} IS NOT NULL AND ({missing}))")
        elif type_.id in _NESTED or fault != "false" or not nulls_show_faults:
            suspicious += _in_doubt(column, type_, name, fractions)
        if fault != "false":
            cases.append(f"WHEN {fault} THEN {quote_text(does_not_hold(column))}")
        if complete:
            # A field that an object lacks is NULL, or a field within it.
            suspicious.append("true" if type_.id in _NESTED else f"{quote_name(column.name)} IS NULL")
            cases.append(f"WHEN {_lacks(_TEXT, column.name, type_)} THEN {quote_text(_lacking(column))}")
    if nulls_show_faults:
        # At least one column of an object has a value, unless it lacks all of them.
        suspicious.append(" AND ".join(f"{_ROW}.{quote_name(c.name)} IS NULL" for c in columns) or "true")
    # One after the other: the type of a text that is no JSON is an error.
    no_row = f"CASE WHEN json_valid({_TEXT}) THEN json_type({_TEXT}) NOT IN ('OBJECT', 'NULL') ELSE true END"
    why = f"CASE WHEN {no_row} THEN {quote_text(no_object)} {' '.join(cases)} END"
    rows = f"(SELECT {''.join(f'{name}, ' for name in passthrough)}{text} AS {_TEXT}, {row} AS {_ROW} FROM {lines})"
    if texts:
        rows = f"(SELECT *, {', '.join(f'{sql} AS {name}' for name, sql in texts.items())} FROM {rows})"
    rows = f"(SELECT {', '.join([*passthrough, _TEXT, _ROW, *texts, *items])} FROM {rows})"
    checked = f"CASE WHEN {' OR '.join(suspicious)} THEN {why} END AS {WRONG}"
    return Relation(
        f"(SELECT {', '.join([*passthrough, *(quote_name(c.name) for c in columns), checked])} FROM {rows})"
    )


def _in_doubt(column: Column, type_: Any, name: str, fractions: Iterable[str]) -> list[str]:
    """Return the conditions under which a value may not fit its column; `name` is the SQL of the value as it was read."""
    if type_.id in _NESTED:
        return ["true"]
    return [f"{quote_name(column.name)} IS NULL", *fractions, *([f"isinf({name})"] if type_.id in FLOATS else [])]


def _lacking(column: Column) -> str:
    return f'The object has no field "{column.name}", or one within it is missing'


def _lacks(value: str, name: str, declared: Any, depth: int = 0) -> str:
    """Return the condition that a JSON object lacks a field, or that an object within the field lacks one of its own."""
    field = f"json_extract({value}, {_json_key(name)})"
    inside = _incomplete(field, declared, depth)
    lacks = f"NOT coalesce(json_exists({value}, {_json_key(name)}), false)"
    return lacks if inside == "false" else f"({lacks} OR {inside})"


def _incomplete(value: str, declared: Any, depth: int) -> str:
    """Return the condition that an object in a JSON value lacks a field of the declared type."""
    item = f"_y{depth}"
    match declared.id:
        case "struct":
            lacking = " OR ".join(_lacks(value, name, type_, depth) for name, type_ in declared.children)
            return f"(coalesce(json_type({value}), 'NULL') = 'OBJECT' AND ({lacking}))"
        case "list" | "array":
            element, path = declared.children[0][1], "$[*]"
        case "map":
            element, path = declared.children[1][1], "$.*"
        case _:
            return "false"
    inside = _incomplete(item, element, depth + 1)
    return (
        inside
        if inside == "false"
        else f"len(list_filter(json_extract({value}, '{path}'), lambda {item}: {inside})) > 0"
    )


def _text_in_doubt(number: str, name: str, *, is_unsigned: bool) -> str:
    """Return the SQL of a number's text if it may differ from the number that DuckDB read as `number_type`; NULL otherwise."""
    # Booleans are read as numbers, too. An unsigned type does not hold -0.0, which -1e-400 also becomes.
    marks = [f"contains({_TEXT}, {quote_text(mark)})" for mark in ("true", "false")]
    other = " OR ".join([*marks, *([f"signbit({number})"] if is_unsigned else [])])
    is_certain = f"{is_exact(number)} AND NOT ({number} IN (0, 1) AND ({other}))"
    # The object of a text that is no JSON is NULL.
    text = f"json_extract_string({_TEXT}, {_json_key(name)})"
    return f"CASE WHEN {is_certain} THEN NULL WHEN {_ROW} IS NOT NULL THEN {text} END"


def _json_key(name: str) -> str:
    if name == "*":
        # Quoted it is all keys.
        return "'/*'"
    return quote_text('$."' + name.replace('"', '\\"') + '"')


def _shows_faults_as_null(declared: Any) -> bool:
    """Whether a value of the type is malformed only if some part of it is NULL, or is no whole number."""
    if declared.id == "struct":
        return all(_shows_faults_as_null(type_) for _, type_ in declared.children)
    return declared.id == "varchar" or declared.id in READ_AS_TEXT


def _missing(value: str, declared: Any) -> str:
    """Return the condition that a value, or some field of a struct, is NULL."""
    if declared.id != "struct":
        return f"{value} IS NULL"
    return " OR ".join(_missing(f"struct_extract({value}, {quote_text(n)})", type_) for n, type_ in declared.children)


def _misfit(value: str, declared: Any, depth: int = 0) -> str:
    """Return the condition that a JSON value is not null, and not of the declared type."""
    item = f"_x{depth}"
    match declared.id:
        case "varchar":
            return "false"
        case id if id in READ_AS_TEXT:
            text = f"json_extract_string({value}, '$')"
            wrong = [f"TRY_CAST({text} AS {declared}) IS NULL", *filter(None, [fraction(text, declared)])]
            return f"(coalesce(json_type({value}), 'NULL') <> 'NULL' AND ({' OR '.join(wrong)}))"
        case id if id in FLOATS:
            text, number = f"json_extract_string({value}, '$')", f"TRY_CAST({value} AS {declared})"
            return (
                f"(coalesce(json_type({value}), 'NULL') <> 'NULL' AND ({number} IS NULL OR {overflow(text, declared)}))"
            )
        case "struct":
            fields = [_misfit(f"json_extract({value}, {_json_key(n)})", t, depth) for n, t in declared.children]
            kind, inner = "OBJECT", " OR ".join(fields)
        case "list" | "array":
            inside = _misfit(item, declared.children[0][1], depth + 1)
            kind, inner = "ARRAY", f"len(list_filter(json_extract({value}, '$[*]'), lambda {item}: {inside})) > 0"
        case "map":
            (_, key), (_, element) = declared.children
            inside = _misfit(item, element, depth + 1)
            values = f"len(list_filter(json_extract({value}, '$.*'), lambda {item}: {inside})) > 0"
            kind, inner = "OBJECT", f"({wrong_keys(f'json_keys({value})', key, depth)} OR {values})"
        case _:
            return f"(coalesce(json_type({value}), 'NULL') <> 'NULL' AND TRY_CAST({value} AS {declared}) IS NULL)"
    return f"CASE coalesce(json_type({value}), 'NULL') WHEN 'NULL' THEN false WHEN '{kind}' THEN {inner} ELSE true END"
