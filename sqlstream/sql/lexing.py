"""Makes tokens of text. Raises errors that the parser would miss: unclosed quotes, and misplaced hints.

sqlglot takes a hint for a comment wherever it is (in dialects derived from DuckDB), and would drop it without an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sqlglot import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.duck.numbers import GREATEST, TOO_LARGE, is_too_large
from sqlstream.errors import ParseError, SourceText, Span, UnsupportedError
from sqlstream.sql.hints import HINT, OPTIONS, is_behind_select

# Text that can contain a quote, a comment or a semicolon. The group `block` opens a comment, which may nest.
_REGION = re.compile(
    r"""
      --[^\n]*
    | (?P<block>/\*)
    | (?<!\w)[eE]'(?:[^'\\]|\\.|'')*(?P<e>'|\Z)
    | '(?:[^']|'')*(?P<s>'|\Z)
    | "(?:[^"]|"")*(?P<d>"|\Z)
    | `(?:[^`]|``)*(?P<b>`|\Z)
    | (?<!\w)\$(?P<tag>[A-Za-z_]\w*)?\$
    """,
    re.DOTALL | re.VERBOSE,
)
_WRONG_DIGITS = re.compile(r"(?<!\w)(?:[xX]'(?![0-9a-fA-F]*')[^']*'|[bB]'(?![01]*')[^']*')")


def tokenize(source: SourceText, dialect: Dialect) -> list[Token]:
    """Return the tokens of a source, with offsets in its text. Raises ParseError, or UnsupportedError for a misplaced hint."""
    hints = [region for region in regions(source) if HINT.match(region.text)]
    # A byte order mark becomes a blank, so that offsets stay the same.
    text = re.sub("^\ufeff", " ", source.text)
    try:
        tokens = dialect.tokenize(text)
    except (SqlglotError, ValueError) as error:
        # Only digits can be wrong here: of x'..', or of b'..'.
        if wrong := _WRONG_DIGITS.search(text):
            span = Span(source, wrong.start(), wrong.end())
            raise ParseError("the string holds a character that is not a digit", span) from None
        raise ParseError("the text is not SQL", Span(source, 0, 1), detail=f"{error}.") from None
    for region in hints:
        name = _hint_name(region)
        if name != OPTIONS and not is_behind_select(region.start, tokens):
            advice = f"Write it behind SELECT: SELECT /*+ {name}(..) */ ..."
            raise UnsupportedError(f"the hint {name} here", region, hint=advice)
    for token in tokens:
        # sqlglot takes DuckDB's factorial for NOT; `x !~ y` is another operator, in two tokens.
        if token.text == "!" and text[token.end + 1 : token.end + 2] != "~" and text[token.start] == "!":
            span = Span(source, token.start, token.end + 1)
            raise UnsupportedError("the operator !", span, hint="Write factorial(x) or NOT x.")
        if token.token_type == TokenType.NUMBER and is_too_large(token.text):
            raise ParseError(TOO_LARGE, Span(source, token.start, token.end + 1), hint=GREATEST)
    return tokens


def refuse_unread(source: SourceText, read: Collection[int]) -> None:
    """Raise UnsupportedError for a hint OPTIONS at another place than the ones that were read, at the offsets `read`."""
    for region in regions(source):
        if _hint_name(region) == OPTIONS and region.start not in read:
            hint = "Write it behind the name of a table, before its alias: FROM orders /*+ OPTIONS('key' = 'value') */ AS o."
            raise UnsupportedError("the hint OPTIONS here", region, hint=hint)


def _hint_name(region: Span) -> str:
    match = HINT.match(region.text)
    return match[1].upper() if match else ""


def regions(source: SourceText) -> Iterator[Span]:
    """Yield the positions of quoted texts and comments. Raises ParseError for one that is not closed."""
    text, at = source.text, 0
    while match := _REGION.search(text, at):
        start, at = match.span()
        if match.group("block"):
            at = _comment_end(source, start)
        elif match.group().startswith("$"):
            at = _closing(source, match.group(), start, at)
        elif "" in (match["e"], match["s"], match["d"], match["b"]):
            what = "string" if match["e"] == "" or match["s"] == "" else "quoted name"
            raise ParseError(f"the {what} is not closed", Span(source, start, start + 1))
        yield Span(source, start, at)


def _comment_end(source: SourceText, start: int) -> int:
    depth = 0
    for sign in re.compile(r"/\*|\*/").finditer(source.text, start):
        depth += 1 if sign.group() == "/*" else -1
        if depth == 0:
            return sign.end()
    raise ParseError("the comment is not closed", Span(source, start, start + 2))


def _closing(source: SourceText, tag: str, start: int, after: int) -> int:
    end = source.text.find(tag, after)
    if end < 0:
        raise ParseError("the string is not closed", Span(source, start, start + len(tag)))
    return end + len(tag)
