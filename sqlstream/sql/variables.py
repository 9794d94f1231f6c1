"""`${NAME}` and `${NAME:-default}` in a script: variables of the environment, which are replaced before the text is parsed.

`${file:PATH}` is the content of a file without its last line end: a secret, which is masked everywhere.

In a quoted string the value is a part of the string, whatever its characters. `$${NAME}` and `\\${NAME}` stand for the text
`${NAME}`; in comments nothing is replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlstream.errors import BindError, ParseError, Replacement, SourceText, Span, nearest
from sqlstream.sql.lexing import regions
from sqlstream.sql.secret_files import secret_of_file

_OPENING = re.compile(
    r"(?P<escape>[$\\])?\$\{(?P<rest>(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?)\})?"
)
# Quotes that are doubled inside of quotes of the same kind.
_QUOTES = "'\"`"


@dataclass(frozen=True, slots=True)
class _Substitution:
    start: int
    end: int
    text: str


def with_variables(source: SourceText, environment: Mapping[str, str] | None = None) -> SourceText:
    """Return the source with its variables replaced; positions still refer to the text as written.

    Raises BindError for a variable that is not set and has no default, ParseError for one that is not well-formed.
    """
    if "${" not in source.text:
        return source
    substitutions = list(_substitutions(source, os.environ if environment is None else environment))
    parts: list[str] = []
    replacements: list[Replacement] = []
    length = at = 0
    for one in substitutions:
        parts += [source.text[at : one.start], one.text]
        length += one.start - at
        replacements.append(Replacement(length, length + len(one.text), one.start, one.end))
        length += len(one.text)
        at = one.end
    return SourceText(source.name, "".join([*parts, source.text[at:]]), source.text, tuple(replacements))


def variables_in(source: SourceText) -> list[Span]:
    """Return the positions of variables in a text, of the environment or of files; they are not evaluated."""
    return [Span(source, *match.span()) for match, _ in _written(source) if match["rest"] and not match["escape"]]


def _written(source: SourceText) -> Iterable[tuple[re.Match[str], str]]:
    """Yield (match, quote character around it or "") of each text outside of comments that begins like a variable."""
    quoted = list(regions(source))
    for match in _OPENING.finditer(source.text):
        region = next((r for r in quoted if r.start <= match.start() < r.end), None)
        if region is None or not region.text.startswith(("--", "/*")):
            yield match, region.text[:1] if region else ""


def _substitutions(source: SourceText, environment: Mapping[str, str]) -> Iterable[_Substitution]:
    for match, kind in _written(source):
        start, end = match.span()
        if match["escape"]:
            if match["rest"]:
                yield _Substitution(start, end, match.group()[1:])
            continue
        span = Span(source, start, end)
        if not match["rest"]:
            hint = "Write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for the text itself."
            raise ParseError("this is not a variable of the environment", span, hint=hint)
        if match["file"] is not None:
            text = secret_of_file(match["file"], span)
            yield _Substitution(start, end, text.replace(kind, kind * 2) if kind in _QUOTES and kind else text)
            continue
        value = environment.get(match["name"], match["default"])
        if value is None:
            near = nearest(match["name"], environment)
            hint = f'did you mean "{near}"?' if near else f"Set it, or write a default: ${{{match['name']}:-..}}."
            raise BindError(f'the environment variable "{match["name"]}" is not set', span, hint=hint)
        if match["name"] in environment and kind in _QUOTES and kind:
            value = value.replace(kind, kind * 2)
        yield _Substitution(start, end, value)
