"""Translates Java's patterns for dates and times (DateTimeFormatter), as in DATE_FORMAT, to patterns of DuckDB's strftime."""

from __future__ import annotations

import re

# Runs of one letter; DuckDB's %n (nanoseconds) is left out: a TIMESTAMP has microseconds.
_LETTERS = {
    **dict.fromkeys(("y", "yyyy", "u", "uuuu"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    "M": "%-m",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "L": "%-m",
    "LL": "%m",
    "LLL": "%b",
    "LLLL": "%B",
    "d": "%-d",
    "dd": "%d",
    "D": "%-j",
    "DDD": "%j",
    "H": "%-H",
    "HH": "%H",
    "h": "%-I",
    "hh": "%I",
    "m": "%-M",
    "mm": "%M",
    "s": "%-S",
    "ss": "%S",
    "SSS": "%g",
    "SSSSSS": "%f",
    "a": "%p",
    **dict.fromkeys(("E", "EE", "EEE"), "%a"),
    "EEEE": "%A",
}
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']|'")


class UntranslatablePattern(Exception):
    """A part of a pattern has no translation; the text of the exception is that part."""


def strftime_pattern(pattern: str) -> str:
    """Translate a Java pattern to a pattern of strftime and strptime. Raises UntranslatablePattern.

    >>> strftime_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS"), strftime_pattern("h 'o''clock' a, 100%")
    ('%Y-%m-%dT%H:%M:%S.%g', "%-I o'clock %p, 100%%")
    """
    parts = []
    for part in _PART.finditer(pattern):
        text = part[0]
        if text.startswith("'"):
            if len(text) == 1:
                raise UntranslatablePattern(text)
            # Two quotes are one, inside and outside of quotes.
            parts.append((part[1].replace("''", "'") or "'").replace("%", "%%"))
        elif part[2]:
            if text not in _LETTERS:
                raise UntranslatablePattern(text)
            parts.append(_LETTERS[text])
        elif text in "[]{}#":
            raise UntranslatablePattern(text)
        else:
            parts.append("%%" if text == "%" else text)
    return "".join(parts)
