"""Which types hold all values of another type: state is cast when a column gets a wider type."""

from __future__ import annotations

import re

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
# Integers up to these are exact.
_FLOATS = {"FLOAT": 2**24, "DOUBLE": 2**53}
_OTHERS = {("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP"), ("JSON", "VARCHAR"), ("BOOLEAN", "VARCHAR")}
_DECIMAL = re.compile(r"DECIMAL\((?P<width>\d+),\s?(?P<scale>\d+)\)")


def is_wider(old: str, new: str) -> bool:
    """Tell whether the type `new` holds every value of the type `old`; both are texts as DuckDB prints them.

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
