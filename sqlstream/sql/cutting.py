"""Cuts a text into statements before anything is parsed, for callers that run one after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlstream.errors import ParseError, SourceText, Span
from sqlstream.sql.lexing import regions

_SET_BEGINS = re.compile(r"(EXECUTE\s+STATEMENT\s+SET\s+BEGIN|BEGIN\s+STATEMENT\s+SET)\b", re.IGNORECASE)
_SET_ENDS = re.compile(r"END\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CutText:
    """The statements of a text that end with a semicolon, without it; `rest` is the text behind the last one.

    A statement set is one statement. `is_blank`: the rest has only space and comments.
    """

    statements: tuple[Span, ...]
    rest: Span
    is_blank: bool


def cut(source: SourceText) -> CutText:
    """Cut a text at the semicolons that end statements.

    A quote or a comment that is not closed is part of the rest.

    >>> pieces = cut(SourceText("shell", "SELECT ';'; -- done;\\nSELECT 2"))
    >>> [piece.text for piece in pieces.statements], pieces.rest.text
    (["SELECT ';'"], ' -- done;\\nSELECT 2')
    """
    code = _code(source)
    statements: list[Span] = []
    start = at = 0
    in_set = False
    while (end := code.find(";", at)) >= 0:
        text = code[at:end].strip()
        if not in_set and _SET_BEGINS.match(text):
            in_set = True
        elif in_set and _SET_ENDS.fullmatch(text):
            in_set = False
        if not in_set:
            if code[start:end].strip():
                statements.append(_stripped(source, code, start, end))
            start = end + 1
        at = end + 1
    return CutText(tuple(statements), Span(source, start, len(source.text)), not code[start:].strip())


def _code(source: SourceText) -> str:
    """Return the text, of the same length, with comments replaced by blanks and quoted text by other characters."""
    parts: list[str] = []
    at = 0
    try:
        for region in regions(source):
            parts += [source.text[at : region.start], _hidden(region.text)]
            at = region.end
    except ParseError as error:
        # A quote or a comment is not closed.
        opening = error.span.start if error.span is not None else at
        return "".join([*parts, source.text[at:opening], "x" * (len(source.text) - opening)])
    return "".join([*parts, source.text[at:]])


def _hidden(text: str) -> str:
    return (" " if text.startswith(("--", "/*")) else "x") * len(text)


def _stripped(source: SourceText, code: str, start: int, end: int) -> Span:
    text = code[start:end]
    return Span(source, start + len(text) - len(text.lstrip()), start + len(text.rstrip()))
