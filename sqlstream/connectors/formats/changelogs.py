"""Tables whose rows are changes: a column names the operation of each row, or Debezium's envelope does.

`changes_of` turns them into rows with the table's columns and `__sqlstream_change`: I (insert), U (after an update), B (before an
update) or D (delete). If the table has a key, three more columns (FILE_ORDER) order the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlstream.catalog import DEBEZIUM, OP_COLUMN, Column, Table
from sqlstream.duck.internal_columns import ADDS, CHANGE, FILE_ORDER, ROW, internal, last_of_keys
from sqlstream.duck.sql import Relation, Select, names, quote_name, quote_text, subquery
from sqlstream.errors import BindError
from sqlstream.storage.zsets import WEIGHT, repeated, summed
from sqlstream.units import parse_boolean

SCHEMA_INCLUDE = "debezium-json.schema-include"

# The error about an update in a table without a key, and its hint.
NO_ROW_BEFORE = "an update has no row before it"
DECLARE_KEY = "Declare the PRIMARY KEY of the table: then an update needs no row before it, and a delete only the key."

# The column of operations, if the table does not name one, as in a change data feed.
OPERATION = Column(internal("operation"), "VARCHAR")

_WORDS = {"I": ("I", "+I"), "U": ("U", "+U"), "B": ("B", "-U"), "D": ("D", "-D")}


def validate(table: Table) -> None:
    """Raise BindError unless the operations of a table whose rows are changes can be read from its columns."""
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
        raise BindError(f'{named}: option "{OP_COLUMN}" names no column', table.option_span(OP_COLUMN, value=True))
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
    """Return the table with the columns to read from its files, if its rows are changes; other tables are returned unchanged.

    The column of operations is added, unless it is declared. For Debezium, the fields of the envelope take the place of the
    columns that are stored in files. The columns FILE_ORDER are added if the table has a key.
    """
    if not table.has_changes:
        return table
    order = FILE_ORDER if table.primary_key else ()
    if table.options.get("format", "").lower() != DEBEZIUM:
        operation = () if table.operation else (Column(_operation_name(table), "VARCHAR"),)
        return replace(table, columns=(*table.columns, *operation, *order))
    fields = ", ".join(f"{quote_name(c.name)} {c.type}" for c in table.stored)
    envelope = (("before", f"STRUCT({fields})"), ("after", f"STRUCT({fields})"), ("op", "VARCHAR"))
    # An envelope at the place for the option's other value is an error, so this place is read, too.
    columns = (*(Column(name, type) for name, type in envelope), Column("payload", "JSON"))
    if _in_payload(table):
        whole = f"STRUCT({', '.join(f'{name} {type}' for name, type in envelope)})"
        columns = (Column("payload", whole), Column("op", "VARCHAR"))
    unstored_columns = (c for c in table.physical if c not in table.stored)
    never_null = tuple(c.name for c in table.stored if c.not_null)
    return replace(table, columns=(*columns, *unstored_columns, *order), never_null=never_null)


def malformed(table: Table) -> str:
    """Return the SQL condition that a row of `source_table` is no change: its operation is unknown, or has no row."""
    if table.options.get("format", "").lower() == DEBEZIUM:
        op, before, after = _envelope(table)
        whole = f"{op} IN ('c', 'r', 'u') AND {after} IS NOT NULL OR {op} = 'd' AND {before} IS NOT NULL"
        return f"NOT coalesce({whole}, false) AND NOT ({_tombstone(table)})"
    words = ", ".join(quote_text(word) for spellings in _WORDS.values() for word in spellings)
    return f"upper(coalesce({_operation(table)}, '')) NOT IN ({words})"


def lacking(table: Table, columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Return (SQL condition, column name) for each NOT NULL column. A condition selects added rows without a value in its column.

    The conditions are over the rows of `source_table`. Of `columns`, the columns that are read, they check the NOT NULL ones; for
    Debezium, the columns in `table.never_null` instead.
    """
    if table.options.get("format", "").lower() == DEBEZIUM:
        op, _, after = _envelope(table)
        adds = f"{op} IN ('c', 'r', 'u') AND {after} IS NOT NULL"
        return [(f"{adds} AND {after}.{quote_name(name)} IS NULL", name) for name in table.never_null]
    words = ", ".join(quote_text(word) for letter in ("I", "U") for word in _WORDS[letter])
    adds = f" AND upper({_operation(table)}) IN ({words})" if table.has_changes else ""
    read = (c for c in columns if c.not_null and c is not table.operation)
    return [(f"{quote_name(c.name)} IS NULL{adds}", c.name) for c in read]


