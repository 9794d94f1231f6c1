"""Numbers in SQL that DuckDB would read as infinity."""

from __future__ import annotations

import math

# The error about such a number, and its hint.
TOO_LARGE = "the number is too large"
GREATEST = "The greatest DOUBLE is about 1.8e308. Infinity is CAST('Infinity' AS DOUBLE)."


def is_too_large(number: str) -> bool:
    """Return whether DuckDB would read a number as infinity.

    >>> is_too_large("1e400"), is_too_large("1e308"), is_too_large("9" * 400 + ".0"), is_too_large("9" * 400)
    (True, False, True, False)
    """
    # Most numbers are whole, or have few digits. Whole ones have a type without a limit.
    if len(number) < 5 or number.isdigit():
        return False
    try:
        return math.isinf(float(number))
    except ValueError:
        return False
