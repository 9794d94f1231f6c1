"""Finds numbers in text that DuckDB would change silently: it rounds 1.5 to 2, and 1e400 to infinity. Here they are malformed.

So integer columns and the keys of maps are read as text, and checked before they are cast. 12, 12.0 and 1.2e1 are whole, with
quotes or without; 1.5 and true are not. Floating-point columns of CSV are read as text, too. Floating-point columns of JSON are
read as numbers; if one is infinite, its text is read again: `Infinity` is valid, 1e400 is not. BOOLEAN columns are read as text,
because DuckDB casts the number 2 to true, but refuses the text "2".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name, quote_text

NOT_WHOLE, INFINITE = "a number is not whole, or too large for its column", "a number is infinite"
_SIGNED = ("tinyint", "smallint", "integer", "bigint", "hugeint")
INTEGERS = frozenset((*_SIGNED, *(f"u{name}" for name in _SIGNED)))
FLOATS = frozenset(("float", "double"))

READ_AS_TEXT = INTEGERS | {"boolean"}


def as_text(declared: Any, floats: str | None = "VARCHAR") -> str | None:
    """Return the type in which to read a column, in which integers, booleans and keys of maps are VARCHAR; None for its own type.

    `floats` is the type in which floating-point numbers are read; None for their own type.
    """
    match declared.id:
        case id if id in READ_AS_TEXT:
            return "VARCHAR"
        case id if id in FLOATS:
            return floats
        case "struct":
            fields = [(name, type_, as_text(type_, floats)) for name, type_ in declared.children]
            if not any(text for _, _, text in fields):
                return None
            return f"STRUCT({', '.join(f'{quote_name(name)} {text or type_}' for name, type_, text in fields)})"
        case "list" | "array":
            inner = as_text(declared.children[0][1], floats)
            return inner and f"{inner}[]"
        case "map":
            (_, key), (_, value) = declared.children
            inner = as_text(value, floats)
            # Keys are always read as text.
            return f"MAP(VARCHAR, {inner or value})" if inner or key.id != "varchar" else None
    return None


def number_type(declared: Any) -> str | None:
    """Return the type in which to read an integer column of JSON whose text can be read again: DOUBLE; None for other columns.

    DuckDB needs a third less time for numbers than for texts. Most are exact, see `is_exact`; the texts of the others are
    checked.
    """
    return "DOUBLE" if declared.id in INTEGERS else None


def is_exact(number: str) -> str:
    """Return the condition that a DOUBLE is whole, and equals the number in its text.

    It holds below 2^52 only: DOUBLE has no fractions from there on, and may have rounded the number. It also holds for the 0 and
    1 that were read from `false` and `true`, which only the text distinguishes.
    """
    # The remainder of a DOUBLE takes forty times as long.
    return f"(trunc({number}) = {number} AND abs({number}) < {1 << 52})"


def fraction(value: str, declared: Any, depth: int = 0, *, floats: bool = True) -> str | None:
    """Return the condition that a value, read as `as_text` says, has a number that is not whole where an integer should be.

    With `floats` it also holds for a number that is too large for its floating-point type. Return None if there is nothing to
    check. A text that is no number is left to the cast. For maps, the condition also holds if two keys are the same, which the
    cast does not notice.
    """
    item = f"_x{depth}"
    match declared.id:
        case id if id in INTEGERS:
            # Nearly all integers have neither of these characters.
            doubtful = f"(contains({value}, '.') OR contains({value}, '-'))"
            return f"({doubtful} AND coalesce(TRY_CAST({value} AS DOUBLE) % 1 <> 0, true))"
        case id if id in FLOATS:
            return overflow(value, declared) if floats else None
        case "struct":
            fields = (
                fraction(f"struct_extract({value}, {quote_text(n)})", t, depth, floats=floats)
                for n, t in declared.children
            )
            field_conditions = [condition for condition in fields if condition]
            return f"({' OR '.join(field_conditions)})" if field_conditions else None
        case "list" | "array":
            inner = fraction(item, declared.children[0][1], depth + 1, floats=floats)
            return inner and f"(len(list_filter({value}, lambda {item}: {inner})) > 0)"
        case "map":
            (_, key), (_, inside) = declared.children
            inner = fraction(item, inside, depth + 1, floats=floats)
            conditions = [f"len(list_filter(map_values({value}), lambda {item}: {inner})) > 0"] if inner else []
            if key.id != "varchar":
                conditions.append(wrong_keys(f"map_keys({value})", key, depth))
            return f"({' OR '.join(conditions)})" if conditions else None
    return None


def overflow(value: str, declared: Any) -> str:
    """Return the condition that a text is a number that is too large for a floating-point type: its cast would be infinite."""
    # Others are too short, as are all names of infinity.
    doubtful = f"(contains({value}, 'e') OR contains({value}, 'E') OR strlen({value}) > 38)"
    return f"({doubtful} AND coalesce(isinf(TRY_CAST({value} AS {declared})), false))"


def infinite(value: str, declared: Any, depth: int = 0) -> str | None:
    """Return the condition that a value of the declared type has an infinite number; None if it can have none."""
    item = f"_x{depth}"
    match declared.id:
        case id if id in FLOATS:
            return f"isinf({value})"
        case "struct":
            fields = (infinite(f"struct_extract({value}, {quote_text(n)})", t, depth) for n, t in declared.children)
            conditions = [condition for condition in fields if condition]
            return f"({' OR '.join(conditions)})" if conditions else None
        case "list" | "array":
            inner, items = infinite(item, declared.children[0][1], depth + 1), value
        case "map":
            inner, items = infinite(item, declared.children[1][1], depth + 1), f"map_values({value})"
        case _:
            return None
    return inner and f"(len(list_filter({items}, lambda {item}: {inner})) > 0)"


def wrong_keys(keys: str, declared: Any, depth: int) -> str:
    """Return the condition that texts cannot be the keys of a map: one is not of the key's type, or two are the same.

    `keys` is the SQL of a list of texts, `declared` the DuckDB type of the keys.
    """
    item = f"_x{depth}"
    cast = (
        keys if declared.id == "varchar" else f"list_transform({keys}, lambda {item}: TRY_CAST({item} AS {declared}))"
    )
    # NULL is not counted.
    fewer = f"len(list_distinct({cast})) < len({keys})"
    inner = fraction(item, declared, depth + 1)
    return f"({fewer} OR len(list_filter({keys}, lambda {item}: {inner})) > 0)" if inner else f"({fewer})"


def whole(columns: Sequence[tuple[Column, Any]], floats: str | None = "VARCHAR") -> tuple[str, str]:
    """Return (select items, WHERE clause) for columns that were read as `as_text` says: the items cast them to their types.

    The clause, "" if there is nothing to check, raises the error NOT_WHOLE for a number that does not fit, see `fraction`. If
    `floats` is None, it also raises INFINITE for an infinite floating-point number, whatever its text is.
    """
    items, checks, doubts = [], list[str](), list[str]()
    for column, type_ in columns:
        name = quote_name(column.name)
        items.append(name if as_text(type_, floats) is None else f"CAST({name} AS {column.type}) AS {name}")
        checks += filter(None, [fraction(name, type_, floats=floats is not None)])
        doubts += filter(None, [infinite(name, type_)] if floats is None else [])
    cases = ((conditions, message) for conditions, message in ((checks, NOT_WHOLE), (doubts, INFINITE)) if conditions)
    errors = " ".join(f"WHEN {' OR '.join(wrong)} THEN error({quote_text(message)})" for wrong, message in cases)
    return ", ".join(items) or "1", f" WHERE CASE {errors} ELSE true END" if errors else ""
