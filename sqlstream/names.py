"""Names that SQL and options declare: which ones are valid, and how they become names of folders."""

from __future__ import annotations

import unicodedata
from collections import namedtuple
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from sqlstream.errors import BindError, Span

# A file's name has at most 255 bytes. What is derived from a name has a number or a word behind it: `_values`, `.guard`.
LONGEST = 240


def path_name(name: str) -> str:
    """Return a name as one path component.

    >>> path_name("hot items/2")
    'hot%20items%2F2'
    """
    quoted = quote(name, safe="", errors="surrogatepass")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def problem(name: str) -> str | None:
    """Return what is wrong with a name; None for a good one.

    >>> problem("orders"), problem(""), problem("..")
    (None, 'is empty', 'is a folder of its own on disk')
    """
    if not name.strip():
        return "is empty"
    if name in (".", ".."):
        return "is a folder of its own on disk"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "has a control character in it"
    if (length := len(path_name(name.lower()))) > LONGEST:
        return f"is too long: {length} bytes as the name of a folder, where there can be {LONGEST}"
    return None


def check_name(what: str, name: str, span: Span | None) -> None:
    """Raise BindError if a name cannot be used; `what` is the kind of thing that it names, such as "a table"."""
    if (wrong := problem(name)) is not None:
        hint = (
            "There, a letter that is not ASCII takes 6 bytes or more."
            if "too long" in wrong and not name.isascii()
            else None
        )
        raise BindError(f"the name of {what} {wrong}", span, hint=hint)


def row_fields(names: Iterable[str]) -> tuple[str, ...]:
    """Return the attribute names of a row with these columns: `_1` for a column whose name Python refuses.

    >>> row_fields(["k", "window start", "n"])
    ('k', '_1', 'n')
    """
    named: Any = namedtuple
    fields: tuple[str, ...] = named("Row", list(names), rename=True)._fields
    return fields
