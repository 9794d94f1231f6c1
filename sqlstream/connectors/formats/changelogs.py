"""Files whose rows are changes: a column says what each does, or it stands in Debezium's envelope.

Beside the table's columns their rows have `__sqlstream_change`: I a row is added, U it is so after an update, B it was so before
one, D it is deleted. Where the table has a key, three further columns say which of two changes came later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlstream.catalog import DEBEZIUM, OP_COLUMN, Column, Table
from sqlstream.duck.internal_columns import ADDS, CHANGE, PLACE, ROW, internal, last_of_keys
from sqlstream.duck.sql import names, quote_name, quote_text
from sqlstream.errors import BindError
from sqlstream.storage.zsets import WEIGHT, repeated, summed
from sqlstream.units import parse_boolean

SCHEMA_INCLUDE = "debezium-json.schema-include"

# What a table without a key needs to know of an update; the hint is what to do about it.
NO_ROW_BEFORE = "an update has no row before it"
DECLARE_KEY = "Declare the PRIMARY KEY of the table: then an update needs no row before it, and a delete only the key."

# What says what a row does where no column of a table does, as in a change data feed.
OPERATION = Column(internal("operation"), "VARCHAR")

_WORDS = {"I": ("I", "+I"), "U": ("U", "+U"), "B": ("B", "-U"), "D": ("D", "-D")}


def validate(table: Table) -> None:
    """Raise BindError unless a table whose rows are changes declares what is needed to read them."""
    named = f'table "{table.name}"'
    if table.options.get("format", "").lower() == DEBEZIUM:
        for column in table.physical:
            if column not in table.stored and column.name in ("before", "after", "op", "payload"):
                message = f'{named}: column "{column.name}" has the name of a field of Debezium\'s envelope'
                raise BindError(message, table.span, hint="Give it another name.")
        return
    operation = table.operation
    name = table.options[OP_COLUMN]
    if not name:
        raise BindError(f'{named}: option "{OP_COLUMN}": it names a column', table.option_span(OP_COLUMN))
    if operation is None:
        if table.options.get("format", "").lower() == "csv" and not parse_boolean(
            table.options.get("csv.header", "false")
        ):
            message = f'{named}: column "{name}" has no position in files without a header'
            raise BindError(message, table.span, hint=f"Declare it at its position: {name} STRING.")
    elif operation.type != "VARCHAR" or operation not in table.stored:
        message = f'{named}: column "{operation.name}", which says what a row does, must be a STRING of the file'
        raise BindError(message, table.span)


def source_table(table: Table) -> Table:
    """Return a table as its files are read: with what tells the changes, and their order where it matters."""
    if not table.has_changes:
        return table
    place = PLACE if table.primary_key else ()
    if table.options.get("format", "").lower() != DEBEZIUM:
        operation = () if table.operation else (Column(_operation_name(table), "VARCHAR"),)
        return replace(table, columns=(*table.columns, *operation, *place))
    fields = ", ".join(f"{quote_name(c.name)} {c.type}" for c in table.stored)
    envelope = (("before", f"STRUCT({fields})"), ("after", f"STRUCT({fields})"), ("op", "VARCHAR"))
    # What is where the other setting of the option has the envelope is read, too: to pass it over would be to lose all rows.
    columns = (*(Column(name, type) for name, type in envelope), Column("payload", "JSON"))
    if _in_payload(table):
        whole = f"STRUCT({', '.join(f'{name} {type}' for name, type in envelope)})"
        columns = (Column("payload", whole), Column("op", "VARCHAR"))
    told = (c for c in table.physical if c not in table.stored)
    never_null = tuple(c.name for c in table.stored if c.not_null)
    return replace(table, columns=(*columns, *told, *place), never_null=never_null)


def malformed(table: Table) -> str:
    """Return the condition that a row, as `source_table` reads it, says nothing that a row can do."""
    if table.options.get("format", "").lower() == DEBEZIUM:
        op, before, after = _envelope(table)
        whole = f"{op} IN ('c', 'r', 'u') AND {after} IS NOT NULL OR {op} = 'd' AND {before} IS NOT NULL"
        return f"NOT coalesce({whole}, false) AND NOT ({_tombstone(table)})"
    words = ", ".join(quote_text(word) for found in _WORDS.values() for word in found)
    return f"upper(coalesce({_operation(table)}, '')) NOT IN ({words})"


def lacking(table: Table, columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Return the conditions that a row which is added, as `source_table` reads it, has no value where its table has no NULLs.

    Each comes with the name of its column; `columns` are those that are read.
    """
    if table.options.get("format", "").lower() == DEBEZIUM:
        op, _, after = _envelope(table)
        adds = f"{op} IN ('c', 'r', 'u') AND {after} IS NOT NULL"
        return [(f"{adds} AND {after}.{quote_name(name)} IS NULL", name) for name in table.never_null]
    words = ", ".join(quote_text(word) for letter in ("I", "U") for word in _WORDS[letter])
    adds = f" AND upper({_operation(table)}) IN ({words})" if table.has_changes else ""
    read = (c for c in columns if c.not_null and c is not table.operation)
    return [(f"{quote_name(c.name)} IS NULL{adds}", c.name) for c in read]


