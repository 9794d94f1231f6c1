"""The base of the parser: required tokens, and errors at the position where one is missing."""

from __future__ import annotations

import re
from pathlib import Path

import sqlglot.errors
import sqlglot.parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import ParseError, SourceText, Span, StatementWarning, UnsupportedError, UsageError


def check_interpreted(parser: str) -> None:
    """Raise UsageError if sqlglot's parser, the file `parser`, is compiled: our parser cannot be a subclass of it.

    Another program in the same environment may have installed it, by sqlglot's extra `c`.
    """
    if Path(parser).suffix != ".py":
        message = "sqlglot is installed in its compiled form, package sqlglotc, which sqlstream cannot extend"
        raise UsageError(message, hint="Remove it: pip uninstall sqlglotc. sqlglot works without it, too.")


check_interpreted(sqlglot.parser.__file__)


class Failure(sqlglot.errors.ParseError):
    """Wraps our ParseError in an error of sqlglot's, so that sqlglot catches it and tries another way to read the text."""

    def __init__(self, error: ParseError):
        super().__init__(error.message)
        self.error = error

    @property
    def start(self) -> int:
        """The offset of the error in the source; 0 if it has no position."""
        return self.error.span.start if self.error.span else 0


# sqlglot's messages, and what it expected.
_EXPECTED = (
    (re.compile(r"Required keyword: '\w+' missing for"), "an expression"),
    (re.compile(r"Expect(?:ed|ing) ([()\[\]{}>])$"), '"{0}"'),
    (re.compile(r"Expected (AS|END|ON|BY)\b"), "{0}"),
    (re.compile(r"Expected FROM or comma"), "FROM"),
    (re.compile(r"Expected (?:TYPE|type)"), "a type"),
    (re.compile(r"Expected table name"), "a table"),
    (re.compile(r"Expected CTE"), "a name"),
    (re.compile(r"Failed to parse any statement following CTE"), "a query"),
)


def expectation(message: str) -> str | None:
    """Return what sqlglot expected, in our words; None if its message does not say.

    >>> expectation("Expecting )"), expectation("Cannot specify both ALL and DISTINCT after SELECT")
    ('")"', None)
    """
    for pattern, words in _EXPECTED:
        if match := pattern.match(message):
            return words.format(*match.groups())
    return None


class Reader(DuckDBParser):
    """sqlglot's parser for DuckDB, with our errors, which have a position.

    Methods that end an attempt return the error, for the caller to raise.
    """

    source = SourceText("sql", "")
    furthest: Failure | None = None
    # The offsets of the hints OPTIONS that were read.
    hints_read: set[int]
    # Notices about what was read and has no effect.
    notices: list[StatementWarning]

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise Failure at a token (default: the current one) for one of sqlglot's messages."""
        if token and not message.startswith("Expected"):
            raise self._wrong(in_lower_case(message).replace("'", '"'), self._token_span(token))
        raise self._expected(expectation(message))

    def _expected(self, what: str | None, hint: str | None = None) -> Failure:
        """Return the error `expected <what>, found <the current token>`; without `what`, `unexpected <the current token>`."""
        if self._curr:
            span = self._token_span(self._curr)
            actual = f'"{_shorten(span.text)}"'
        else:
            end = self._prev.end + 1 if self._prev else 0
            span, actual = Span(self.source, end, end), "the end of the statement"
        message = f"expected {what}, found {actual}" if what else f"unexpected {actual.removeprefix('the ')}"
        return self._wrong(message, span, hint)

    def _wrong(self, message: str, span: Span, hint: str | None = None) -> Failure:
        failure = Failure(ParseError(message, span, hint=hint))
        # sqlglot drops an error when it tries another way; the error that came furthest describes best what is wrong.
        if self.furthest is None or failure.start > self.furthest.start:
            self.furthest = failure
        return failure

    def _refused(self, what: str, span: Span, hint: str | None = None) -> UnsupportedError:
        """Return the error for valid SQL that we do not run; no other way to read it is tried."""
        return UnsupportedError(what, span, hint=hint)

    def _notice(self, what: str, why: str, span: Span) -> None:
        """Add a notice about words without an effect, once for the position, which may be read several times."""
        notice = StatementWarning(f"{what} has no effect: {why}", span)
        if all((other.message, other.span) != (notice.message, notice.span) for other in self.notices):
            self.notices.append(notice)

    def _token_span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end + 1)

    def _span_from(self, token: Token) -> Span:
        """Return the span from a token to the last one that was read."""
        return Span(self.source, token.start, self._prev.end + 1)

    def _need(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            raise self._expected(" ".join(words))

    def _need_token(self, token_type: TokenType, what: str) -> Token:
        if not self._match(token_type):
            raise self._expected(what)
        return self._prev


def in_lower_case(message: str) -> str:
    """Return a message of other software with a lower-case first letter, as ours have.

    >>> in_lower_case("Chained comparisons"), in_lower_case("DISTINCT needs")
    ('chained comparisons', 'DISTINCT needs')
    """
    return message if message[:2].isupper() else message[:1].lower() + message[1:]


def _shorten(text: str) -> str:
    return text if len(text) <= 30 and "\n" not in text else text[:27].split("\n")[0] + "..."
