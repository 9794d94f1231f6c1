"""Hints behind SELECT: `/*+ STATE_TTL('orders' = '1 d'), NAME('value', ..) */`, read from the comment that they stand in."""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import ParseError, Source, Span, UnsupportedError
from sqlstream.sql.spans import mark

# A line of plus signs is a decoration; `/*+` and a name is a hint.
HINT = re.compile(r"/\*\+\s*(\w+)")
_BEFORE = re.compile(r"(?:\s+|--[^\n]*\n)*")
_CALL = re.compile(r"\s*(?P<name>\w+)\s*(?P<open>\()?")
_VALUE = re.compile(r"\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<number>\d+)|(?P<word>\w+))\s*")
KNOWN = ("STATE_TTL",)
_WRITE = "Write SELECT /*+ NAME('value') */ .., or NAME('key' = 'value')."


class HintCall(exp.Expression):
    """One hint: `this` is its name in capitals, `expressions` its arguments, each an exp.Literal or an exp.EQ of two."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


def select_hints(source: Source, select: Token) -> exp.Hint | None:
    """Return the hints in the comment that follows a SELECT."""
    before = _BEFORE.match(source.text, select.end + 1)
    start = before.end() if before else select.end + 1
    if not HINT.match(source.text, start):
        return None
    reader = _HintReader(source, start + 3, source.text.index("*/", start))
    return exp.Hint(expressions=reader.calls())


def is_behind_select(start: int, tokens: list[Token]) -> bool:
    """Tell whether the last token before an offset is SELECT."""
    before = [t for t in tokens if t.end < start]
    return bool(before) and before[-1].token_type == TokenType.SELECT


class _HintReader:
    """Reads the text of one comment, from `at` up to `end`."""

    def __init__(self, source: Source, at: int, end: int):
        self.source, self.at, self.end = source, at, end

    def calls(self) -> list[HintCall]:
        found = []
        while True:
            found.append(self._call())
            rest = self.source.text[self.at : self.end]
            if not rest.strip(" \t\r\n,"):
                return found
            self.at += len(rest) - len(rest.lstrip(" \t\r\n,"))

    def _call(self) -> HintCall:
        match = _CALL.match(self.source.text, self.at, self.end)
        if match is None:
            raise self._wrong("a hint")
        start, name = match.start("name"), match["name"].upper()
        if name not in KNOWN:
            span = Span(self.source, start, match.end("name"))
            raise UnsupportedError(f"the hint {name}", span, hint=f"Leave it out; there are: {', '.join(KNOWN)}.")
        call = HintCall(this=name, expressions=[])
        self.at = match.end()
        if match["open"]:
            call.set("expressions", self._arguments())
        mark(call, start, self.at - 1)
        return call

    def _arguments(self) -> list[exp.Expr]:
        found: list[exp.Expr] = []
        while not self._take(")"):
            if found and not self._take(","):
                raise self._wrong('"," or ")"')
            value = self._value()
            found.append(exp.EQ(this=value, expression=self._value()) if self._take("=") else value)
        return found

    def _take(self, character: str) -> bool:
        while self.at < self.end and self.source.text[self.at].isspace():
            self.at += 1
        if self.at < self.end and self.source.text[self.at] == character:
            self.at += 1
            return True
        return False

    def _value(self) -> exp.Expr:
        match = _VALUE.match(self.source.text, self.at, self.end)
        if match is None:
            raise self._wrong("a value in quotes")
        literal = (
            exp.Literal.number(match["number"])
            if match["number"]
            else exp.Literal.string(match["word"] or match["text"].replace("''", "'"))
        )
        start = match.start() + len(match[0]) - len(match[0].lstrip())
        mark(literal, start, match.start() + len(match[0].rstrip()) - 1)
        self.at = match.end()
        return literal

    def _wrong(self, what: str) -> ParseError:
        return ParseError(f"expected {what} in the hint", Span(self.source, self.at, self.at + 1), hint=_WRITE)
