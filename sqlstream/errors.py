"""Errors for people: a kind, a position in the text, carets under it, a hint.

Every error that a user can cause is a `SqlStreamError`. Its message is a short lower-case phrase; detail and hint are
full sentences.
"""

from __future__ import annotations

import difflib
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import IO, NamedTuple

from sqlstream.secrets import MASK, hidden, masked, secret_spans

# How much of a line of SQL is shown if the width of the terminal is unknown.
LINE_WIDTH = 120


class Replacement(NamedTuple):
    """A replaced variable: characters start..end of a source's text replaced written_start..written_end of the written text."""

    start: int
    end: int
    written_start: int
    written_end: int


@dataclass(frozen=True, slots=True)
class SourceText:
    """A named text: a file, or SQL from the command line or from Python.

    If variables were replaced, `written` is the text before the replacement. Positions shown to people refer to `written`.
    """

    name: str
    text: str
    written: str | None = None
    replacements: tuple[Replacement, ...] = ()

    def as_written(self, start: int, end: int) -> tuple[int, int]:
        """Map a range of the text to (start, end) in the written text.

        A position inside of a replacement maps to the start or the end of the text that was replaced.
        """
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
    def secrets(self) -> list[tuple[int, int]]:
        """(start, end) of each secret in the text as written."""
        return secret_spans(self._shown)

    def without_secrets(self) -> SourceText:
        """Return the source with stars in place of its secrets; places in it stay the same."""
        written = None if self.written is None else hidden(self.written)
        return SourceText(self.name, hidden(self.text), written, self.replacements)

    @property
    def _shown(self) -> str:
        return self.text if self.written is None else self.written

    def line(self, number: int) -> str:
        """Return the 1-based line of the text as written; an empty string past the end."""
        lines = self._shown.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters start..end (end exclusive) of a source."""

    source: SourceText
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def written(self) -> str:
        """The text as written, with stars in place of secrets."""
        source = self.source.without_secrets()
        start, end = source.as_written(self.start, self.end)
        return (source.text if source.written is None else source.written)[start:end]

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


class SqlStreamError(Exception):
    """An error whose cause is the user's: text, data, options, or the state of the warehouse."""

    kind = "error"
    exit_code = 2

    def __init__(self, message: str, span: Span | None = None, *, detail: str | None = None, hint: str | None = None):
        message = masked(message)
        super().__init__(message)
        self.message = message
        self.span = span
        self.detail = masked(detail) if detail else detail
        self.hint = masked(hint) if hint else hint

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.span, self.detail, self.hint)

    def __str__(self) -> str:
        return self.render()

    def render(self, width: int | None = None) -> str:
        """Return the error as text for people, with the source line and carets if the position is known.

        With a width in columns, lines wrap between words. Without one, each sentence is one line, and only long lists wrap.
        """
        lines = wrapped(f"{self.kind}: {self.message}", width)
        if self.span is not None:
            lines += caret_lines(self.span, width or LINE_WIDTH)
        if self.detail:
            lines += [part for line in self.detail.split("\n") for part in wrapped(line, width)]
        if self.hint:
            # A long list of names is no sentence.
            is_list = self.hint.startswith("existing ") and len(self.hint) > 2 * LINE_WIDTH
            lines += wrapped(f"hint: {self.hint}", width or (LINE_WIDTH if is_list else None))
        # A secret may have become known after the error was made.
        return masked("\n".join(lines))

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and Jupyter show: the error without the frames of sqlstream."""
        return self.render().split("\n")


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
    """A query whose state grows as long as its input continues: a warning, or an error if the user asks for that."""

    kind = "warning"


class StatementWarning(SqlStreamError):
    """A warning about a statement of which a part has no effect."""

    kind = "warning"


class UsageError(SqlStreamError):
    """An argument, an option or the environment is wrong."""


class OtherVersionError(UsageError):
    """The files of a job have a format, of another version of sqlstream, that this version cannot read."""


class NotWritableError(UsageError):
    """A folder or a file cannot be written: the user of this process lacks the permission, or the file system is read-only."""


class JobError(SqlStreamError):
    """A job failed while it ran. `log_file` is where Spark logged more about it."""

    kind = "job failed"
    exit_code = 1
    log_file: str | None = None

    def render(self, width: int | None = None) -> str:
        return "\n".join([super().render(width), *([f"log: {self.log_file}"] if self.log_file else [])])


class DataError(JobError):
    """A row or a file cannot be read, or not be written, as declared."""


class OutageError(JobError):
    """Something that a job needs, such as a server, is unavailable: the job may continue when it is back."""


class UserCodeError(JobError):
    """The user's code raised an error or returned something invalid: a function, a source, a sink or a lookup."""


class DamageError(JobError):
    """A file of the warehouse is missing, or its content has changed.

    A `torn` file is empty, cut off or missing, as a power cut leaves files that were written shortly before.
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


class plainly:
    """Raises a SqlStreamError without the stack frames inside of sqlstream, as its message tells a Python program enough.

    A context manager. It is a class because a generator would stay among the frames.
    """

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SqlStreamError):
            raise error.with_traceback(None) from None


def terminal_width(stream: IO[str]) -> int | None:
    """Return the number of columns of the terminal behind a stream; None if it is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, width: int | None) -> list[str]:
    """Return a line as lines of at most `width` columns, wrapped between words and indented below a label such as `hint: `.

    >>> wrapped("hint: did you mean something else?", 24)
    ['hint: did you mean', '      something else?']
    """
    if width is None or len(text) <= width:
        return [text]
    label = _LABEL.match(text)
    indent = " " * (label.end() if label else 0)
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_LABEL = re.compile(r"hint: |error: |warning: ")


