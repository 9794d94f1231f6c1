"""The base class of sources of values, each of them one encoded row: messages of a queue, rows of an outbox table."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlstream.catalog import IGNORE, Column, Table
from sqlstream.connectors.formats.changelogs import OPERATION
from sqlstream.connectors.formats.malformed import MalformedRow, format_of, skip_hint, skips
from sqlstream.connectors.formats.reading import marked_changes, marked_nulls
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.interface import NumberedRows, ReadContext, TableSource
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck import databases
from sqlstream.duck.internal_columns import MODIFIED, PATH, ROW, internal
from sqlstream.duck.sql import Relation, Select, quote_name
from sqlstream.duck.text_files import shorten
from sqlstream.errors import DataError

if TYPE_CHECKING:
    import duckdb

# The columns beside VALUE: the value's place (a partition, a file), its number there, and its key, in bytes.
PLACE, NUMBER, KEY = internal("place"), internal("number"), internal("key")
# The `order` of a source whose rows are ordered by the numbers of their values.
BY_NUMBER = (ROW,)
_MALFORMED = "a value is malformed"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """The columns of a table that are read from the keys of messages.

    `columns` are columns of the table. `table` describes the encoded key: it has the options of the key's format, and for each of
    `columns`, in the same order, a stored column with its name in the key, which may differ.
    """

    table: Table
    columns: tuple[Column, ...]


class ValueRows(TableSource):
    """A table whose rows are values of a format that has `read_values`. A subclass implements `values`."""

    # The word for NUMBER in messages.
    number_name = "offset"
    # Whether a value replaces the one with the same key, and NULL deletes it.
    upserts = False

    @property
    def key(self) -> KeyLayout | None:
        """The columns that are read from keys, which `values` returns as KEY; None if all columns are in the values."""
        return None

    @abstractmethod
    def values(self, splits: Sequence[Any]) -> pa.Table:
        """Return the values of some splits, in their order, a row per value.

        The columns are VALUE (text or bytes, NULL for a value that is no row), PLACE (text), NUMBER (a whole number), KEY (bytes)
        if there is a `key`, and a column for each key of the connector's METADATA, by its name.
        """

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        return self._plan(con, splits, self.table)

    def _plan(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], table: Table) -> ReadPlan:
        marked = self._marked(con, splits, table)
        names = ", ".join(quote_name(c.name) for c in table.physical)
        if skips(table):
            return ReadPlan.of_marked(Select(f"SELECT {names}, {WRONG} FROM ({marked})"), keep=True)
        whole = f"CASE WHEN {WRONG} IS NULL THEN true ELSE error('{_MALFORMED}') END"
        return ReadPlan(Select(f"SELECT {names} FROM ({marked}) WHERE {whole}"), keep=True)

    def _marked(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], table: Table) -> Select:
        """Return all rows: the table's physical columns, WRONG, PLACE, NUMBER, and the text to show as VALUE."""
        form = FORMATS[format_of(table)]
        values = self.values(splits) if form.of_bytes else _as_text(self.values(splits))
        relation = f"_values_{next(_numbers)}"
        con.register(relation, values)
        text = f"TRY(decode({VALUE}))" if _is_binary(values) else VALUE
        value = text if not form.of_bytes else VALUE if _is_binary(values) else f"encode({VALUE})"
        assert form.read_values is not None
        columns = [quote_name(name) for name in values.column_names]
        # The columns beside VALUE get aliases, as a column of the table may have the same name.
        aliases = {name: f"_kept_{number}" for number, name in enumerate(columns) if name != quote_name(VALUE)}
        renamed = ", ".join([f"{value} AS {VALUE}", *(f"{name} AS {alias}" for name, alias in aliases.items())])
        shown = f"{_shown(text, values)} AS _kept_value"
        named = Relation(f"(SELECT {renamed}, {shown} FROM {relation} WHERE {VALUE} IS NOT NULL)")
        passthrough = [*aliases.values(), "_kept_value"]
        key = self.key
        inside = [c for c in table.stored if c != OPERATION and (key is None or c not in key.columns)]
        rows = form.read_values(con, named, replace(table, columns=tuple(inside)), inside, passthrough)
        if self.upserts:
            deletes = Relation(f"(SELECT {renamed} FROM {relation} WHERE {VALUE} IS NULL)")
            rows = _with_deletes(rows, deletes, inside, passthrough)
            passthrough.append(OPERATION.name)
        if key is not None:
            rows = _with_key(con, rows, key, inside, passthrough, aliases[quote_name(KEY)], needed=self.upserts)
        items = [
            f"{_metadata_value(c, aliases)} AS {quote_name(c.name)}" for c in table.physical if c not in table.stored
        ]
        items += [quote_name(c.name) for c in table.stored]
        places = f"{aliases[quote_name(PLACE)]} AS {PLACE}, {aliases[quote_name(NUMBER)]} AS {NUMBER}, _kept_value AS {VALUE}"
        select = Select(f"SELECT {', '.join([*items, WRONG])}, {places} FROM {rows}")
        if table.has_changes and not self.upserts:
            select = marked_changes(table, ReadPlan.of_marked(select))
        return marked_nulls(table, table.physical, ReadPlan.of_marked(select)) or select

    # -- malformed values

    def explained(self, error: duckdb.Error, splits: Sequence[Any]) -> DataError | None:
        row = next(self.malformed_rows(splits), None) if _MALFORMED in str(error) else None
        return self.malformed(row) if row else None

    def malformed(self, row: MalformedRow) -> DataError:
        message = (
            f'the value at {self.number_name} {row.number} of {row.path} of table "{self.table.name}" is malformed'
        )
        return DataError(message, detail=f"{row.reason}: {shorten(row.text)}", hint=skip_hint(self.table))

    def malformed_rows(self, splits: Sequence[Any]) -> Iterator[MalformedRow]:
        with databases.passing() as con:
            marked = self._marked(con, splits, self.table)
            items = f"{PLACE}, {NUMBER}, {WRONG}, coalesce({VALUE}, '')"
            rows = con.execute(f"SELECT {items} FROM ({marked}) WHERE {WRONG} IS NOT NULL ORDER BY ALL").fetchall()
            yield from (MalformedRow(*row) for row in rows)

    def numbered(self, con: duckdb.DuckDBPyConnection, split: Any) -> NumberedRows:
        added = (c for c in (PATH, ROW) if c not in self.table.columns)
        skipping = replace(
            self.table,
            columns=(*self.table.columns, *added),
            options={**self.table.options, f"{format_of(self.table)}.{IGNORE}": "true"},
        )
        plan = self._plan(con, [split], skipping)
        plan.take(con)

        def places(counts: Sequence[int]) -> Mapping[int, MalformedRow]:
            # Places are asked for by NUMBER + 1.
            numbers = {n - 1 for n in counts}
            values = self.values([split]).select([PLACE, NUMBER, VALUE]).to_pylist()
            rows = ((v[NUMBER], MalformedRow(v[PLACE], v[NUMBER], "", _text(v[VALUE]))) for v in values)
            return {number + 1: row for number, row in rows if number in numbers}

        return NumberedRows(plan, places)

    def name_of(self, split: Any) -> str:
        return f'table "{self.table.name}"'


