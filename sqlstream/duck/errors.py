"""Translates errors of DuckDB: messages in sqlstream's style, which point into the user's text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import duckdb

from sqlstream.duck.text_files import PACKINGS, WHOLE, malformed_line, packed_fault
from sqlstream.errors import QueryError, SourceText, Span, missing, nearest, sql_types

# The last lines of a message with a position in the text: `LINE 2: ...text of the line...`, and carets below.
_POSITION = re.compile(r"\n+(?P<label>LINE (?P<line>\d+): )(?P<text>.*)\n(?P<carets> *\^+)\s*$")
_KIND = re.compile(r"^[A-Z][A-Za-z ]* (Error|Exception): ")
# What DuckDB says to do about a division by zero, among it options that nobody can set.
_ADVICE = re.compile(r"\. Use TRY\(\.\.\.\) to return NULL.*")
# The names of catalogs of older versions, which a message leaves out.
_INTERNAL = re.compile(r'"@\d+"\.|@\d+\.')

_MISSING_RELATION = re.compile(r"Table with name (.+?) does not exist")
_MISSING_COLUMN = re.compile(
    r'(?:Referenced column "(.+?)" (?:not found|was not found)|does not have a column named "(.+?)")'
)
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_NAME = re.compile(r'(?:"(?:[^"]|"")*"|[^\s"])+')
_MISSING_FUNCTION = re.compile(r"Function with name (\S+) does not exist")
_CANDIDATES = re.compile(r"^(?:Candidate bindings|Candidate tables|Did you mean)\W\s*(.*)$", re.MULTILINE)
_FORBIDDEN_FILE = re.compile(r'(?:Cannot access (?:file|directory) |[Oo]pen file )"(.+?)".* disabled by configuration')
_VANISHED_FILE = re.compile(r'Cannot open file "(.+?)"|No files found that match the pattern "(.+?)"')
_MALFORMED_JSON = re.compile(r'Malformed JSON in file "(.+?)", at byte \d+ in line \d+')
_UNFIT_JSON = re.compile(r'JSON transform error in file "(.+?)", in line (\d+): (.*)')
# The error of one of sqlstream's readers, to which DuckDB and Arrow add their own text, and a traceback.
_DAMAGED_FILE = re.compile(r'file "(?P<path>[^"\n]+)" is damaged: (?P<why>.+)\Z')
# Errors of DuckDB's reader of CSV, which suggest options that a query cannot set.
_CSV_FILE = re.compile(r"CSV.*^  file = (.+?)$", re.MULTILINE | re.DOTALL)
_CSV_ROW = re.compile(r"CSV Error on Line: (\d+)\n")
_CSV_FAULTS = (
    (re.compile(r"Error when converting column (\".+?\")"), "Column {} does not hold such a value."),
    (re.compile(r"unterminated (quote)"), "A {} is not closed, or stands within a field."),
    (re.compile(r"Maximum line size of (\d+) bytes"), "The row has more than {} bytes."),
    (re.compile(r"Invalid (unicode)"), "The bytes are no text ({})."),
)
# The error of sqlstream's own reader about a row.
_CSV_RECORD = re.compile(r'(?P<row>row \d+ of file ".+?") is malformed: (?P<why>.+)', re.DOTALL)
# Errors of DuckDB, and of Arrow in sqlstream's own readers, about compressed files; and of DuckDB about other compressions.
_PACKED_FILE = re.compile(r"(?P<why>Unexpected end of GZIP stream|Input is not a GZIP stream)[^:]*: (?P<path>.+)")
_UNREAD_FILE = re.compile(
    r'file "(?P<path>[^"\n]+)" cannot be read: (?P<why>.+?)(?:\. Detail: Python exception|$)', re.MULTILINE
)
_OTHER_PACKING = re.compile(r'compression type is not supported .*?from the name of "(?P<path>[^"\n]+)"', re.DOTALL)
# The error of sqlstream's SQL about a value of JSON.
_MALFORMED_FILE = re.compile(r'file "(?P<path>.+?)" is malformed: (?P<why>.+)', re.DOTALL)
_CSV_FIELDS = re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)")
_LEAVE_OUT = "Set 'csv.ignore-parse-errors' = 'true' where the table is declared, to leave out such rows."
_SEGMENT = re.compile(r"/data/\d+/[^/]+\.parquet$")


def missing_table(name: str, span: Span | None, relations: Iterable[str], others: Mapping[str, str]) -> QueryError:
    """Return the error for a table that a query cannot read.

    `relations` are the names that exist, for the hint. `others` are declared tables, by name in lower case, with the reason why
    they cannot be queried.
    """
    if why := others.get(name.lower()):
        return QueryError(f'table "{name}" cannot be queried', span, hint=why)
    return QueryError(f'table "{name}" does not exist', span, hint=missing("table", name, relations))


def damage(text: str) -> str | None:
    """Return why a file is damaged, from the text of an error that a reader of sqlstream has raised; None for other errors."""
    match = _DAMAGED_FILE.search(text.strip())
    return match["why"] if match else None


def translate(
    error: Exception,
    source: SourceText | str,
    relations: Iterable[str] = (),
    others: Mapping[str, str] = MappingProxyType({}),
    columns: Sequence[str] = (),
) -> QueryError:
    """Translate an error of DuckDB into the error to raise, with a position in the text `source` if DuckDB names one.

    `relations` and `others` are as for `missing_table`; `columns` are those of the relations in the query, for hints.
    """
    source = source if isinstance(source, SourceText) else SourceText("query", source)
    text = str(error)
    span = _span(text, source)
    text = _KIND.sub("", _INTERNAL.sub("", _POSITION.sub("", text))).strip()
    candidates = [c.strip(' "?') for line in _CANDIDATES.findall(text) for c in line.split(",")]
    if match := _MISSING_RELATION.search(text):
        if span and (written := _NAME.match(span.text)):
            # DuckDB marks the name and its alias.
            span = replace(span, end=span.start + written.end())
        name = match[1].strip('"')
        if span and _last_part(_plain_name(span.text)) != _last_part(name):
            # In SHOW and DESCRIBE it marks another place.
            span = None
        name = _plain_name(span.text) if span else name
        return missing_table(name, span, relations, others)
    if match := _MISSING_COLUMN.search(text):
        name = match[1] or match[2]
        return QueryError(f'column "{name}" does not exist', span, hint=_column_hint(name, candidates, columns))
    if match := _MISSING_FUNCTION.search(text):
        name = match[1].strip('!"')
        near = nearest(name, candidates)
        return QueryError(f'function "{name}" does not exist', span, hint=f'did you mean "{near}"?' if near else None)
    if match := _FORBIDDEN_FILE.search(text):
        hint = "A query reads files of the warehouse and of declared tables only."
        return QueryError(f'"{match[1]}" is outside of what a query may read', span, hint=hint)
    if (of_file := _of_file(text, span)) is not None:
        return of_file
    first, _, rest = sql_types(_ADVICE.sub("", text)).partition("\n")
    message = first[:1].lower() + first[1:] if not first[:2].isupper() else first
    return QueryError(message.rstrip(" .!"), span, detail=rest.strip() or None)


def _of_file(text: str, span: Span | None) -> QueryError | None:
    """Return the error to raise for the text of an error about a file; None if it is about no file."""
    if match := _VANISHED_FILE.search(text):
        path = match[1] or match[2]
        if _SEGMENT.search(path):
            return QueryError("the state changed while it was read", hint="Run the query again.")
        return QueryError(f'file "{path}" does not exist', span)
    if match := _DAMAGED_FILE.search(text):
        return QueryError(
            f'file "{match["path"]}" is damaged', detail=f"{match['why'][:1].upper()}{match['why'][1:]}.", hint=WHOLE
        )
    if match := _PACKED_FILE.search(text) or _UNREAD_FILE.search(text):
        return _not_whole(match["path"], match["why"])
    if match := _OTHER_PACKING.search(text):
        return QueryError(f'file "{match["path"]}" is compressed in a way that cannot be read', hint=PACKINGS)
    if match := _CSV_RECORD.fullmatch(text):
        return QueryError(f"{match['row']} is malformed", detail=f"{match['why']}.", hint=_LEAVE_OUT)
    if match := _MALFORMED_FILE.fullmatch(text):
        return QueryError(f'file "{match["path"]}" has a malformed row', detail=f"{match['why']}.")
    if match := _CSV_FILE.search(text):
        return _of_csv(text, match[1])
    if match := _MALFORMED_JSON.search(text):
        # DuckDB names the line after the malformed one.
        try:
            line, fault = malformed_line(match[1])
        except OSError as damaged:
            return _not_whole(match[1], str(damaged))
        return QueryError(f'line {line} of file "{match[1]}" is malformed', detail=fault)
    if match := _UNFIT_JSON.search(text):
        fault = f"{match[3][:1].upper()}{sql_types(match[3][1:])}."
        return QueryError(f'line {match[2]} of file "{match[1]}" does not fit its table', detail=fault)
    return None


def _not_whole(path: str, why: str) -> QueryError:
    message = f'file "{path}" is incomplete, or not compressed as its name says'
    return QueryError(message, detail=packed_fault(why), hint=WHOLE)


def _of_csv(text: str, path: str) -> QueryError:
    """Return the error for a CSV file, with the number of the malformed row, if it is known."""
    row = _CSV_ROW.search(text)
    if row is None:
        detail = "Its lines end in several ways, or a quote is wrong."
        return QueryError(f'file "{path}" cannot be read as CSV', detail=detail)
    fault = next(
        (template.format(match[1]) for pattern, template in _CSV_FAULTS if (match := pattern.search(text))), None
    )
    if fields := _CSV_FIELDS.search(text):
        # DuckDB stops counting at the first field too many.
        fault = f"The row has {'more' if int(fields[2]) > int(fields[1]) else 'fewer'} than {fields[1]} fields."
    return QueryError(f'row {row[1]} of file "{path}" is malformed', detail=fault, hint=_LEAVE_OUT)


def _column_hint(name: str, candidates: Sequence[str], columns: Sequence[str]) -> str | None:
    """Return the hint for a column that does not exist; DuckDB's `candidates` are some of the existing columns.

    >>> _column_hint("x", ["k"], ["k", "n"]), _column_hint("x", ["inner"], ["k", "n"])
    ('existing columns: k, n', 'existing columns: inner and others')
    """
    if not candidates:
        return None
    if {c.rpartition(".")[2] for c in candidates} <= set(columns):
        return missing("column", name, columns)
    hint = missing("column", name, candidates)
    return f"{hint} and others" if hint.startswith("existing") else hint


def of_duckdb(error: duckdb.Error | OSError) -> duckdb.Error | None:
    """Return an error as a duckdb.Error; None if it is an error of files or servers.

    While rows are fetched in batches, Arrow raises DuckDB's errors as OSError without an errno.
    """
    if isinstance(error, duckdb.Error):
        return error
    return duckdb.Error(str(error)) if error.errno is None and _KIND.match(str(error)) else None


def plain(error: duckdb.Error) -> str:
    """Return the message of an error of DuckDB, translated, as a phrase."""
    return translate(error, "").message


def _span(text: str, source: SourceText) -> Span | None:
    """Return the position that DuckDB marks, None if it marks none.

    DuckDB sees a rewritten text, which has the same lines, but not always the same columns: the nearest equal text is taken.
    """
    match = _POSITION.search(text)
    if not match:
        return None
    line = source.line(int(match["line"]))
    column = match["carets"].index("^") - len(match["label"])
    start = _index(match["text"], column)
    marked = match["text"][start : _index(match["text"], column + match["carets"].count("^"))]
    if match["text"].startswith("..."):
        # The line is cut off at the left: the position of the rest in the whole line says by how much.
        start += max(line.find(match["text"].strip(".")) - 3, 0)
    positions = [m.start() for m in re.finditer(re.escape(marked), line)] if marked else []
    if not positions:
        return None
    before = "".join(f"{line}\n" for line in source.text.split("\n")[: int(match["line"]) - 1])
    start = len(before) + min(positions, key=lambda at: abs(at - start))
    return Span(source, start, start + len(marked))


def _index(text: str, column: int) -> int:
    """Return the index of the character that DuckDB shows in a column; there a tab has width 0, a wide character 2."""
    for index, character in enumerate(text):
        if unicodedata.category(character)[0] not in "MC":
            if column <= 0:
                return index
            column -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return len(text)


def _last_part(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _plain_name(text: str) -> str:
    r"""Return a qualified name without quotes.

    >>> print(_plain_name('state."a""b".c'))
    state.a"b.c
    """
    return _QUOTED.sub(lambda quoted: quoted[1].replace('""', '"'), text)