def changes_of(table: Table, rows: str) -> str:
    """Return the SELECT of the changes of a table: its columns that are read, those of PLACE if it has a key, and CHANGE.

    `rows` is FROM-able SQL of rows as `source_table` reads them. A row that says nothing that a row can do is an error.
    """
    place = PLACE if table.primary_key else ()
    read = [c for c in table.physical if c is not table.operation]
    if table.options.get("format", "").lower() != DEBEZIUM:
        return f"SELECT {names([*read, *place])}, {_letter(table)} AS {CHANGE.name} FROM {rows}"
    items = [
        f"_change._row.{quote_name(c.name)} AS {quote_name(c.name)}" if c in table.stored else quote_name(c.name)
        for c in read
    ]
    # An update is two changes in one place.
    items += [f"{c.name} * 2 + _change._second AS {c.name}" if c is ROW else c.name for c in place]
    items.append(f"_change._kind AS {CHANGE.name}")
    return f"SELECT {', '.join(items)} FROM (SELECT *, unnest({_changes_in_envelope(table)}) AS _change FROM {rows})"


def weight() -> str:
    """Return the weight of a change: whether its row is added or taken away."""
    return f"CAST(if({ADDS}, 1, -1) AS BIGINT)"


def present(table: Table, rows: str) -> str:
    """Return the SELECT of the rows that all changes of a table amount to, with the columns that are read.

    `rows` is FROM-able SQL of rows as `source_table` reads them.
    """
    columns = [c for c in table.physical if c is not table.operation]
    changes = changes_of(table, rows)
    if not table.primary_key:
        weighted = f"(SELECT {names(columns)}, {weight()} AS {WEIGHT} FROM ({changes}))"
        return repeated(columns, f"({summed(columns, weighted)})")
    return f"SELECT {names(columns)} FROM ({last_of_keys(table.primary_key, f'({changes})')}) WHERE {ADDS}"


def _operation(table: Table) -> str:
    return quote_name(table.operation.name if table.operation else _operation_name(table))


def _operation_name(table: Table) -> str:
    return table.options.get(OP_COLUMN, OPERATION.name)


def _letter(table: Table) -> str:
    """Return the SQL that makes a letter of what the column of operations says."""
    found = _operation(table)
    cases = " ".join(
        f"WHEN upper({found}) IN ({', '.join(map(quote_text, words))}) THEN '{letter}'"
        for letter, words in _WORDS.items()
    )
    return f"CASE {cases} ELSE error({_message(found, 'is none of I, U, B, D')}) END"


def _message(found: str, what: str) -> str:
    return f"""'operation ' || coalesce('"' || {found} || '"', 'NULL') || ' {what}'"""


def _in_payload(table: Table) -> bool:
    return parse_boolean(table.options.get(SCHEMA_INCLUDE, "false"))


def _envelope(table: Table) -> tuple[str, str, str]:
    inside = "payload." if _in_payload(table) else ""
    return f"{inside}op", f"{inside}before", f"{inside}after"


def _tombstone(table: Table) -> str:
    """Return the condition that a line says that a key is gone for good, which its delete has said before."""
    return " AND ".join(f"{part} IS NULL" for part in (*_envelope(table), _elsewhere(table)))


def _elsewhere(table: Table) -> str:
    """Return what is NULL unless the envelope is where it is not looked for."""
    return "op" if _in_payload(table) else "payload"


def _misplaced(table: Table) -> str:
    inside = _in_payload(table)
    setting = f"option {SCHEMA_INCLUDE} must be {'false' if inside else 'true'}"
    return f'the envelope is {"not " if inside else ""}in "payload": {setting}'


def _changes_in_envelope(table: Table) -> str:
    """Return the SQL of the list of changes that an envelope holds."""
    op, before, after = _envelope(table)

    def change(letter: str, row: str, second: int) -> str:
        return f"{{'_kind': '{letter}', '_row': {row}, '_second': {second}}}"

    # With a key the row before an update says that its key may be another one.
    both = f"[{change('B', before, 0)}, {change('U', after, 1)}]"
    alone = f"[{change('U', after, 1)}]" if table.primary_key else f"error('{NO_ROW_BEFORE}')"
    cases = {
        f"{op} IN ('c', 'r') AND {after} IS NOT NULL": f"[{change('I', after, 0)}]",
        f"{op} = 'u' AND {after} IS NOT NULL AND {before} IS NOT NULL": both,
        f"{op} = 'u' AND {after} IS NOT NULL": alone,
        f"{op} = 'd' AND {before} IS NOT NULL": f"[{change('D', before, 0)}]",
        f"{op} IN ('c', 'r', 'u')": f"error({_message(op, 'has no row after it')})",
        f"{op} = 'd'": f"error({_message(op, 'has no row before it')})",
        _tombstone(table): "[]",
        f"{op} IS NULL AND {_elsewhere(table)} IS NOT NULL": f"error('{_misplaced(table)}')",
    }
    whens = " ".join(f"WHEN {condition} THEN {result}" for condition, result in cases.items())
    return f"CASE {whens} ELSE error({_message(op, 'is none of c, r, u, d')}) END"