def changes_of(table: Table, rows: Relation) -> Select:
    """Return a table's changes: its physical columns, FILE_ORDER if it has a key, and CHANGE, without the operation.

    `rows` are the rows of `source_table`. The SELECT fails at a row that is no change.
    """
    order = FILE_ORDER if table.primary_key else ()
    read = [c for c in table.physical if c is not table.operation]
    if table.options.get("format", "").lower() != DEBEZIUM:
        return Select(f"SELECT {names([*read, *order])}, {_letter(table)} AS {CHANGE.name} FROM {rows}")
    items = [
        f"_change._row.{quote_name(c.name)} AS {quote_name(c.name)}" if c in table.stored else quote_name(c.name)
        for c in read
    ]
    # An update is two changes of the same row of a file: twice the number keeps them in order.
    items += [f"{c.name} * 2 + _change._second AS {c.name}" if c is ROW else c.name for c in order]
    items.append(f"_change._kind AS {CHANGE.name}")
    changes = f"SELECT *, unnest({_changes_in_envelope(table)}) AS _change FROM {rows}"
    return Select(f"SELECT {', '.join(items)} FROM ({changes})")


def weight() -> str:
    """Return the SQL of the weight of a change, from CHANGE: 1 for I and U, -1 for B and D."""
    return f"CAST(if({ADDS}, 1, -1) AS BIGINT)"


def present(table: Table, rows: Relation) -> Select:
    """Return the rows that exist after all changes, with the table's physical columns without the operation.

    `rows` are the rows of `source_table`.
    """
    columns = [c for c in table.physical if c is not table.operation]
    changes = changes_of(table, rows)
    if not table.primary_key:
        weighted = Relation(f"(SELECT {names(columns)}, {weight()} AS {WEIGHT} FROM ({changes}))")
        return repeated(columns, subquery(summed(columns, weighted)))
    last = last_of_keys(map(quote_name, table.primary_key), subquery(changes))
    return Select(f"SELECT {names(columns)} FROM ({last}) WHERE {ADDS}")


def _operation(table: Table) -> str:
    return quote_name(table.operation.name if table.operation else _operation_name(table))


def _operation_name(table: Table) -> str:
    return table.options.get(OP_COLUMN, OPERATION.name)


def _letter(table: Table) -> str:
    """Return the SQL of CHANGE (I, U, B or D) from the column of operations; it fails at other texts."""
    operation = _operation(table)
    cases = " ".join(
        f"WHEN upper({operation}) IN ({', '.join(map(quote_text, words))}) THEN '{letter}'"
        for letter, words in _WORDS.items()
    )
    return f"CASE {cases} ELSE error({_message(operation, 'is not one of I, U, B, D')}) END"


def _message(operation: str, what: str) -> str:
    return f"""'operation ' || coalesce('"' || {operation} || '"', 'NULL') || ' {what}'"""


def _in_payload(table: Table) -> bool:
    return parse_boolean(table.options.get(SCHEMA_INCLUDE, "false"))


def _envelope(table: Table) -> tuple[str, str, str]:
    inside = "payload." if _in_payload(table) else ""
    return f"{inside}op", f"{inside}before", f"{inside}after"


def _tombstone(table: Table) -> str:
    """Return the condition that a row is a tombstone: an empty envelope, which follows the delete of a key."""
    return " AND ".join(f"{part} IS NULL" for part in (*_envelope(table), _elsewhere(table)))


def _elsewhere(table: Table) -> str:
    """Return the field that has a value only in messages which contradict SCHEMA_INCLUDE: `payload` or `op`."""
    return "op" if _in_payload(table) else "payload"


def _not_in_envelope(table: Table) -> str:
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
        f"{op} IS NULL AND {_elsewhere(table)} IS NOT NULL": f"error('{_not_in_envelope(table)}')",
    }
    whens = " ".join(f"WHEN {condition} THEN {result}" for condition, result in cases.items())
    return f"CASE {whens} ELSE error({_message(op, 'is not one of c, r, u, d')}) END"