def caret_lines(span: Span, width: int = LINE_WIDTH) -> list[str]:
    """Return lines that show the position of a span: a pointer, the source line, carets (on the first line of a longer span).

    If the source line is longer than the width, only the part around the carets is shown.
    """
    line, column = span.source.position(span.start)
    text = span.source.line(line)
    start, end = span.source.as_written(span.start, span.end)
    first, last = column - 1, max(column, min(column - 1 + end - start, len(text)))
    begins = start - first
    text, first, last = _without_secrets(text, first, last, [(a - begins, b - begins) for a, b in span.source.secrets])
    gutter = " " * len(str(line))
    text, first, last = _excerpt(text, first, last, max(width - len(gutter) - 4, 20))
    # A tab moves the caret as far as it moves the text.
    pad = "".join("\t" if c == "\t" else " " for c in text[:first]).ljust(first)
    return [
        f"{gutter} --> {span}",
        f"{gutter}  |",
        f" {line} | {text}",
        f"{gutter}  | {pad}{'^' * (last - first)}",
    ]


def _without_secrets(text: str, first: int, last: int, secrets: Iterable[tuple[int, int]]) -> tuple[str, int, int]:
    """Return a line with MASK in place of its secrets, and the new positions of its characters `first` and `last`.

    >>> _without_secrets("'password' = 'hunter2', x", 24, 25, [(14, 21)])
    ("'password' = '******', x", 23, 24)
    """
    for a, b in reversed([(max(a, 0), min(b, len(text))) for a, b in secrets if a < len(text) and b > 0]):
        text, wider = text[:a] + MASK + text[b:], len(MASK) - (b - a)
        first = first + wider if first >= b else min(first, a)
        if last > a:
            last = last + wider if last >= b else a + len(MASK)
    return text, first, last


def _excerpt(text: str, first: int, last: int, room: int) -> tuple[str, int, int]:
    """Return `room` characters of a line that contain those from `first` to `last`, and the positions of these in them.

    >>> _excerpt("SELECT a, b, c, nothing FROM somewhere", 16, 23, 24)
    ('..., c, nothing FROM ...', 8, 15)
    """
    if len(text) <= room:
        return text, first, last
    # The marked part is shown whole, with some text before it.
    cut = 0 if last <= room - 3 else min(max(first - room // 3, last - room + 3), first - 3)
    cut = max(0, min(cut, len(text) - room))
    shown = text[cut : cut + room]
    if cut:
        shown = "..." + shown[3:]
    if cut + room < len(text):
        shown = shown[:-3] + "..."
    return shown, first - cut, min(last - cut, room)


_WIDTHS = {"8": "TINYINT", "16": "SMALLINT", "32": "INTEGER", "64": "BIGINT", "128": "HUGEINT"}


def sql_types(text: str) -> str:
    """Return a message of DuckDB's with its types under their SQL names.

    >>> sql_types("Could not convert string 'INT32' to INT32")
    "Could not convert string 'INT32' to INTEGER"
    """

    def named(match: re.Match[str]) -> str:
        return match[1] + match[2] + _WIDTHS[match[3]]

    return re.sub(r"\b(to |from |type )(U?)INT(8|16|32|64|128)\b(?!')", named, text)


def nearest(name: str, existing: Iterable[str]) -> str | None:
    """Return the existing name that was probably meant; None if no name is similar.

    >>> nearest("auctoin", ["auction", "bidder"]), nearest("job", ["sqlstream.jobs"])
    ('auction', 'sqlstream.jobs')
    """
    return next(iter(_near(name, existing, 1, 0.6)), None)


def _near(name: str, existing: Iterable[str], count: int, cutoff: float) -> list[str]:
    # `jobs` may stand for `sqlstream.jobs`.
    candidates = {e.lower().rpartition(".")[2]: e for e in existing} if "." not in name else {}
    candidates |= {e.lower(): e for e in existing}
    return [candidates[match] for match in difflib.get_close_matches(name.lower(), candidates, n=count, cutoff=cutoff)]


# A hint lists at most this many existing names; it lists all options, connectors, formats and keys, as a list to choose from.
_NAMED = 8
_CHOICES = ("option", "connector", "format", "key")


def missing(what: str, name: str, existing: Iterable[str], plural: str | None = None) -> str:
    """Return the hint for a name that does not exist: a near miss, else the existing names, or the nearest if there are many.

    >>> missing("column", "x", ["price", "bidder"])
    'existing columns: price, bidder'
    >>> missing("column", "b13", [f"a{n}" for n in range(10)])
    'existing columns: a0, a1, a2, a3, a4, a5, a6, a7 and 2 more'
    """
    existing = list(existing)
    if match := nearest(name, existing):
        return f'did you mean "{match}"?'
    plural = plural or f"{what}s"
    if not existing:
        return f"there are no {plural} yet"
    if len(existing) <= _NAMED or what in _CHOICES:
        return f"existing {plural}: {', '.join(existing)}"
    chosen = set(list(dict.fromkeys([*_near(name, existing, _NAMED, 0.1), *existing]))[:_NAMED])
    return f"existing {plural}: {', '.join(e for e in existing if e in chosen)} and {len(existing) - len(chosen)} more"
