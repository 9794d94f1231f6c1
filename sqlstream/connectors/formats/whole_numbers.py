"""Integers in text: DuckDB rounds 1.5 to 2; here 1.5 is malformed in an integer column.

So integer columns and the keys of maps are read as text, and checked before they are cast. 12, 12.0 and 1.2e1 are whole, with
quotes or without; 1.5 and true are not. BOOLEAN columns are read as text, too: DuckDB casts the number 2 to true, but not "2".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name, quote_text

NOT_WHOLE = "a number is not whole"
_SIGNED = ("tinyint", "smallint", "integer", "bigint", "hugeint")
INTEGERS = frozenset((*_SIGNED, *(f"u{name}" for name in _SIGNED)))

READ_AS_TEXT = INTEGERS | {"boolean"}


def as_text(declared: Any) -> str | None:
    """Return the type in which a column is read: its own with VARCHAR for integers, booleans and keys; None if it has none."""
    match declared.id:
        case id if id in READ_AS_TEXT:
            return "VARCHAR"
        case "struct":
            fields = [(name, type_, as_text(type_)) for name, type_ in declared.children]
            if not any(text for _, _, text in fields):
                return None
            return f"STRUCT({', '.join(f'{quote_name(name)} {text or type_}' for name, type_, text in fields)})"
        case "list" | "array":
            inner = as_text(declared.children[0][1])
            return inner and f"{inner}[]"
        case "map":
            (_, key), (_, value) = declared.children
            inner = as_text(value)
            # Keys are always read as text.
            return f"MAP(VARCHAR, {inner or value})" if inner or key.id != "varchar" else None
    return None


def number_type(declared: Any) -> str | None:
    """Return the type in which an integer column is read from JSON, if its text is available, too; None for other columns.

    DuckDB reads numbers in two thirds of the time of texts, and most are exact, see `is_exact`.
    """
    return "DOUBLE" if declared.id in INTEGERS else None


def is_exact(number: str) -> str:
    """Return the condition that a DOUBLE is whole, and equal to the number in the text that it was read from.

    From 2^52 on, DOUBLE has no fractions, so that it may have rounded the text's. The condition also holds for 0 and 1 that were
    read from `false` and `true`; only the text tells.
    """
    # The remainder of a DOUBLE takes forty times as long.
    return f"(trunc({number}) = {number} AND abs({number}) < {1 << 52})"


def fraction(value: str, declared: Any, depth: int = 0) -> str | None:
    """Return the condition that a value, read as `as_text` says, has a number that is not whole where an integer should be.

    Return None if there is nothing to check. A text that is no number is left to the cast. For maps, the condition also holds
    if two keys are the same, which the cast does not notice.
    """
    item = f"_x{depth}"
    match declared.id:
        case id if id in INTEGERS:
            # Nearly all integers have neither of these characters.
            doubtful = f"(contains({value}, '.') OR contains({value}, '-'))"
            return f"({doubtful} AND coalesce(TRY_CAST({value} AS DOUBLE) % 1 <> 0, true))"
        case "struct":
            fields = (fraction(f"struct_extract({value}, {quote_text(n)})", t, depth) for n, t in declared.children)
            found = [condition for condition in fields if condition]
            return f"({' OR '.join(found)})" if found else None
        case "list" | "array":
            inner = fraction(item, declared.children[0][1], depth + 1)
            return inner and f"(len(list_filter({value}, lambda {item}: {inner})) > 0)"
        case "map":
            (_, key), (_, inside) = declared.children
            inner = fraction(item, inside, depth + 1)
            conditions = [f"len(list_filter(map_values({value}), lambda {item}: {inner})) > 0"] if inner else []
            if key.id != "varchar":
                conditions.append(wrong_keys(f"map_keys({value})", key, depth))
            return f"({' OR '.join(conditions)})" if conditions else None
    return None


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


def whole(columns: Sequence[tuple[Column, Any]]) -> tuple[str, str]:
    """Return the select items that cast columns which were read as `as_text` says, and a WHERE clause.

    The clause, "" if there is nothing to check, raises the error NOT_WHOLE for a number that is not whole.
    """
    items, checks = [], []
    for column, type_ in columns:
        name = quote_name(column.name)
        items.append(name if as_text(type_) is None else f"CAST({name} AS {column.type}) AS {name}")
        if condition := fraction(name, type_):
            checks.append(condition)
    where = (
        f" WHERE CASE WHEN {' OR '.join(checks)} THEN error({quote_text(NOT_WHOLE)}) ELSE true END" if checks else ""
    )
    return ", ".join(items) or "1", where
