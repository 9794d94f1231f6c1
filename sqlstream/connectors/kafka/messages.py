"""Rows as messages: SQL that encodes the key and the value of each row, so that no row passes through Python twice.

SQL cannot encode binary formats. For these, it packs the columns into a struct, which `MessageEncoders` replaces by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sqlstream.catalog import DEBEZIUM, Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.formats.json_objects import json_object
from sqlstream.connectors.formats.json_options import check_times
from sqlstream.connectors.formats.raw_codec import HINT, RawCodec, problem
from sqlstream.connectors.formats.registry import FORMATS, RAW_TEXTS, MessageEncoding
from sqlstream.connectors.formats.schema_registry import KEY_PART, VALUE_PART
from sqlstream.duck.sql import Select, names, quote_name, quote_text
from sqlstream.errors import BindError
from sqlstream.storage.zsets import WEIGHT

# The columns of messages; a message without a value is a tombstone.
KEY, VALUE, PARTITION, TIMESTAMP, HEADERS = "_key", "_value", "_partition", "_timestamp", "_headers"
KEY_FORMAT, KEY_FIELDS, KEY_PREFIX = "key.format", "key.fields", "key.fields-prefix"
VALUE_FORMAT, FIELDS_INCLUDE = "value.format", "value.fields-include"

# Takes (name in the message, column) of the fields, and the options of the format, without the prefix `key.` or `value.`.
# Returns the SQL of the encoded text or bytes.
Encode = Callable[[Sequence[tuple[str, Column]], Mapping[str, str]], str]


def _csv(fields: Sequence[tuple[str, Column]], options: Mapping[str, str]) -> str:
    """Return the SQL of a line of CSV, which is read back with the same options."""
    delimiter = options.get("csv.field-delimiter", ",").replace("\\t", "\t")
    quote = options.get("csv.quote-character", '"')
    escape = options.get("csv.escape-character", quote)
    null = options.get("csv.null-literal", "")

    def field(column: Column) -> str:
        text = f"CAST({quote_name(column.name)} AS VARCHAR)"
        special = [f"contains({text}, {quote_text(c)})" for c in (delimiter, quote, "\n", "\r") if c]
        special += [f"{text} IN ('', {quote_text(null)})"]
        if quote:
            written = text if escape == quote else f"replace({text}, {quote_text(escape)}, {quote_text(escape * 2)})"
            written = f"replace({written}, {quote_text(quote)}, {quote_text(escape + quote)})"
            quoted = f"{quote_text(quote)} || {written} || {quote_text(quote)}"
        else:
            quoted = f"error('the text \"' || {text} || '\" needs quotes, and csv.quote-character is empty')"
        return f"CASE WHEN {text} IS NULL THEN {quote_text(null)} WHEN {' OR '.join(special)} THEN {quoted} ELSE {text} END"

    return f" || {quote_text(delimiter)} || ".join(f"({field(column)})" for _, column in fields)


def _raw(fields: Sequence[tuple[str, Column]], options: Mapping[str, str]) -> str:
    """Return the SQL of the bytes of the one field."""
    [(_, column)] = fields
    codec = RawCodec.of(column.type, options)
    if codec.needs_python:
        # A text that is NULL is no message, and no key.
        return f"CASE WHEN {quote_name(column.name)} IS NOT NULL THEN {_fields(fields, options)} END"
    return codec.encoded(column.name)


def _fields(fields: Sequence[tuple[str, Column]], options: Mapping[str, str]) -> str:
    """Return the SQL of a struct of the fields, which Python encodes as bytes."""
    return f"struct_pack({', '.join(f'{quote_name(name)} := {quote_name(c.name)}' for name, c in fields)})"


def _encode(form: str) -> Encode:
    return _fields if FORMATS[form].encoding is not None else ENCODERS[form]


def _encoding(form: str, fields: Sequence[tuple[str, Column]], options: Mapping[str, str]) -> MessageEncoding | None:
    """Return how Python encodes the fields; None if SQL does."""
    if form == "raw":
        return RAW_TEXTS if fields and RawCodec.of(fields[0][1].type, options).needs_python else None
    return FORMATS[form].encoding if form else None


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """The keys or the values of messages, in a binary format.

    `column` is KEY or VALUE, `name` is `key` or `value`, and `columns` are the fields, with their names in the message. The
    options of `table` are the format's, without a prefix.
    """

    column: str
    name: str
    encoding: MessageEncoding
    table: Table
    columns: tuple[Column, ...]

    def opened(self) -> Callable[[pa.Table], list[bytes]]:
        """Return the function that encodes rows, see `MessageEncoding.open`. It may ask a schema registry."""
        return self.encoding.open(self.table, self.columns, self.name)


class MessageEncoders:
    """Encodes the keys and values of binary formats, which are structs of fields."""

    def __init__(self, parts: Sequence[EncodedPart]):
        self._encoders = {part.column: part.opened() for part in parts}

    def encode(self, messages: pa.Table) -> pa.Table:
        """Return the messages with texts or bytes as keys and values; NULL stays NULL."""
        for column, encode in self._encoders.items():
            structs = messages.column(column).combine_chunks()
            is_there = structs.is_valid()
            rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs.filter(is_there))])
            encoded = iter(encode(rows))
            values = [next(encoded) if there else None for there in is_there.to_pylist()]
            index = messages.column_names.index(column)
            messages = messages.set_column(index, column, pa.array(values, pa.large_binary()))
        return messages


ENCODERS: Mapping[str, Encode] = {"json": json_object, "csv": _csv, "raw": _raw, DEBEZIUM: json_object}


def value_format(table: Table) -> str:
    """Return the name of the values' format, from `value.format` or `format`, in lower case; "" if there is none."""
    return (table.options.get(VALUE_FORMAT) or table.options.get("format") or "").lower()


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """Which columns of a table are in the key and in the value of a message. With `upserts`, the key is the PRIMARY KEY."""

    table: Table
    upserts: bool

    @property
    def key(self) -> tuple[tuple[str, Column], ...]:
        """(name in the key, column) for each column of the key."""
        written = {c.name.lower(): c for c in self._payload_columns}
        if self.upserts:
            named: Sequence[str] = self.table.primary_key
        else:
            named = [f.strip() for f in self.table.options.get(KEY_FIELDS, "").split(";") if f.strip()]
        prefix = self.table.options.get(KEY_PREFIX, "")
        columns = [written[name.lower()] for name in named if name.lower() in written]
        return tuple((c.name.removeprefix(prefix), c) for c in columns)

    @property
    def value(self) -> tuple[tuple[str, Column], ...]:
        """(name in the value, column) for each column of the value."""
        left_out = {c.name for _, c in self.key} if self._without_key else set[str]()
        return tuple((c.name, c) for c in self._payload_columns if c.name not in left_out)

    @property
    def has_metadata(self) -> bool:
        """Whether the table writes METADATA columns: timestamps or headers of messages."""
        return any(c.metadata is not None for c in self.table.writable)

    @property
    def _payload_columns(self) -> tuple[Column, ...]:
        return tuple(c for c in self.table.writable if c.metadata is None)

    @property
    def _without_key(self) -> bool:
        return self.table.options.get(FIELDS_INCLUDE, "ALL").upper() == "EXCEPT_KEY"

    def check(self) -> None:
        """Raise BindError unless the formats can encode the columns, as far as that is known without a schema registry."""
        for option, form, fields in (
            (KEY_FORMAT, self.table.options.get(KEY_FORMAT, "").lower(), self.key),
            ("format", value_format(self.table), self.value),
        ):
            at = self.table.option_span(option, value=True)
            if form == "raw" and (wrong := problem([c for _, c in fields])) is not None:
                raise BindError(f'table "{self.table.name}": format "raw" {wrong}', at, hint=HINT)
            if form in FORMATS and FORMATS[form].encoding is not None and not fields:
                raise BindError(f'table "{self.table.name}": format "{form}" holds no column', at)
        check_times(self.table, value_format(self.table))
        for part in self.parts:
            part.encoding.check(part.table, part.columns, part.name)

    @property
    def parts(self) -> tuple[EncodedPart, ...]:
        """The key and the value, if they are in a binary format."""
        candidates = (
            (KEY, KEY_PART, self.table.options.get(KEY_FORMAT, "").lower(), self.key, "key."),
            (VALUE, VALUE_PART, value_format(self.table), self.value, "value."),
        )
        parts = []
        for name, part, form, fields, prefix in candidates:
            own = self._options(prefix) if part == KEY_PART else {**self.table.options, **self._options(prefix)}
            encoding = _encoding(form, fields, own)
            if encoding is not None:
                table = replace(self.table, options={"topic": self.table.options["topic"], **own})
                columns = tuple(replace(column, name=field) for field, column in fields)
                parts.append(EncodedPart(name, part, encoding, table, columns))
        return tuple(parts)

    def messages(self, batch: Batch, partitions: str) -> Select:
        """Return the messages of a batch, with the columns KEY, VALUE, PARTITION, TIMESTAMP (ms) and HEADERS.

        `partitions` is the SQL of a row's partition, -1 to let the client choose. Upserts have a tombstone for each deleted key;
        changes in Debezium's format come deletes first.
        """
        if self.upserts:
            keys = f"SELECT {self._key()} AS {KEY}, NULL AS {VALUE}"
            rest = f"-1 AS {PARTITION}, CAST(0 AS BIGINT) AS {TIMESTAMP}, NULL AS {HEADERS}"
            deleted = f"{keys}, {rest} FROM ({batch.deletes()})"
            upserted = f"{self._select(self._value(), partitions)} FROM ({batch.upserts()})"
            return Select(f"{upserted} UNION ALL BY NAME {deleted}")
        if value_format(self.table) != DEBEZIUM:
            return self.appended(batch.rows(), partitions)
        row = self._value()
        added = f"""'{{"before":null,"after":' || {row} || ',"op":"c"}}'"""
        gone = f"""'{{"before":' || {row} || ',"after":null,"op":"d"}}'"""
        times = f"SELECT {names(batch.columns)}, {WEIGHT}, unnest(range(abs({WEIGHT}))) FROM ({batch.changes()})"
        # The old row of a key is deleted before the new one is inserted.
        changes = f"(SELECT * FROM ({times}) ORDER BY {WEIGHT} > 0)"
        return Select(f"{self._select(f'if({WEIGHT} > 0, {added}, {gone})', partitions)} FROM {changes}")

    def appended(self, rows: Select, partitions: str) -> Select:
        """Return the messages of appended rows, one per row, with the columns of `messages`."""
        return Select(f"{self._select(self._value(), partitions)} FROM ({rows})")

    def _select(self, value: str, partitions: str) -> str:
        metadata = {c.metadata: quote_name(c.name) for c in self.table.writable if c.metadata is not None}
        timestamp = (
            f"coalesce(epoch_ms({metadata['timestamp']}), 0)" if "timestamp" in metadata else "CAST(0 AS BIGINT)"
        )
        items = {
            KEY: self._key() if self.key else "NULL",
            VALUE: value,
            PARTITION: partitions,
            TIMESTAMP: timestamp,
            HEADERS: metadata.get("headers", "NULL"),
        }
        return f"SELECT {', '.join(f'{sql} AS {name}' for name, sql in items.items())}"

    def _key(self) -> str:
        return _encode(self.table.options[KEY_FORMAT].lower())(self.key, self._options("key."))

    def _value(self) -> str:
        return _encode(value_format(self.table))(self.value, {**self.table.options, **self._options("value.")})

    def _options(self, prefix: str) -> Mapping[str, str]:
        return {k.removeprefix(prefix): v for k, v in self.table.options.items() if k.startswith(prefix)}
