"""Intervals of several units in standard SQL, such as '1 02:03:04' DAY TO SECOND."""

from __future__ import annotations

import re

_DAY_TIME = ("DAY", "HOUR", "MINUTE", "SECOND")
_YEAR_MONTH = ("YEAR", "MONTH")
# What stands between the numbers, by the unit of the first of two.
_BETWEEN = {"YEAR": "-", "DAY": " ", "HOUR": ":", "MINUTE": ":"}


def compound_interval(text: str, first: str, last: str) -> str | None:
    """Return the text of an interval from one unit to another as DuckDB reads it; None if the text is no such interval.

    >>> compound_interval("1 02:03:04.5", "DAY", "SECOND"), compound_interval("-1-02", "YEAR", "MONTH")
    ('1 DAY 02 HOUR 03 MINUTE 04.5 SECOND', '-1 YEAR -02 MONTH')
    >>> compound_interval("1:30", "DAY", "SECOND") is None
    True
    """
    units: tuple[str, ...] = next((u for u in (_DAY_TIME, _YEAR_MONTH) if first.upper() in u and last.upper() in u), ())
    units = units[units.index(first.upper()) : units.index(last.upper()) + 1] if units else ()
    if len(units) < 2:
        return None
    sign, digits = ("-", text.strip()[1:]) if text.strip().startswith("-") else ("", text.strip().removeprefix("+"))
    pattern = "".join(
        r"(\d+(?:\.\d+)?)" if u == "SECOND" else rf"(\d+){_BETWEEN[u] if u != units[-1] else ''}" for u in units
    )
    match = re.fullmatch(pattern, digits)
    return (
        " ".join(f"{sign}{number} {unit}" for number, unit in zip(match.groups(), units, strict=True))
        if match
        else None
    )
