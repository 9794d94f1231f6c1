"""Every format by its name, with its options, and how it is read: of files, and of values that a source hands out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sqlstream.catalog import DEBEZIUM, OP_COLUMN, Column, Table
from sqlstream.connectors.filesystem.splits import FileSplit
from sqlstream.connectors.formats.changelogs import SCHEMA_INCLUDE
from sqlstream.connectors.formats.csv_files import csv_values, read_csv
from sqlstream.connectors.formats.csv_rows import one_character
from sqlstream.connectors.formats.json_lines import json_values, read_json
from sqlstream.connectors.formats.malformed import options_of
from sqlstream.connectors.formats.parquet import read_parquet
from sqlstream.connectors.options import BOOLEAN, TEXT, OptionType, TableOption
from sqlstream.connectors.read_plan import ReadPlan

if TYPE_CHECKING:
    import duckdb


class ReadFiles(Protocol):
    """Returns how to read some columns of files that are local; `copies` are read in place of others, by their paths."""

    def __call__(
        self,
        con: duckdb.DuckDBPyConnection,
        splits: Sequence[FileSplit],
        table: Table,
        columns: Sequence[Column],
        copies: Mapping[str, str],
    ) -> ReadPlan: ...


class ReadValues(Protocol):
    """Returns a relation of the rows that texts are: some columns, why a row is malformed (WRONG), and `kept` ones.

    `values` is a relation with a text per row (VALUE), NULL where bytes are no text.
    """

    def __call__(
        self, con: duckdb.DuckDBPyConnection, values: str, table: Table, columns: Sequence[Column], kept: Sequence[str]
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Format:
    """How rows are written. Without `read_values` it is one of files alone."""

    options: tuple[TableOption, ...]
    read_files: ReadFiles
    read_values: ReadValues | None = None
    # Options that only make sense for files.
    of_files: frozenset[str] = frozenset()


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
FORMATS: Mapping[str, Format] = {
    "parquet": Format((_OPERATION, *options_of("parquet")), read_parquet),
    "json": Format((_OPERATION, *options_of("json")), read_json, json_values),
    "csv": Format((_OPERATION, *_CSV, *options_of("csv")), read_csv, csv_values, frozenset({"csv.header"})),
    DEBEZIUM: Format((*_DEBEZIUM, *options_of(DEBEZIUM)), read_json, json_values),
}
