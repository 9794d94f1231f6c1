"""Checks with DuckDB's grammar what sqlglot has read.

sqlglot is lenient: it skips words that it does not understand, and does not notice missing words. So DuckDB parses the same text
again. Flink's own syntax is painted over first, character by character, so that every offset stays the same.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence

import duckdb
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import ParseError, SourceText, Span
from sqlstream.sql.process_calls import ProcessCall, TableArgumentSQL
from sqlstream.sql.required_tokens import in_lower_case
from sqlstream.sql.spans import own_span, span_of
from sqlstream.sql.windows import WindowTVF

_lock = threading.Lock()


def check(
    source: SourceText, span: Span, tokens: Iterable[Token], node: exp.Expr, beyond: Mapping[int, tuple[int, str]]
) -> None:
    """Raise ParseError if DuckDB rejects a query or an expression, which was read from these tokens.

    `beyond` has texts that only our parser understands: it maps their first offset to (the offset behind them, the text that
    DuckDB reads instead).
    """
    canvas = _Canvas(span)
    tokens = list(tokens)
    for token in tokens:
        if source.text[token.start] == "`":
            canvas.paint(token.start, token.end + 1, f'"{"x" * (token.end - token.start - 1)}"')
        elif token.token_type == TokenType.UNICODE_STRING:
            canvas.paint(token.start, token.start + 2, "")
    # The time of a version is part of what is painted over.
    for part in node.walk(prune=lambda n: isinstance(n, exp.Version)):
        _paint_node(canvas, part)
        if isinstance(part, exp.Subquery) and isinstance(table := part.unnest(), exp.Table | WindowTVF | ProcessCall):
            _paint_parentheses(canvas, tokens, table)
    for start, (end, replacement) in beyond.items():
        if span.start <= start < span.end:
            canvas.paint(start, end, replacement)
    prefix = "" if isinstance(node, exp.Query) else "SELECT "
    text = prefix + "".join(canvas.characters)
    if error := _syntax_error(text):
        message, start, length = error
        if length == 0:
            raise ParseError(message, span)
        start += span.start - len(prefix)
        wrong = Span(source, start, start + length)
        # Most messages are "syntax error at or near".
        message = message if message.startswith("VALUES") else f'unexpected "{wrong.text}"'
        raise ParseError(message, wrong, hint=_hint(text, wrong, _names(tokens, node, wrong), span.start - len(prefix)))


def _names(tokens: Sequence[Token], node: exp.Expr, wrong: Span) -> list[Token]:
    """Return the tokens, of the last two before an error, that sqlglot has read as names.

    It takes most words behind a table or a value for an alias: GROUP in `FROM t GROUP x`.
    """
    identifiers = [
        part for part in node.find_all(exp.Identifier) if not isinstance(part.parent, exp.Alias | exp.TableAlias)
    ]
    names = {span[0] for part in identifiers if (span := own_span(part))}
    return [token for token in [t for t in tokens if t.end < wrong.end][-2:] if token.start in names]


def _hint(text: str, wrong: Span, names: Sequence[Token], offset: int) -> str | None:
    """Return a hint if one of `names` is a reserved word: with another name in its place, DuckDB reads beyond the error."""
    for name in names:
        start, end = name.start - offset, name.end + 1 - offset
        error = _syntax_error(f"{text[:start]}{'x' * (end - start)}{text[end:]}")
        if error is None or error[1] > wrong.start - offset:
            return f'"{name.text}" is a reserved word here: write it in quotes.'
    return None


class _Canvas:
    """A copy of a part of a source, in which text can be replaced without moving other text. Offsets are the source's."""

    def __init__(self, span: Span):
        # DuckDB counts bytes; outside strings and names there is nothing but ASCII.
        self.characters = list(re.sub(r"[^\x00-\x7f]", "x", span.text))
        self.span = span

    def paint(self, start: int, end: int, text: str) -> None:
        offset = self.span.start
        self.characters[start - offset : end - offset] = text.ljust(end - start)

    def shows(self, span: int, character: str) -> bool:
        """Return whether a character of the source is this one and is not painted over."""
        return self.characters[span - self.span.start] == character


def _paint_node(canvas: _Canvas, node: exp.Expr) -> None:
    span = own_span(node)
    if not span:
        return
    start, end = span[0], span[1] + 1
    match node:
        case exp.DataType() if end - start >= len("INT"):
            canvas.paint(start, end, "INT")
        case exp.ToMap():
            # Flink's MAP['a', 1] is a list to DuckDB's grammar.
            if flink := re.compile(r"map(?=\s*\[)", re.IGNORECASE).match(canvas.span.source.text, start):
                canvas.paint(*flink.span(), "")
        case exp.Version():
            canvas.paint(start, end, "")
        case WindowTVF():
            # Only the table of the call is left.
            call_end: int = node.args["end"]
            table = span_of(node.this, canvas.span.source)
            canvas.paint(start, table.start, "")
            canvas.paint(table.end, call_end, "")
        case ProcessCall():
            # TABLE( ) around it goes, and its arguments stay.
            if inner := node.args.get("inner"):
                canvas.paint(start, inner[0], "")
                canvas.paint(inner[1], inner[2], "")
        case TableArgumentSQL():
            table = span_of(node.this, canvas.span.source)
            canvas.paint(start, table.start, "")
            canvas.paint(table.end, node.args["end"], "")


def _paint_parentheses(canvas: _Canvas, tokens: Sequence[Token], table: exp.Expr) -> None:
    """Paint over the innermost parentheses around a table or a call in its place: DuckDB 2.0.1 rejects them there."""
    if table.args.get("joins"):
        return
    within = span_of(table, canvas.span.source)
    end = max([within.end, *(ends for node in table.walk() if isinstance(ends := node.args.get("end"), int))])
    opening = [t for t in tokens if t.end < within.start and canvas.shows(t.start, "(")]
    closing = [t for t in tokens if t.start >= end and canvas.shows(t.start, ")")]
    if opening and closing:
        canvas.paint(opening[-1].start, opening[-1].end + 1, "")
        canvas.paint(closing[0].start, closing[0].end + 1, "")


def _syntax_error(text: str) -> tuple[str, int, int] | None:
    """Return DuckDB's error for a text, its offset and length (0 if unknown); None if there is no error."""
    with _lock:
        try:
            _duckdb().extract_statements(text)
        except duckdb.Error as error:
            report = json.loads(str(error).partition(": ")[2])
        else:
            return None
    start, length = json.loads(report.get("location", "[0, 0]"))
    return in_lower_case(str(report["exception_message"])), start, length


@functools.cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1, "errors_as_json": True})
