"""Division of DECIMAL as Flink does it: exact, with the precision and scale that Flink's rules give the quotient.

DuckDB divides DECIMAL as DOUBLE. Here both operands become whole numbers of 128 bits, which are divided with one digit more than
the quotient has; the cast to its scale then rounds half up.
"""

from __future__ import annotations

import re
from typing import TypeAlias

# Precision and scale.
Decimal: TypeAlias = tuple[int, int]

MOST = 38
# The digits that integers have as DECIMAL. A HUGEINT is the sum of a BIGINT, which is a BIGINT in Flink.
_OF_INTEGERS = {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "HUGEINT": 19} | {
    "UTINYINT": 3,
    "USMALLINT": 5,
    "UINTEGER": 10,
    "UBIGINT": 20,
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
# The scale up to which a fraction, as a whole number, times its scale still has 38 digits.
_DEEPEST = 18


def decimal_of(type: str) -> Decimal | None:
    """Return the precision and scale of a DECIMAL, or of an integer as a DECIMAL; None for any other type.

    >>> decimal_of("DECIMAL(10,2)"), decimal_of("INTEGER"), decimal_of("DOUBLE")
    ((10, 2), (10, 0), None)
    """
    if match := _DECIMAL.fullmatch(type):
        return int(match[1]), int(match[2])
    return (_OF_INTEGERS[type], 0) if type in _OF_INTEGERS else None


def quotient_type(one: Decimal, two: Decimal) -> Decimal:
    """Return the precision and scale of `one / two` by Flink's rules.

    >>> quotient_type((10, 2), (10, 2)), quotient_type((38, 2), (19, 0))
    ((23, 13), (38, 6))
    """
    (p1, s1), (p2, s2) = one, two
    scale = max(6, s1 + p2 + 1)
    whole = p1 - s1 + s2
    if whole + scale <= MOST:
        return whole + scale, scale
    return MOST, max(MOST - whole, min(scale, 6))


def average_type(scale: int) -> Decimal:
    """Return the precision and scale of AVG of a DECIMAL of a scale by Flink's rules."""
    return MOST, max(6, scale)


def quotient(a: str, one: Decimal, b: str, two: Decimal, result: Decimal) -> str | None:
    """Return the SQL of `a / b` as a DECIMAL; None if 128 bits are too few, so that it stays a DOUBLE."""
    (precision, scale), (s1, s2) = result, (one[1], two[1])
    above, below = _unscaled(a, *one), _unscaled(b, *two)
    if above is None or below is None:
        return None
    # One digit more than the scale.
    shift = scale + 1 - s1 + s2
    if shift > 0:
        above = f"{above} * CAST({10**shift} AS HUGEINT)"
    elif shift < 0:
        below = f"({below} * CAST({10**-shift} AS HUGEINT))"
    digit = f"CAST(0.{'0' * scale}1 AS DECIMAL({scale + 1}, {scale + 1}))"
    return f"CAST(CAST({above} // {below} AS DECIMAL({MOST}, 0)) * {digit} AS DECIMAL({precision}, {scale}))"


def _unscaled(value: str, precision: int, scale: int) -> str | None:
    """Return the SQL of a DECIMAL as a whole number, without its point; None if its fraction has too many digits."""
    if scale == 0:
        return f"CAST({value} AS HUGEINT)"
    unit = f"CAST({10**scale} AS DECIMAL({scale + 1}, 0))"
    if precision + scale < MOST:
        # DuckDB multiplies two DECIMALs of at most 18 digits in 64 bits.
        wide = (
            f"CAST({value} AS DECIMAL({precision + scale}, {scale}))" if precision <= 18 < precision + scale else value
        )
        return f"CAST({wide} * {unit} AS HUGEINT)"
    if scale > _DEEPEST:
        return None
    whole = f"CAST(trunc({value}) AS HUGEINT) * CAST({10**scale} AS HUGEINT)"
    return f"({whole} + CAST(({value} - trunc({value})) * {unit} AS HUGEINT))"
