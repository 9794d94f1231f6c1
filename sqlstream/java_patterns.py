"""Translates Java's patterns for dates and times (DateTimeFormatter), as in DATE_FORMAT, to patterns of DuckDB's strftime."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sqlstream.duck.sql import quote_text

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
# Of ISO's weeks, which begin on Monday; a number of a week without zeros is computed.
_OF_WEEKS = {**dict.fromkeys(("Y", "YYYY"), "%G"), "ww": "%V"}
_WEEK = "w"
# The zones that a pattern can have: what they are at UTC, and in texts.
_OFFSET, _SHORT, _COLON = r"[+-][0-9]{4}", r"[+-][0-9]{2}(?:[0-9]{2})?", r"[+-][0-9]{2}:[0-9]{2}"
_ZONES = {
    **dict.fromkeys(("Z", "ZZ", "ZZZ"), ("+0000", _OFFSET)),
    **dict.fromkeys(("XXX", "ZZZZZ"), ("Z", f"(?:Z|{_COLON})")),
    "XX": ("Z", f"(?:Z|{_OFFSET})"),
    "X": ("Z", f"(?:Z|{_SHORT})"),
    "xxx": ("+00:00", _COLON),
    "xx": ("+0000", _OFFSET),
    "x": ("+00", _SHORT),
    **dict.fromkeys(("z", "zz", "zzz", "VV"), ("UTC", r"[A-Za-z][A-Za-z0-9_/+-]*")),
}
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']|'")


class UntranslatablePattern(Exception):
    """A part of a pattern has no translation; the text of the exception is that part."""


class PatternPart(NamedTuple):
    """A run of one letter, or a text between such runs."""

    text: str
    is_letters: bool

    @property
    def is_zone(self) -> bool:
        return self.is_letters and self.text in _ZONES


def strftime_pattern(pattern: str) -> str:
    """Translate a Java pattern to a pattern of strftime for a time at UTC. Raises UntranslatablePattern.

    >>> strftime_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS"), strftime_pattern("h 'o''clock' a, 100%")
    ('%Y-%m-%dT%H:%M:%S.%g', "%-I o'clock %p, 100%%")
    >>> strftime_pattern("YYYY-'W'ww"), strftime_pattern("HH:mmXXX Z z")
    ('%G-W%V', '%H:%MZ +0000 UTC')
    """
    return "".join(_ZONES[part.text][0] if part.is_zone else _format(part) for part in _parts(pattern))


def formatted(pattern: str, local: str, instant: str | None) -> str:
    """Return the SQL of a time as text, by a Java pattern: `local` is the time as a TIMESTAMP, `instant` as a TIMESTAMP_LTZ.

    Without an `instant` the time is one at UTC. Raises UntranslatablePattern.
    """
    pieces, literal = [], ""
    for part in _parts(pattern):
        computed = _computed(part, local, instant)
        if computed is None:
            literal += _ZONES[part.text][0] if part.is_zone else _format(part)
            continue
        pieces += [_strftime(local, literal)] if literal else []
        pieces.append(computed)
        literal = ""
    pieces += [_strftime(local, literal)] if literal or not pieces else []
    return f"({' || '.join(pieces)})" if len(pieces) > 1 else pieces[0]


def parsed(text: str, pattern: str) -> str:
    """Return the SQL of the TIMESTAMP that a text has by a Java pattern, NULL if it is none. As in Flink its zone is skipped.

    Raises UntranslatablePattern.
    """
    parts = list(_parts(pattern))
    zones = [index for index, part in enumerate(parts) if part.is_zone]
    plain = "".join(_parse(part) for part in parts if not part.is_zone)
    if zones:
        before, after = parts[: zones[0]], parts[zones[-1] + 1 :]
        expected = f"^({_expected(before)})(?:{_expected(parts[zones[0] : zones[-1] + 1])})({_expected(after)})$"
        text = rf"regexp_replace({text}, {quote_text(expected)}, '\1\2')"
    return f"try_strptime({text}, {quote_text(plain)})"


def parsed_instant(text: str, pattern: str) -> str | None:
    """Return the SQL of the TIMESTAMP_LTZ that a text with a zone has by a Java pattern; None if the pattern has no zone.

    Raises UntranslatablePattern.
    """
    parts = list(_parts(pattern))
    if not any(part.is_zone for part in parts):
        return None
    names = ("z", "V")
    plain = "".join(("%Z" if part.text[0] in names else "%z") if part.is_zone else _parse(part) for part in parts)
    if any(part.is_zone and part.text[0] in "XZ" for part in parts):
        # DuckDB does not read the letter of UTC.
        text = rf"regexp_replace({text}, 'Z($|[^A-Za-z])', '+00\1')"
    return f"try_strptime({text}, {quote_text(plain)})"


def _parts(pattern: str) -> Iterator[PatternPart]:
    for part in _PART.finditer(pattern):
        text = part[0]
        if text.startswith("'"):
            if len(text) == 1:
                raise UntranslatablePattern(text)
            # Two quotes are one, inside and outside of quotes.
            yield PatternPart(part[1].replace("''", "'") or "'", False)
        elif part[2] is None and text in "[]{}#":
            raise UntranslatablePattern(text)
        else:
            yield PatternPart(text, part[2] is not None)


def _parse(part: PatternPart) -> str:
    if not part.is_letters:
        return part.text.replace("%", "%%")
    if part.text not in _LETTERS:
        raise UntranslatablePattern(part.text)
    return _LETTERS[part.text]


def _format(part: PatternPart) -> str:
    return _OF_WEEKS[part.text] if part.is_letters and part.text in _OF_WEEKS else _parse(part)


def _expected(parts: list[PatternPart]) -> str:
    """Return a regular expression of the texts that parts of a pattern stand for."""
    return "".join(
        _ZONES[part.text][1] if part.is_zone else ".*?" if part.is_letters else re.escape(part.text) for part in parts
    )


def _strftime(time: str, pattern: str) -> str:
    return f"strftime({time}, {quote_text(pattern)})"


def _computed(part: PatternPart, local: str, instant: str | None) -> str | None:
    """Return the SQL of a part for which strftime has no letters: a week without zeros, a zone that is not always UTC."""
    if part == PatternPart(_WEEK, True):
        return f"CAST(CAST({_strftime(local, '%V')} AS INTEGER) AS VARCHAR)"
    if not part.is_zone or instant is None:
        return None
    if part.text[0] in "zV":
        return _strftime(instant, "%Z")
    offset = f"CAST(datepart('timezone', {instant}) AS BIGINT)"
    hours, minutes = f"abs({offset}) // 3600", f"abs({offset}) // 60 % 60"
    sign = f"CASE WHEN {offset} < 0 THEN '-' ELSE '+' END"
    letter, width = part.text[0], len(part.text)
    colon = ":" if (width in (3, 5) and letter in "Xx") or part.text == "ZZZZZ" else ""
    whole = f"{sign} || format('{{:02d}}{colon}{{:02d}}', {hours}, {minutes})"
    if letter in "Xx" and width == 1:
        short = f"{sign} || format('{{:02d}}', {hours})"
        whole = f"CASE WHEN {minutes} = 0 THEN {short} ELSE {whole} END"
    is_letter_at_utc = letter == "X" or part.text == "ZZZZZ"
    return f"(CASE WHEN {offset} = 0 THEN 'Z' ELSE {whole} END)" if is_letter_at_utc else f"({whole})"
