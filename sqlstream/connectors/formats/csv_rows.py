"""The syntax of CSV: the options of DuckDB's reader and writer, and which field of a row is which column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from sqlstream.catalog import Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.read_errors import name_file, reading
from sqlstream.duck.sql import quote_text
from sqlstream.duck.text_files import open_text
from sqlstream.errors import DataError, missing
from sqlstream.units import parse_boolean

# No limit on the length of a field.
csv.field_size_limit(2**31 - 1)


def has_header(options: Mapping[str, str]) -> bool:
    """Whether the first line of a file is a header."""
    return parse_boolean(options.get("csv.header", "false"))


def csv_layout(split: FileSplit, table: Table) -> tuple[tuple[str, str], ...]:
    """Return (name, type) of each field of a file's rows, in order: as the header lists them, or as the table declares them.

    Raises DataError if the header lacks a declared column or has it twice, and if the file cannot be read.
    """
    if not has_header(table.options):
        return tuple((c.name, c.type) for c in table.physical)
    with reading([split], table):
        header = _header(split.path, table.options)
    declared = {c.name.lower(): c for c in table.physical}
    if header is None:
        return tuple((c.name, c.type) for c in table.physical)
    names = [name.strip().lower() for name in header]
    for name, column in declared.items():
        if name not in names:
            hint = missing("column", column.name, [n.strip() for n in header])
            message = f'the header of {name_file(split.path, table)} has no column "{column.name}"'
            raise DataError(message, hint=hint)
        if names.count(name) > 1:
            raise DataError(f'the header of {name_file(split.path, table)} has column "{column.name}" twice')
    # Fields that are no columns of the table need distinct names; their values are not cast.
    return tuple(
        (declared[n].name, declared[n].type) if n in declared else (f"_undeclared_{i}", "VARCHAR")
        for i, n in enumerate(names)
    )


def _header(path: str, options: Mapping[str, str]) -> list[str] | None:
    with open_text(path) as lines:
        return next(csv_reader(lines, options), None)


def quoting(options: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the delimiter, the quote ("" for none) and the escape character."""
    quote = options.get("csv.quote-character", '"')
    return _character(options.get("csv.field-delimiter", ",")), quote, options.get("csv.escape-character", quote)


def csv_reader(lines: Iterable[str], options: Mapping[str, str]) -> Iterator[list[str]]:
    """Return an iterator over the records of CSV lines, each a list of the fields' texts."""
    quote = options.get("csv.quote-character", '"')
    escape = options.get("csv.escape-character", quote)
    return csv.reader(
        lines,
        delimiter=_character(options.get("csv.field-delimiter", ",")),
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        doublequote=escape == quote,
        escapechar=None if escape == quote else escape,
    )


def fields_of(text: str, options: Mapping[str, str]) -> list[str | None] | None:
    r"""Return the fields of a record as DuckDB reads them, None for NULL; None instead of the list if its quotes are wrong.

    >>> fields_of('1,"a ""b"", c",,""', {})
    ['1', 'a "b", c', None, '']
    """
    delimiter, quote, escape = quoting(options)
    nulls = {"", options.get("csv.null-literal", "")}
    if not quote or quote not in text:
        return [None if field in nulls else field for field in text.split(delimiter)]
    pattern = _pattern(delimiter, quote, escape)
    fields: list[str | None] = []
    at = 0
    while True:
        match = pattern.match(text, at)
        if match is None:
            return None
        quoted, plain, end = match.groups()
        if quoted is None:
            fields.append(None if plain in nulls else plain)
        elif escape in quoted:
            fields.append(re.sub(f"{re.escape(escape)}(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            fields.append(quoted)
        if not end:
            break
        at = match.end()
    return fields


@cache
def _pattern(delimiter: str, quote: str, escape: str) -> re.Pattern[str]:
    end, inside = re.escape(delimiter), re.escape(quote)
    text = (
        f"(?:{inside}{inside}|[^{inside}])*"
        if escape == quote
        else f"(?:{re.escape(escape)}.|[^{inside}{re.escape(escape)}])*"
    )
    return re.compile(
        f"(?:{inside}(?P<quoted>{text}){inside}|(?P<plain>[^{inside}{end}][^{end}]*|))(?P<end>{end}|$)", re.DOTALL
    )


def csv_syntax(options: Mapping[str, str]) -> list[str]:
    """Return the arguments of DuckDB's `read_csv` for a table's options, such as `header = true`."""
    quote = options.get("csv.quote-character", '"')
    nulls = ["", *([options["csv.null-literal"]] if options.get("csv.null-literal") else [])]
    return [
        "auto_detect = false",
        f"header = {str(has_header(options)).lower()}",
        f"delim = {quote_text(_character(options.get('csv.field-delimiter', ',')))}",
        f"quote = {quote_text(quote)}",
        f"escape = {quote_text(options.get('csv.escape-character', quote))}",
        f"nullstr = [{', '.join(map(quote_text, nulls))}]",
        "allow_quoted_nulls = false",
    ]


def csv_write_options(options: Mapping[str, str]) -> list[str]:
    """Return the options of COPY that write CSV which `csv_syntax` reads, for the same table's options."""
    quote = options.get("csv.quote-character", '"')
    return [
        f"HEADER {str(has_header(options)).lower()}",
        f"DELIMITER {quote_text(_character(options.get('csv.field-delimiter', ',')))}",
        f"QUOTE {quote_text(quote)}",
        f"ESCAPE {quote_text(options.get('csv.escape-character', quote))}",
        f"NULLSTR {quote_text(options.get('csv.null-literal', ''))}",
    ]


def _character(text: str) -> str:
    return "\t" if text == "\\t" else text


def one_character(text: str) -> str:
    r"""Return the text of an option if it is one character, or `\t` for a tab. Raises ValueError for any other text."""
    if len(_character(text)) != 1:
        raise ValueError(f'"{text}" is not one character')
    return text