def _with_deletes(rows: Relation, deletes: Relation, columns: Sequence[Column], passthrough: Sequence[str]) -> Relation:
    """Return marked rows with OPERATION U, and for each row of `deletes`, values that are NULL, a row with OPERATION D."""
    nulls = [f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in columns]
    gone = [
        *(name if name != "_kept_value" else "NULL AS _kept_value" for name in passthrough),
        *nulls,
        f"NULL AS {WRONG}",
    ]
    upserted = f"SELECT *, 'U' AS {OPERATION.name} FROM {rows}"
    deleted = f"SELECT {', '.join(gone)}, 'D' AS {OPERATION.name} FROM {deletes}"
    return Relation(f"({upserted} UNION ALL BY NAME {deleted})")


def _with_key(
    con: duckdb.DuckDBPyConnection,
    rows: Relation,
    key: KeyLayout,
    columns: Sequence[Column],
    passthrough: Sequence[str],
    alias: str,
    *,
    needed: bool,
) -> Relation:
    """Return marked rows with the columns of their keys added.

    `columns` are the columns that the values hold; `alias` is the column of `rows` with the encoded key. If the key is `needed`,
    a row without one is malformed.
    """
    form = FORMATS[format_of(key.table)]
    assert form.read_values is not None
    own = {quote_name(c.name): f"_value_{n}" for n, c in enumerate(columns)}
    bytes_ = alias if form.of_bytes else f"TRY(decode({alias}))"
    items = [f"{bytes_} AS {VALUE}", *passthrough, *(f"{name} AS {new}" for name, new in own.items())]
    named = Relation(f"(SELECT {', '.join(items)}, {WRONG} AS _value_wrong FROM {rows})")
    read = form.read_values(con, named, key.table, key.table.stored, [*passthrough, *own.values(), "_value_wrong"])
    inside = zip(key.columns, key.table.stored, strict=True)
    items = [*passthrough, *(f"{new} AS {name}" for name, new in own.items())]
    items += [f"{quote_name(c.name)} AS {quote_name(column.name)}" for column, c in inside]
    # A message without a key has none of its columns.
    absent = " ELSE 'The message has no key'" if needed else ""
    wrong = f"coalesce(_value_wrong, CASE WHEN {alias} IS NOT NULL THEN 'Of the key: ' || {WRONG}{absent} END)"
    return Relation(f"(SELECT {', '.join(items)}, {wrong} AS {WRONG} FROM {read})")


def _as_text(values: pa.Table) -> pa.Table:
    """Return the values as texts if all of their bytes are UTF-8, otherwise unchanged: Arrow checks them all at once."""
    if not _is_binary(values):
        return values
    place, column = values.column_names.index(VALUE), values.column(VALUE)
    text = pa.large_string() if "large" in str(column.type) else pa.string()
    try:
        return values.set_column(place, VALUE, column.cast(text))
    except pa.ArrowInvalid:
        return values


def _is_binary(values: pa.Table) -> bool:
    return "binary" in str(values.schema.field(VALUE).type)


def _shown(text: str, values: pa.Table) -> str:
    """Return the SQL of a value as messages show it: in hexadecimal digits if it is no text, or contains a zero byte."""
    return (
        f"CASE WHEN NOT contains({text}, chr(0)) THEN {text} ELSE '0x' || hex({VALUE}) END"
        if _is_binary(values)
        else text
    )


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    text = value.decode(errors="replace")
    return f"0x{value.hex().upper()}" if "\0" in text else text


def _metadata_value(column: Column, aliases: Mapping[str, str]) -> str:
    """Return the SQL of a METADATA column."""
    own = {str(MODIFIED.metadata): "0", str(PATH.metadata): PLACE, str(ROW.metadata): NUMBER}
    source = own.get(str(column.metadata), str(column.metadata))
    return f"CAST({source if source == '0' else aliases[quote_name(source)]} AS {column.type})"
