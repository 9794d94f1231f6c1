"""The format raw: a row of one column as the bytes of its value, as Flink encodes them.

A number is as many bytes as its type has, the most significant first unless `raw.endianness` says otherwise; a BOOLEAN is one
byte, 0 for false. A text is encoded as `raw.charset` says, and bytes are as they are.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.options import OptionType, TableOption
from sqlstream.duck.sql import quote_name

# Bytes by type, for the types whose values all have the same number of bytes.
SIZES: Mapping[str, int] = {
    "BOOLEAN": 1,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INTEGER": 4,
    "BIGINT": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
}
_BIG, _LITTLE = "big-endian", "little-endian"
NO_TEXT = "The bytes are no text"
# Java puts a mark before a text in this charset, and reads one without a mark from its most significant byte on.
_UTF_16 = codecs.lookup("utf-16").name


def _endianness(text: str) -> str:
    if text.lower() not in (_BIG, _LITTLE):
        raise ValueError(f'"{text}" is neither {_BIG} nor {_LITTLE}')
    return text.lower()


def _charset(text: str) -> str:
    """Return Python's name of a charset. Raises ValueError for a text that names none."""
    try:
        "a".encode(text)
        return codecs.lookup(text).name
    except (LookupError, UnicodeError, ValueError):
        raise ValueError(f'"{text}" is no charset, such as UTF-8, UTF-16 or ISO-8859-1') from None


ENDIANNESS = TableOption(
    "raw.endianness",
    OptionType(f"{_BIG} or {_LITTLE}", _endianness),
    "which byte of a number comes first: the most significant (`big-endian`) or the least (`little-endian`)",
    _BIG,
)
CHARSET = TableOption("raw.charset", OptionType("charset", _charset), "how a STRING is encoded", "UTF-8")


@dataclass(frozen=True, slots=True)
class RawCodec:
    """Encodes and decodes values of one type, a type of DuckDB; `charset` is Python's name of it."""

    type: str
    charset: str = "utf-8"
    little_endian: bool = False

    @classmethod
    def of(cls, type: str, options: Mapping[str, str]) -> RawCodec:
        """Return the codec of a column's type, with the options `raw.*` of its format."""
        return cls(
            type,
            _charset(options.get(CHARSET.name, CHARSET.default)),
            _endianness(options.get(ENDIANNESS.name, _BIG)) == _LITTLE,
        )

    @property
    def size(self) -> int | None:
        """The number of bytes of every value; None for texts and bytes."""
        return SIZES.get(self.type)

    @property
    def needs_python(self) -> bool:
        """Whether SQL cannot encode and decode the values: texts that are not UTF-8."""
        return self.type == "VARCHAR" and self.charset != "utf-8"

    def decoded(self, value: str) -> str:
        """Return the SQL that decodes `value`, an SQL expression of bytes; NULL for bytes that encode no value."""
        if self.type == "BLOB":
            return value
        if self.size is None:
            return f"TRY(decode({value}))"
        if self.type == "BOOLEAN":
            decoded = f"{value} <> '\\x00'::BLOB"
        else:
            decoded = f"CAST(CAST({self._ordered(value)} AS BIT) AS {self.type})"
        return f"CASE WHEN octet_length({value}) = {self.size} THEN {decoded} END"

    def fault(self, value: str) -> str:
        """Return the SQL of the reason why the bytes `value`, an SQL expression, encode no value; NULL if they do."""
        if self.type == "BLOB":
            return "CAST(NULL AS VARCHAR)"
        if self.size is None:
            return f"CASE WHEN TRY(decode({value})) IS NULL THEN '{NO_TEXT}' END"
        counted = (
            f"'{self.type} has {self.size} byte{'s' if self.size > 1 else ''}, and the value ' || octet_length({value})"
        )
        return f"CASE WHEN octet_length({value}) <> {self.size} THEN {counted} END"

    def encoded(self, name: str) -> str:
        """Return the SQL of the bytes of a column, or of its text if that is encoded later; NULL stays NULL."""
        column = quote_name(name)
        return self._ordered(f"CAST(CAST({column} AS BIT) AS BLOB)") if self.size else column

    def _ordered(self, value: str) -> str:
        """Return the SQL of a number's bytes in reverse order if the codec is little-endian, else `value` itself."""
        if not self.little_endian or (self.size or 0) < 2:
            return value
        digits = (f"hex({value})[{2 * n - 1}:{2 * n}]" for n in range(self.size or 0, 0, -1))
        return f"unhex({' || '.join(digits)})"

    def text(self, value: bytes) -> str | None:
        """Return the text that bytes encode; None if they are not valid in the charset."""
        marked = value.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        try:
            return value.decode("utf-16-be" if self.charset == _UTF_16 and not marked else self.charset)
        except UnicodeError:
            return None

    def bytes_of(self, text: str) -> bytes:
        """Return a text's bytes; as in Java, a question mark stands for a character that the charset lacks."""
        if self.charset == _UTF_16:
            return codecs.BOM_UTF16_BE + text.encode("utf-16-be", "replace")
        return text.encode(self.charset, "replace")

    def shown(self, value: bytes) -> str:
        """Return bytes for a message: as text, or in hexadecimal digits if they are a number."""
        return f"0x{value.hex().upper()}" if self.size else value.decode(self.charset, errors="replace")


def problem(columns: Sequence[Column]) -> str | None:
    """Return what is wrong with the columns of a raw key, value or line, as the end of a sentence; None if they are valid."""
    if len(columns) == 1 and columns[0].type in ("VARCHAR", "BLOB", *SIZES):
        return None
    what = ", ".join(f"{c.name} {c.type}" for c in columns) or "none"
    return f"holds one column, a number, BOOLEAN, STRING or BYTES, not {what}"


HINT = "Other types, and several columns, need a format such as json or csv; of DECIMAL and times, declare a STRING."


def check(table: Table, format: str, columns: Sequence[Column], part: str) -> None:
    """Do nothing: `problem` has checked the columns before. See `MessageEncoding.check`."""


def encoder(table: Table, format: str, columns: Sequence[Column], part: str) -> Callable[[pa.Table], list[bytes]]:
    """Return the function that encodes texts in another charset than UTF-8, see `MessageEncoding`."""
    codec = RawCodec.of(columns[0].type, table.options)

    def encode(rows: pa.Table) -> list[bytes]:
        return [codec.bytes_of(text) for text in rows.column(0).to_pylist()]

    return encode
