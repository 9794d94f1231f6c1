"""Texts for a terminal."""

from __future__ import annotations

import re

# What moves the cursor, changes colours, or worse; not the end of a line, nor a tab.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str, form: str = "\\x{:02x}") -> str:
    """Return a text without characters that a terminal obeys: values come from anywhere.

    >>> printable("red: \x1b[31m")
    'red: \\\\x1b[31m'
    """
    return _CONTROL.sub(lambda found: form.format(ord(found[0])), text)


def is_number(type: str) -> bool:
    """Tell whether values of a DuckDB type read best flush right."""
    return type.endswith("INT") or type in ("INTEGER", "DOUBLE", "FLOAT") or type.startswith("DECIMAL")
