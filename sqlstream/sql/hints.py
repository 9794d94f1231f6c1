"""Hints, read from comments.

Behind SELECT: `/*+ STATE_TTL('orders' = '1 d'), NAME('value', ..) */`; behind the name of a table:
`/*+ OPTIONS('key' = 'value') */`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import ParseError, SourceText, Span, UnsupportedError, nearest
from sqlstream.sql.spans import add_span, span_of

# A line of plus signs is a decoration; `/*+` and a name is a hint.
HINT = re.compile(r"/\*\+\s*(\w+)")
_BEFORE = re.compile(r"(?:\s+|--[^\n]*\n)*")
_CALL = re.compile(r"\s*(?P<name>\w+)\s*(?P<open>\()?")
_VALUE = re.compile(r"\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<number>\d+)|(?P<word>\w+))\s*")
# The only hint that follows the name of a table.
OPTIONS = "OPTIONS"
KNOWN = ("STATE_TTL", "ALLOWED_LATENESS", "LATE_ROWS", "EARLY_FIRE", "UID")
# Hints of Flink about how rows of a join travel, which change no result.
JOIN_HINTS = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN")
_WRITE_OPTIONS = "Write FROM orders /*+ OPTIONS('source.monitor-interval' = '1 s') */ AS o."
_WRITE = "Write SELECT /*+ NAME('value') */ .., or NAME('key' = 'value')."


class HintCall(exp.Expression):
    """One hint: `this` is its name in capitals, `expressions` its arguments, each an exp.Literal or an exp.EQ of two."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


@dataclass(frozen=True, slots=True)
class OptionsHint:
    """The hint OPTIONS behind the name of a table, as (option, value) pairs; `start` is the offset of its comment."""

    options: tuple[tuple[str, str], ...]
    span: Span = field(compare=False, repr=False)
    start: int = field(compare=False, repr=False)


def select_hints(source: SourceText, select: Token) -> exp.Hint | None:
    """Return the hints in the comment behind a SELECT, None if there are none. Raises ParseError or UnsupportedError."""
    before = _BEFORE.match(source.text, select.end + 1)
    start = before.end() if before else select.end + 1
    if not HINT.match(source.text, start):
        return None
    reader = _HintReader(source, start + 3, source.text.index("*/", start))
    return exp.Hint(expressions=reader.calls())


def table_options(source: SourceText, name: Token) -> OptionsHint | None:
    """Return the hint OPTIONS in the comment behind a table's name, None without it. Raises ParseError, UnsupportedError."""
    before = _BEFORE.match(source.text, name.end + 1)
    start = before.end() if before else name.end + 1
    match = HINT.match(source.text, start)
    if match is None or match[1].upper() != OPTIONS:
        return None
    reader = _HintReader(source, start + 3, source.text.index("*/", start), (OPTIONS,))
    [call, *more] = reader.calls()
    for other in more:
        raise ParseError("the hint OPTIONS is given twice", span_of(other, source))
    for argument in call.expressions:
        if not isinstance(argument, exp.EQ):
            raise ParseError("expected an option and its value", span_of(argument, source), hint=_WRITE_OPTIONS)
    if not call.expressions:
        raise ParseError("the hint OPTIONS without an option", span_of(call, source), hint=_WRITE_OPTIONS)
    options = tuple((argument.this.name, argument.expression.name) for argument in call.expressions)
    return OptionsHint(options, span_of(call, source), start)


def is_behind_select(start: int, tokens: list[Token]) -> bool:
    """Return whether the last token before an offset is SELECT."""
    before = [t for t in tokens if t.end < start]
    return bool(before) and before[-1].token_type == TokenType.SELECT


class _HintReader:
    """Reads the text of one comment, from `at` up to `end`; `names` are the hints that can be there."""

    def __init__(self, source: SourceText, at: int, end: int, names: Sequence[str] = (*KNOWN, *JOIN_HINTS)):
        self.source, self.at, self.end, self.names = source, at, end, names

    def calls(self) -> list[HintCall]:
        hints = []
        while True:
            hints.append(self._call())
            rest = self.source.text[self.at : self.end]
            if not rest.strip(" \t\r\n,"):
                return hints
            self.at += len(rest) - len(rest.lstrip(" \t\r\n,"))

    def _call(self) -> HintCall:
        match = _CALL.match(self.source.text, self.at, self.end)
        if match is None:
            raise self._wrong("a hint")
        start, name = match.start("name"), match["name"].upper()
        if name not in self.names:
            span = Span(self.source, start, match.end("name"))
            if OPTIONS in (name, *self.names):
                raise UnsupportedError(f"the hint {name} here", span, hint=_WRITE_OPTIONS if name == OPTIONS else None)
            near = nearest(name, KNOWN)
            advice = f"Leave it out; there are: {', '.join(KNOWN)}."
            raise UnsupportedError(f"the hint {name}", span, hint=f"did you mean {near}?" if near else advice)
        call = HintCall(this=name, expressions=[])
        self.at = match.end()
        if match["open"]:
            call.set("expressions", self._arguments())
        add_span(call, start, self.at - 1)
        return call

    def _arguments(self) -> list[exp.Expr]:
        arguments: list[exp.Expr] = []
        while not self._take(")"):
            if arguments and not self._take(","):
                raise self._wrong('"," or ")"')
            value = self._value()
            arguments.append(exp.EQ(this=value, expression=self._value()) if self._take("=") else value)
        return arguments

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
        add_span(literal, start, match.start() + len(match[0].rstrip()) - 1)
        self.at = match.end()
        return literal

    def _wrong(self, what: str) -> ParseError:
        return ParseError(f"expected {what} in the hint", Span(self.source, self.at, self.at + 1), hint=_WRITE)
