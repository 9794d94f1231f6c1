"""Splits entries: into statements, which end with a semicolon, and commands, which are lines with a backslash in front."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlstream.errors import SourceText, Span
from sqlstream.sql.cutting import cut

_COMMAND = re.compile(r"^[ \t]*\\(?P<name>[^\s;]*)[ \t]*(?P<rest>[^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """`\\name rest`: a line for the shell itself. The rest has no semicolon at its end."""

    name: str
    rest: Span
    span: Span


def parts(source: SourceText) -> Iterator[Span | Command]:
    """Yield the statements and commands of a text; the last statement needs no semicolon.

    A line that begins with a backslash is a command only between statements.

    >>> text = "SELECT 1;\\n\\\\timing\\nSELECT '\\n\\\\d';"
    >>> [part.name if isinstance(part, Command) else part.text for part in parts(SourceText("shell", text))]
    ['SELECT 1', 'timing', "SELECT '\\n\\\\d'"]
    """
    at = 0
    for match in _COMMAND.finditer(source.text):
        before = cut(_only(source, at, match.start()))
        if before.is_blank:
            yield from (_in(source, statement) for statement in before.statements)
            at = match.end()
            rest = match["rest"].rstrip().removesuffix(";").rstrip()
            start = match.start("rest")
            yield Command(match["name"], Span(source, start, start + len(rest)), Span(source, *match.span()))
    last = cut(_only(source, at, len(source.text)))
    yield from (_in(source, statement) for statement in last.statements)
    if not last.is_blank:
        text = last.rest.text
        yield Span(source, last.rest.start + len(text) - len(text.lstrip()), len(source.text.rstrip()))


def is_whole(text: str) -> bool:
    """Return whether an entry is complete: it is a command, or a semicolon ends its last statement."""
    return text.lstrip().startswith("\\") or cut(SourceText("shell", text)).is_blank


def alone(span: Span) -> SourceText:
    """Return the source of one statement: blanks replace the text around it, but errors show the written text."""
    return replace(_only(span.source, span.start, span.end), written=span.source.text)


def _only(source: SourceText, start: int, end: int) -> SourceText:
    return SourceText(source.name, re.sub(r"[^\n]", " ", source.text[:start]) + source.text[start:end])


def _in(source: SourceText, span: Span) -> Span:
    return Span(source, span.start, span.end)
