"""Every format by its name: its options, and how its files and its values (messages) are read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from sqlstream.catalog import DEBEZIUM, OP_COLUMN, Column, Table
from sqlstream.connectors.formats.avro.written_files import codec
from sqlstream.connectors.formats.changelogs import SCHEMA_INCLUDE
from sqlstream.connectors.formats.csv_files import csv_values, read_csv
from sqlstream.connectors.formats.csv_rows import one_character
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.json_lines import json_values, read_json
from sqlstream.connectors.formats.json_options import COMPLETE, timestamp_format
from sqlstream.connectors.formats.malformed import options_of
from sqlstream.connectors.formats.parquet import read_parquet
from sqlstream.connectors.formats.raw_codec import CHARSET, ENDIANNESS
from sqlstream.connectors.formats.raw_lines import read_raw
from sqlstream.connectors.formats.raw_values import raw_values
from sqlstream.connectors.formats.schema_registry import registry_options
from sqlstream.connectors.options import BOOLEAN, NAME, TEXT, OptionType, TableOption
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Relation

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class ReadFiles(Protocol):
    """Returns the plan that reads `columns` of local files. `copies` maps paths to files that are read in their place."""

    def __call__(
        self,
        con: duckdb.DuckDBPyConnection,
        splits: Sequence[FileSplit],
        table: Table,
        columns: Sequence[Column],
        copies: Mapping[str, str],
    ) -> ReadPlan: ...


class ReadValues(Protocol):
    """Returns the marked rows that values encode: the table's `columns`, WRONG, and `passthrough`, columns of `values`.

    `values` has a row per value, with the encoded row in its column VALUE: a text (NULL for bytes that are not UTF-8) or, if the
    format is `of_bytes`, bytes. WRONG is the reason why a row is malformed, NULL for a well-formed one.
    """

    def __call__(
        self,
        con: duckdb.DuckDBPyConnection,
        values: Relation,
        table: Table,
        columns: Sequence[Column],
        passthrough: Sequence[str],
    ) -> Relation: ...


@dataclass(frozen=True, slots=True)
class MessageEncoding:
    """How rows are encoded as messages of a binary format. Its module needs packages of an extra, and is imported late."""

    module: str
    format: str

    def check(self, table: Table, columns: Sequence[Column], part: str) -> None:
        """Raise BindError unless some columns can be encoded, as far as that is known without a schema registry.

        `part` is `key` or `value`, the part of messages that the columns are in.
        """
        self._call("check", table, columns, part)

    def open(self, table: Table, columns: Sequence[Column], part: str) -> Callable[[pa.Table], list[bytes]]:
        """Return the function that encodes rows of some columns as messages, one per row. It may ask a schema registry first.

        `part` is `key` or `value`. Raises BindError for columns that cannot be encoded, DataError for a schema that does not
        exist, and OutageError if the registry does not answer.
        """
        encode: Callable[[pa.Table], list[bytes]] = self._call("encoder", table, columns, part)
        return encode

    def _call(self, name: str, *arguments: Any) -> Any:
        table, *rest = arguments
        return getattr(import_module(f"sqlstream.connectors.formats.{self.module}"), name)(table, self.format, *rest)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of rows: in files if it has `read_files`, in single values if it has `read_values`.

    Values are texts, unless the format is `of_bytes`.
    """

    options: tuple[TableOption, ...]
    read_files: ReadFiles | None
    read_values: ReadValues | None = None
    # The names of options that only apply to files.
    of_files: frozenset[str] = frozenset()
    of_bytes: bool = False
    # How messages are encoded, if SQL cannot do it.
    encoding: MessageEncoding | None = None
    # Returns the columns of a table that declares none; None if the format cannot infer them.
    columns: Callable[[Table], Sequence[Column]] | None = None


# Encodes raw texts in another charset than UTF-8; SQL encodes all other raw values.
RAW_TEXTS = MessageEncoding("raw_codec", "raw")


def _columns_of(module: str, format: str) -> Callable[[Table], Sequence[Column]]:
    """Return the function `columns_of` of a module, which is imported when it is called."""

    def columns(table: Table) -> Sequence[Column]:
        inferred_columns: Sequence[Column] = import_module(f"sqlstream.connectors.formats.{module}").columns_of(
            table, format
        )
        return inferred_columns

    return columns


def _values_of(module: str, name: str) -> ReadValues:
    """Return the function `name` of a module, which is imported when it is called, as it needs packages of an extra."""

    def read_values(
        con: duckdb.DuckDBPyConnection,
        values: Relation,
        table: Table,
        columns: Sequence[Column],
        passthrough: Sequence[str],
    ) -> Relation:
        function: ReadValues = getattr(import_module(f"sqlstream.connectors.formats.{module}"), name)
        return function(con, values, table, columns, passthrough)

    return read_values


