"""Rows as documents: the SQL of the index, the id and the JSON of each row's document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.elasticsearch.options import DELIMITER, INDEX
from sqlstream.connectors.elasticsearch.times import DEFAULTS, as_java, by_pattern
from sqlstream.connectors.formats.json_objects import json_object
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.errors import BindError, Span, UnsupportedError, missing
from sqlstream.java_patterns import UntranslatablePattern
from sqlstream.storage.zsets import WEIGHT

# The columns of writes; a write without a document deletes it.
INDEX_NAME, ID, DOCUMENT = "_index", "_id", "_document"
_PLACE = re.compile(r"\{(?P<name>[^{}|]*)(?P<bar>\|(?P<pattern>[^{}]*))?\}")
_CLOCKS = ("now()", "now", "proctime()", "current_timestamp")
_NO_KEYS = ("[]", "STRUCT", "MAP", "BLOB", "JSON", "INTERVAL")


@dataclass(frozen=True, slots=True)
class DocumentLayout:
    """How rows of a table become documents."""

    table: Table

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of the PRIMARY KEY, in its order."""
        columns = {c.name: c for c in self.table.writable}
        return tuple(columns[name] for name in self.table.primary_key)

    def check(self) -> None:
        """Raise BindError or UnsupportedError unless each row has an index and an id."""
        self.index()
        written = {c.name for c in self.table.writable}
        for name in self.table.primary_key:
            if name not in written:
                message = f'column "{name}" of table "{self.table.name}" is computed, and in the PRIMARY KEY'
                hint = "The id of a document is made of written columns: compute the column in the query."
                raise UnsupportedError(message, self.table.span, hint=hint)
        for column in self.key:
            if any(kind in column.type for kind in _NO_KEYS):
                message = f'column "{column.name}" of table "{self.table.name}": {column.type} in a PRIMARY KEY'
                hint = "The id of a document is a text: take columns of texts, numbers and times for the key."
                raise UnsupportedError(message, self.table.span, hint=hint)

    def index(self) -> str:
        """Return the SQL of the name of a row's index. Raises BindError or UnsupportedError for an option that is none."""
        return " || ".join(self._index_parts()) or "''"

    def writes(self, batch: Batch, identity: str) -> Select:
        """Return what a batch writes, with the columns INDEX_NAME, ID and DOCUMENT (NULL: delete it).

        Without a PRIMARY KEY ids begin with `identity`. A batch with the same rows gives the same writes, in whatever order the
        rows are.
        """
        document = json_object([(c.name, c) for c in self.table.writable], self.table.options)
        if not self.key:
            rows = f"SELECT {self.index()} AS {INDEX_NAME}, {document} AS {DOCUMENT} FROM ({batch.rows()})"
            number = f"row_number() OVER (ORDER BY {INDEX_NAME}, {DOCUMENT})"
            start = quote_text(f"{identity}-{batch.number}-")
            return Select(f"SELECT {INDEX_NAME}, {start} || {number} AS {ID}, {DOCUMENT} FROM ({rows})")
        place = f"{self.index()} AS {INDEX_NAME}, {self._id()} AS {ID}"
        if not batch.is_changing or batch.order:
            return Select(f"SELECT {place}, {document} AS {DOCUMENT} FROM ({batch.upserts()})")
        changes = f"SELECT {place}, {document} AS {DOCUMENT}, {WEIGHT} FROM ({batch.changes()})"
        # A row that goes into another index leaves the one in which it was.
        gone = f"FROM _changes GROUP BY {INDEX_NAME}, {ID} HAVING max({WEIGHT}) < 0"
        return Select(
            f"WITH _changes AS MATERIALIZED ({changes})"
            f" SELECT {INDEX_NAME}, {ID}, {DOCUMENT} FROM _changes WHERE {WEIGHT} > 0"
            f" UNION ALL SELECT {INDEX_NAME}, {ID}, NULL {gone}"
        )

    def _id(self) -> str:
        delimiter = quote_text(self.table.options.get(DELIMITER.name, DELIMITER.default))
        return f" || {delimiter} || ".join(_text(column) for column in self.key)

    def _index_parts(self) -> Iterator[str]:
        text, end = self.table.options[INDEX.name], 0
        for place in _PLACE.finditer(text):
            yield from self._literal(text[end : place.start()])
            yield self._value(place["name"].strip(), place["pattern"], is_time=place["bar"] is not None)
            end = place.end()
        yield from self._literal(text[end:])

    def _literal(self, text: str) -> Iterator[str]:
        if text != text.lower():
            message = f'table "{self.table.name}": the name of an index has no capital letters'
            hint = f"Write '{INDEX.name}' = '{self.table.options[INDEX.name].lower()}'."
            raise BindError(message, self._at, hint=hint)
        if text:
            yield quote_text(text)

    def _value(self, name: str, pattern: str | None, *, is_time: bool) -> str:
        if name.lower() in _CLOCKS:
            # A batch that comes again after a crash would go into another index.
            message = f'table "{self.table.name}": the clock in the name of an index'
            hint = "Write a column of time, such as {ts|yyyy-MM-dd}: the document then has it, too."
            raise UnsupportedError(message, self._at, hint=hint)
        columns = {c.name.lower(): c for c in self.table.writable}
        column = columns.get(name.lower())
        if column is None:
            message = f'table "{self.table.name}": the name of its index has the column "{name}", which does not exist'
            raise BindError(message, self._at, hint=missing("column", name, [c.name for c in columns.values()]))
        if not is_time:
            return _text(column)
        default = DEFAULTS.get(column.type)
        if default is None:
            message = f'table "{self.table.name}": a pattern of time for column "{column.name}", which is {column.type}'
            raise BindError(message, self._at, hint=f"Write {{{column.name}}} without a pattern.")
        try:
            return by_pattern(column, pattern or default)
        except UntranslatablePattern as error:
            message = f'table "{self.table.name}": "{error}" in the pattern of its index has no translation'
            raise UnsupportedError(message, self._at, hint="Write letters such as yyyy, MM, dd, HH.") from error

    @property
    def _at(self) -> Span | None:
        return self.table.option_span(INDEX.name, value=True)


def _text(column: Column) -> str:
    """Return the SQL of a value in an id or the name of an index."""
    return as_java(column) or f"CAST({quote_name(column.name)} AS VARCHAR)"
