"""Errors for people: a kind, a place in the text, carets under it, a hint.

Every error that a user can cause is a `SqlStreamError`. Its message is a short lower-case phrase; detail and hint are
full sentences.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Replacement(NamedTuple):
    """Characters start..end of a source's text, which stand for written_start..written_end of what was written."""

    start: int
    end: int
    written_start: int
    written_end: int


@dataclass(frozen=True, slots=True)
class Source:
    """A named text: a file, or SQL given on the command line or from Python.

    Where variables were replaced, `written` is the text before that: people see places in that one.
    """

    name: str
    text: str
    written: str | None = None
    replacements: tuple[Replacement, ...] = ()

    def as_written(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the written text that a range of the text came from; a replacement came from all of its."""
        return self._offset(start, lambda r: r.written_start), self._offset(end, lambda r: r.written_end, ends=True)

    def _offset(self, offset: int, inside: Callable[[Replacement], int], ends: bool = False) -> int:
        shift = 0
        for replacement in self.replacements:
            if offset < replacement.start + ends:
                break
            if offset < replacement.end + ends:
                return inside(replacement)
            shift = replacement.written_end - replacement.end
        return offset + shift

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 1-based line and column of a character offset, as written."""
        offset, _ = self.as_written(offset, offset)
        before = self._shown[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    @property
    def _shown(self) -> str:
        return self.text if self.written is None else self.written

    def line(self, number: int) -> str:
        """Return the text of the 1-based line as written, or nothing past the end."""
        lines = self._shown.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters start..end (end exclusive) of a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


class SqlStreamError(Exception):
    """An error caused by what the user gave us: text, data, options, or the state of the warehouse."""

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, span: Span | None = None, *, detail: str | None = None, hint: str | None = None):
        super().__init__(message)
        self.message = message
        self.span = span
        self.detail = detail
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.span, self.detail, self.hint)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """Return the error as a person reads it, with the source line and carets when the place is known."""
        lines = [f"{self.kind}: {self.message}"]
        if self.span is not None:
            lines += caret_lines(self.span)
        if self.detail:
            lines.append(self.detail)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def _rebuild(
    cls: type[SqlStreamError], message: str, span: Span | None, detail: str | None, hint: str | None
) -> SqlStreamError:
    return cls(message, span, detail=detail, hint=hint)


class ParseError(SqlStreamError):
    """The text is not a statement."""

    kind = "syntax error"


class BindError(SqlStreamError):
    """A name, type or option does not fit what is declared."""


class UnsupportedError(SqlStreamError):
    """Valid SQL that sqlstream does not run; the hint says what to write instead."""

    kind = "unsupported"


class UnboundedState(SqlStreamError):
    """A query that runs, but keeps more and more as long as its input goes on: a warning, unless the user wants an error."""

    kind = "warning"


class UsageError(SqlStreamError):
    """The arguments, options or environment are wrong."""


class JobError(SqlStreamError):
    """A job failed while running. `log_file` is where Spark says more about it."""

    kind = "job failed"
    exit_code = 1
    log_file: str | None = None

    def render(self) -> str:
        return "\n".join([super().render(), *([f"log: {self.log_file}"] if self.log_file else [])])


class DataError(JobError):
    """A row or a file cannot be read or written as declared."""


class DamageError(JobError):
    """A file of the warehouse is not as it was written, or is gone.

    `torn` is what a power cut does to a file that was written shortly before: it is empty, cut off, or missing.
    """

    kind = "error"

    def __init__(self, path: str, fault: str, *, torn: bool, detail: str | None = None, hint: str | None = None):
        super().__init__(f'file "{path}" {fault}', detail=detail, hint=hint)
        self.path = path
        self.fault = fault
        self.torn = torn

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_damage, (self.path, self.fault, self.torn, self.detail, self.hint)


def _rebuild_damage(path: str, fault: str, torn: bool, detail: str | None, hint: str | None) -> DamageError:
    return DamageError(path, fault, torn=torn, detail=detail, hint=hint)


class QueryError(SqlStreamError):
    """A state query was refused or failed."""


def caret_lines(span: Span) -> list[str]:
    """Render the place of a span: a pointer, the source line, carets (on the first line of a longer span)."""
    line, column = span.source.position(span.start)
    text = span.source.line(line)
    start, end = span.source.as_written(span.start, span.end)
    width = max(1, min(end, start + len(text) - column + 1) - start)
    gutter = " " * len(str(line))
    # A tab moves the caret as far as it moves the text.
    pad = "".join("\t" if c == "\t" else " " for c in text[: column - 1])
    return [
        f"{gutter} --> {span}",
        f"{gutter}  |",
        f" {line} | {text}",
        f"{gutter}  | {pad}{'^' * width}",
    ]


_WIDTHS = {"8": "TINYINT", "16": "SMALLINT", "32": "INTEGER", "64": "BIGINT", "128": "HUGEINT"}


def sql_types(text: str) -> str:
    """Return a message of DuckDB's with types as SQL calls them.

    >>> sql_types("Could not convert string 'INT32' to INT32")
    "Could not convert string 'INT32' to INTEGER"
    """

    def named(found: re.Match[str]) -> str:
        return found[1] + found[2] + _WIDTHS[found[3]]

    return re.sub(r"\b(to |from |type )(U?)INT(8|16|32|64|128)\b(?!')", named, text)


def nearest(name: str, existing: Iterable[str]) -> str | None:
    """Return the existing name that was probably meant.

    >>> nearest("auctoin", ["auction", "bidder"])
    'auction'
    """
    candidates = {e.lower(): e for e in existing}
    found = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
    return candidates[found[0]] if found else None


def missing(what: str, name: str, existing: Iterable[str], plural: str | None = None) -> str:
    """Return the hint for a name that does not exist: the near miss, else what exists.

    >>> missing("column", "x", ["price", "bidder"])
    'existing columns: price, bidder'
    """
    existing = list(existing)
    if match := nearest(name, existing):
        return f'did you mean "{match}"?'
    plural = plural or f"{what}s"
    return f"existing {plural}: {', '.join(existing)}" if existing else f"there are no {plural} yet"