def _read_avro(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    read_avro: ReadFiles = import_module("sqlstream.connectors.formats.avro.files").read_avro
    return read_avro(con, splits, table, columns, copies)


_CHARACTER = OptionType("character", one_character)
_OPTIONAL_CHARACTER = OptionType("character or nothing", lambda text: text and one_character(text))
_OPERATION = TableOption(
    OP_COLUMN, TEXT, "the column that says what a row does: I (insert), U (update), B (before an update), D (delete)"
)
_CSV = (
    TableOption("csv.header", BOOLEAN, "whether the first line has the names of the columns", default="false"),
    TableOption("csv.field-delimiter", _CHARACTER, "the character between two fields; `\\t` is a tab", default=","),
    TableOption("csv.quote-character", _OPTIONAL_CHARACTER, "the character around a field", default='"'),
    TableOption("csv.escape-character", _CHARACTER, "the character before a quote within a field", default="the quote"),
    TableOption("csv.null-literal", TEXT, "a text that means NULL, as an empty field does"),
)
_DEBEZIUM = (
    TableOption(
        SCHEMA_INCLUDE, BOOLEAN, "true: messages have a `schema`, and the envelope is in `payload`", default="false"
    ),
)
_AVRO_SCHEMA = TableOption(
    "avro.schema",
    NAME,
    "the schema, as JSON, of messages and of written files; without it written rows have the one of the columns",
)
_AVRO_CODEC = TableOption(
    "avro.codec",
    OptionType("codec", codec),
    "how written files are compressed: `null`, `deflate`, `bzip2` or `xz`",
    "deflate",
)
_PROTOBUF = (
    TableOption(
        "protobuf.descriptor-file",
        NAME,
        "a file with the descriptors of messages, as `protoc --include_imports --descriptor_set_out` writes it",
        required=True,
        example="shop.desc",
    ),
    TableOption(
        "protobuf.schema-file",
        NAME,
        "in place of descriptors: a file with the schema (`.proto`), which is compiled; needs the extra `protoc`",
        instead_of="protobuf.descriptor-file",
    ),
    TableOption(
        "protobuf.import-path",
        NAME,
        "where a schema finds what it imports, folders separated by `;`; one must hold the schema itself. Without it, the "
        "folder of the schema",
    ),
    TableOption(
        "protobuf.message-name", NAME, "the message, as `package.Message`", required=True, example="shop.Order"
    ),
)
_CONFLUENT_MESSAGE = TableOption(
    "protobuf-confluent.message-name",
    NAME,
    "the message that rows are written as, and whose columns a table without any has; the first one, unless it is given",
)
_FIRST_SCHEMA = TableOption(
    "protobuf-confluent.auto-register",
    BOOLEAN,
    "whether a schema of the columns is registered where the subject of written rows has none",
    default="true",
)
_LATEST = TableOption(
    "avro-confluent.use-latest-version",
    BOOLEAN,
    "true: rows are written with the newest schema of the subject, by the names of its fields; nothing is registered",
    default="false",
)
_CONFLUENT_SCHEMA = TableOption(
    "avro-confluent.schema",
    NAME,
    "the reader's schema, as JSON: its aliases and defaults count; rows are written with it. Without it, that of the columns",
)
FORMATS: Mapping[str, Format] = {
    "parquet": Format((_OPERATION, *options_of("parquet")), read_parquet),
    "json": Format((_OPERATION, COMPLETE, timestamp_format("json"), *options_of("json")), read_json, json_values),
    "csv": Format((_OPERATION, *_CSV, *options_of("csv")), read_csv, csv_values, frozenset({"csv.header"})),
    DEBEZIUM: Format((*_DEBEZIUM, timestamp_format(DEBEZIUM), *options_of(DEBEZIUM)), read_json, json_values),
    "avro": Format(
        (_OPERATION, _AVRO_SCHEMA, _AVRO_CODEC, *options_of("avro")),
        _read_avro,
        _values_of("avro.values", "avro_values"),
        of_bytes=True,
        of_files=frozenset({OP_COLUMN, _AVRO_CODEC.name}),
        encoding=MessageEncoding("avro.encoding", "avro"),
    ),
    "avro-confluent": Format(
        (*registry_options("avro-confluent"), _LATEST, _CONFLUENT_SCHEMA, *options_of("avro-confluent")),
        None,
        _values_of("avro.values", "confluent_values"),
        of_bytes=True,
        encoding=MessageEncoding("avro.encoding", "avro-confluent"),
        columns=_columns_of("avro.values", "avro-confluent"),
    ),
    "protobuf": Format(
        (*_PROTOBUF, *options_of("protobuf")),
        None,
        _values_of("protobuf.values", "protobuf_values"),
        of_bytes=True,
        encoding=MessageEncoding("protobuf.encoding", "protobuf"),
        columns=_columns_of("protobuf.values", "protobuf"),
    ),
    "protobuf-confluent": Format(
        (
            *(o for o in registry_options("protobuf-confluent") if not o.name.endswith("auto-register")),
            _FIRST_SCHEMA,
            _CONFLUENT_MESSAGE,
            *options_of("protobuf-confluent"),
        ),
        None,
        _values_of("protobuf.values", "confluent_values"),
        of_bytes=True,
        encoding=MessageEncoding("protobuf.encoding", "protobuf-confluent"),
        columns=_columns_of("protobuf.values", "protobuf-confluent"),
    ),
    "raw": Format((ENDIANNESS, CHARSET, *options_of("raw")), read_raw, raw_values, of_bytes=True),
}
