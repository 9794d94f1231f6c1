"""Texts for a terminal."""

from __future__ import annotations

import re

# Characters that move the cursor, change colours, or do worse; newline and tab are not among them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str, form: str = "\\x{:02x}") -> str:
    """Return a text with escapes in place of characters that control a terminal: values may come from anywhere.

    >>> printable("red: \x1b[31m")
    'red: \\\\x1b[31m'
    """
    return _CONTROL.sub(lambda match: form.format(ord(match[0])), text)


def is_number(type: str) -> bool:
    """Return whether a DuckDB type is numeric: such columns are right-aligned."""
    return type.endswith("INT") or type in ("INTEGER", "DOUBLE", "FLOAT") or type.startswith("DECIMAL")
