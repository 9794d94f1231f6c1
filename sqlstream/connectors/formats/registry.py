"""Every format by its name, with its options."""

from __future__ import annotations

from collections.abc import Mapping

from sqlstream.catalog import DEBEZIUM, OP_COLUMN
from sqlstream.connectors.formats.changelogs import SCHEMA_INCLUDE
from sqlstream.connectors.formats.csv_rows import one_character
from sqlstream.connectors.formats.malformed import options_of
from sqlstream.connectors.options import BOOLEAN, TEXT, OptionType, TableOption

_CHARACTER = OptionType("character", one_character)
_OPTIONAL_CHARACTER = OptionType("character or nothing", lambda text: text and one_character(text))
_OPERATION = TableOption(OP_COLUMN, TEXT, "the column that says what each row does: I, U, B or D")
FORMATS: Mapping[str, tuple[TableOption, ...]] = {
    "parquet": (_OPERATION, *options_of("parquet")),
    "json": (_OPERATION, *options_of("json")),
    "csv": (
        _OPERATION,
        TableOption("csv.header", BOOLEAN, "whether the first row has the names of the columns", default="false"),
        TableOption("csv.field-delimiter", _CHARACTER, "between two fields; `\\t` is a tab", default=","),
        TableOption("csv.quote-character", _OPTIONAL_CHARACTER, "around a field", default='"'),
        TableOption("csv.escape-character", _CHARACTER, "before a quote in a field", default="the quote"),
        TableOption("csv.null-literal", TEXT, "what NULL is, beside an empty field"),
        *options_of("csv"),
    ),
    DEBEZIUM: (
        TableOption(SCHEMA_INCLUDE, BOOLEAN, "whether the envelope is in `payload`, beside a schema", default="false"),
        *options_of(DEBEZIUM),
    ),
}
