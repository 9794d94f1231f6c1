"""Which types hold the values of another type: state is cast when a column gets a wider type."""

from __future__ import annotations

import re

import duckdb

from sqlstream.duck.sql import quote_text

_INTEGERS = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "HUGEINT": (-(2**127), 2**127 - 1),
    "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "UHUGEINT": (0, 2**128 - 1),
}
# Letters of a value that an error shows.
_SHOWN = 100
# Integers up to these are exact.
_FLOATS = {"FLOAT": 2**24, "DOUBLE": 2**53}
# Only dates beyond the years that a TIMESTAMP reaches do not fit: 290309 BC to 294247.
_ALMOST = {("DATE", "TIMESTAMP")}
_OTHERS = {("FLOAT", "DOUBLE"), ("JSON", "VARCHAR"), ("BOOLEAN", "VARCHAR"), *_ALMOST}
_DECIMAL = re.compile(r"DECIMAL\((?P<width>\d+),\s?(?P<scale>\d+)\)")
# The end of the error for a value that does not fit.
_NOT_HELD = "which {} does not hold"
_UNFIT = re.compile(f".* has the .*, {_NOT_HELD.format('.*')}")


def is_wider(old: str, new: str) -> bool:
    """Tell whether the type `new` holds every value of the type `old`; both are texts as DuckDB prints them.

    It also does if only dates out of the ordinary do not fit: `widened` refuses these.

    >>> is_wider("INTEGER", "BIGINT"), is_wider("BIGINT", "DOUBLE"), is_wider("DECIMAL(9,2)", "DECIMAL(18,2)")
    (True, False, True)
    >>> is_wider("BIGINT", "DECIMAL(38,0)"), is_wider("INTEGER[]", "BIGINT[]"), is_wider("ENUM('a')", "VARCHAR")
    (True, True, True)
    """
    if old == new or (old, new) in _OTHERS:
        return True
    if old.endswith("[]") and new.endswith("[]"):
        return is_wider(old[:-2], new[:-2])
    if old in _INTEGERS:
        return _holds_integers(new, *_INTEGERS[old])
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before and after:
        width, scale = _size(before)
        new_width, new_scale = _size(after)
        return new_scale >= scale and new_width - new_scale >= width - scale
    return old.startswith("ENUM(") and new == "VARCHAR"


def widened(sql: str, old: str, new: str, what: str) -> str:
    """Return the SQL of a value as a wider type; for a value that does not fit it is an error that names it.

    `what` says for people what holds the value, such as `table "t": column d`.
    """
    if (old.rstrip("[]"), new.rstrip("[]")) not in _ALMOST:
        return f"CAST({sql} AS {new})"
    # TRY_CAST makes NULL of an item of a list that does not fit, and keeps the list.
    cast = f"TRY_CAST({sql} AS {new})"
    shown = f"left(CAST({sql} AS VARCHAR), {_SHOWN})"
    message = f"{quote_text(f'{what} has the {old} ')} || {shown} || {quote_text(f', {_NOT_HELD.format(new)}')}"
    return f"CASE WHEN CAST({cast} AS {old}) IS DISTINCT FROM {sql} THEN error({message}) ELSE {cast} END"


def unfit(error: duckdb.Error) -> str | None:
    """Return what does not fit, as `widened` says it; None for any other error."""
    match = _UNFIT.search(str(error).partition("Error: ")[2])
    return match[0] if match else None


def _size(decimal: re.Match[str]) -> tuple[int, int]:
    return int(decimal["width"]), int(decimal["scale"])


def _holds_integers(type: str, least: int, greatest: int) -> bool:
    if type in _INTEGERS:
        low, high = _INTEGERS[type]
        return low <= least and greatest <= high
    if type in _FLOATS:
        return -_FLOATS[type] <= least and greatest <= _FLOATS[type]
    if decimal := _DECIMAL.fullmatch(type):
        width, scale = _size(decimal)
        limit: int = 10 ** (width - scale)
        # What a sum of a HUGEINT can be is bounded by this type anyway.
        return -limit < least and greatest < limit
    return False
