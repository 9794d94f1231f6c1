"""The DuckDB types of type hints, and codecs for the Python objects of these hints.

| hint | DuckDB | | hint | DuckDB |
|---|---|---|---|---|
| `int` | BIGINT | | `datetime.time` | TIME |
| `float` | DOUBLE | | `datetime.timedelta` | INTERVAL (a month counts as 30 days) |
| `str` | VARCHAR | | `decimal.Decimal` | DECIMAL(38,10) |
| `bool` | BOOLEAN | | `uuid.UUID` | UUID |
| `bytes` | BLOB | | `list[T]`, `dict[K, V]` | T[], MAP(K, V) |
| `datetime.date` | DATE | | `tuple[T, ..]` | T[]; `tuple[A, B]` is STRUCT(f0 A, f1 B) |
| `datetime.datetime` | TIMESTAMP | | dataclass, NamedTuple, TypedDict | STRUCT |
| | | | Enum, Literal | the type of its values |

DECIMAL(38,10) holds 28 digits before the point; results are rounded half up, as CAST does. An instant (a datetime
in UTC) needs its SQL type: `@udf(parameters={"at": "TIMESTAMP WITH TIME ZONE"})`. Beside a SQL type, a hint that is a class
of the user's still determines the class of the objects: a dataclass with `returns="STRUCT(...)"`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import enum
import types
import typing
from decimal import Decimal
from typing import Any, Literal, Union
from uuid import UUID

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from sqlstream.duck.sql import quote_name
from sqlstream.functions.codecs import LEAVES, Codec, Enumeration, ListOf, MapOf, StructOf, TupleOf, decimal_leaf

SCALARS: dict[Any, str] = {
    int: "BIGINT",
    float: "DOUBLE",
    str: "VARCHAR",
    bool: "BOOLEAN",
    bytes: "BLOB",
    dt.date: "DATE",
    dt.datetime: "TIMESTAMP",
    dt.time: "TIME",
    dt.timedelta: "INTERVAL",
    Decimal: "DECIMAL(38,10)",
    UUID: "UUID",
}
# Hints of vectorized functions. Other types need their SQL type.
ARRAYS: dict[Any, str] = {
    pa.BooleanArray: "BOOLEAN",
    pa.Int32Array: "INTEGER",
    pa.Int64Array: "BIGINT",
    pa.FloatArray: "FLOAT",
    pa.DoubleArray: "DOUBLE",
    pa.StringArray: "VARCHAR",
    pa.BinaryArray: "BLOB",
    pa.Date32Array: "DATE",
}
USABLE = (
    "Usable are int, float, str, bool, bytes, date, datetime, time, timedelta, Decimal, UUID, list[T], tuple[..], "
    "dict[K, V], dataclasses, NamedTuples, TypedDicts, Enums and Literals, each also as T | None"
)


class UnusableType(Exception):
    """A hint without a SQL type, or a SQL type without Python values; the text says which part and why."""


def optional(hint: Any) -> tuple[Any, bool]:
    """Return a hint without its `| None`, and whether it had one.

    >>> optional(int | None)
    (<class 'int'>, True)
    """
    hint = _bare(hint)
    if typing.get_origin(hint) in (Union, types.UnionType):
        rest = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(rest) == 1 and len(rest) < len(typing.get_args(hint)):
            return _bare(rest[0]), True
    return hint, False


def sql_type(hint: Any, within: tuple[Any, ...] = ()) -> str:
    """Return the DuckDB type of a hint; `within` are the classes around it. Raises UnusableType.

    >>> sql_type(dict[str, list[int] | None])
    'MAP(VARCHAR, BIGINT[])'
    """
    hint, _ = optional(hint)
    arguments = typing.get_args(hint)
    match typing.get_origin(hint), len(arguments):
        case (origin, 1) if origin in (list, collections.abc.Sequence):
            return f"{sql_type(arguments[0], within)}[]"
        case (origin, 2) if origin in (dict, collections.abc.Mapping):
            return f"MAP({sql_type(arguments[0], within)}, {sql_type(arguments[1], within)})"
        case (origin, _) if origin is tuple:
            parts = tuple_parts(hint)
            if parts is None:
                return f"{sql_type(arguments[0], within)}[]"
            fields = (f"{quote_name(f'f{i}')} {sql_type(part, within)}" for i, part in enumerate(parts))
            return f"STRUCT({', '.join(fields)})"
        case (origin, _) if origin is Literal:
            return _common_type(hint, arguments)
        case (None, _) if isinstance(hint, type):
            return _class_type(hint, within)
    raise UnusableType(f"{describe(hint)} has no SQL type")


def tuple_parts(hint: Any) -> tuple[Any, ...] | None:
    """Return the hints of the values of a tuple; None if it has any number of values of one type. Raises UnusableType.

    >>> tuple_parts(tuple[int, str]), tuple_parts(tuple[int, ...])
    ((<class 'int'>, <class 'str'>), None)
    """
    parts = typing.get_args(hint)
    if len(parts) == 2 and parts[1] is ...:
        return None
    if not parts or ... in parts:
        raise UnusableType(f"{describe(hint)} does not say what is in it")
    return parts


def array_type(hint: Any) -> str:
    """Return the DuckDB type of a hint of a vectorized function. Raises UnusableType.

    >>> array_type(pa.Int64Array)
    'BIGINT'
    """
    if hint not in ARRAYS:
        raise UnusableType(f"{describe(hint)} does not say what is in the array")
    return ARRAYS[hint]


def canonical(text: str) -> str:
    """Return a DuckDB type as DuckDB spells it. Raises UnusableType for a text that is no type."""
    return str(_parse(text))


def codec(text: str, hint: Any = None) -> Codec:
    """Return the codec of a DuckDB type. Raises UnusableType.

    The hint matters only if it is a tuple or a class of the user's (dataclass, Enum); without one a STRUCT is a dict.
    """
    return _codec(_parse(text), hint)


def describe(hint: Any) -> str:
    """Return a hint approximately as its author wrote it.

    >>> describe(tuple[int, ...]), describe(set)
    ('tuple[int, ...]', 'set')
    """
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else repr(hint)


def _bare(hint: Any) -> Any:
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint


def _class_type(hint: type, within: tuple[Any, ...]) -> str:
    if hint in SCALARS:
        return SCALARS[hint]
    if issubclass(hint, enum.Enum):
        return _common_type(hint, [member.value for member in hint])
    if (fields := _fields(hint)) is None:
        raise UnusableType(f"{describe(hint)} has no SQL type")
    if hint in within:
        raise UnusableType(f"{describe(hint)} contains itself, which a STRUCT cannot")
    if not fields:
        raise UnusableType(f"{describe(hint)} has no fields")
    inner = ", ".join(f"{quote_name(name)} {sql_type(field, (*within, hint))}" for name, field in fields.items())
    return f"STRUCT({inner})"


def _common_type(hint: Any, values: collections.abc.Sequence[Any]) -> str:
    kinds = {type(v) for v in values}
    if len(kinds) != 1 or not kinds <= {int, str}:
        raise UnusableType(f"the values of {describe(hint)} are not all str or all int")
    return SCALARS[kinds.pop()]


def _fields(hint: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, NamedTuple or TypedDict with their hints; None for any other hint."""
    if not isinstance(hint, type):
        return None
    if dataclasses.is_dataclass(hint):
        names = [f.name for f in dataclasses.fields(hint) if f.init]
    elif is_named_tuple(hint) or typing.is_typeddict(hint):
        names = list(hint.__annotations__)
    else:
        return None
    hints = field_hints(hint)
    return {name: hints[name] for name in names}


def field_hints(hint: type) -> dict[str, Any]:
    """Return the evaluated type hints of a class's fields, and put them in the place of textual hints in the class itself.

    Raises UnusableType if one cannot be evaluated.
    """
    try:
        hints = typing.get_type_hints(hint)
        # A worker receives the class without its file, where hints as text could not be evaluated.
        for one in hint.__mro__:
            if own := vars(one).get("__annotations__"):
                objects = typing.get_type_hints(one, include_extras=True)
                one.__annotations__ = {name: objects[name] for name in own}
    except Exception as error:
        raise UnusableType(f"a type hint of {describe(hint)} cannot be evaluated: {error}") from error
    return hints


def is_named_tuple(hint: Any) -> bool:
    """Return whether a hint is a class made with typing.NamedTuple."""
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def struct_fields(text: str) -> dict[str, str] | None:
    """Return the fields of a STRUCT with their types; None for any other DuckDB type.

    >>> struct_fields("STRUCT(a BIGINT, b VARCHAR[])")
    {'a': 'BIGINT', 'b': 'VARCHAR[]'}
    """
    duck = _parse(text)
    return {name: str(child) for name, child in duck.children} if duck.id == "struct" else None


def _parse(text: str) -> DuckDBPyType:
    try:
        return DuckDBPyType(text)
    except duckdb.Error as error:
        raise UnusableType(f'"{text}" is not a DuckDB type') from error


def _codec(duck: DuckDBPyType, hint: Any) -> Codec:
    hint, _ = optional(hint)
    arguments: tuple[Any, ...] = typing.get_args(hint)
    match duck.id:
        case "list" | "array":
            is_tuple = typing.get_origin(hint) is tuple
            item = _codec(_child(duck, "child"), arguments[0] if len(arguments) == 1 or is_tuple else None)
            return ListOf(item, dict(duck.children).get("size"), tuple if is_tuple else list)  # type: ignore[arg-type]
        case "map":
            key, value = arguments if len(arguments) == 2 else (None, None)
            return MapOf(_codec(_child(duck, "key"), key), _codec(_child(duck, "value"), value))
        case "struct" if typing.get_origin(hint) is tuple:
            return _tuple(duck, hint)
        case "struct":
            return _struct(duck, hint)
        case "decimal":
            sizes: dict[str, Any] = dict(duck.children)
            return decimal_leaf(sizes["precision"], sizes["scale"])
    leaf = LEAVES.get("json" if str(duck) == "JSON" else duck.id)
    if leaf is None:
        raise UnusableType(f"values of type {duck} cannot be given to Python functions")
    return Enumeration(leaf, hint) if isinstance(hint, type) and issubclass(hint, enum.Enum) else leaf


def _struct(duck: DuckDBPyType, hint: Any) -> StructOf:
    hints = _fields(hint) or {}
    members = {name: _codec(child, hints.get(name)) for name, child in duck.children if isinstance(child, DuckDBPyType)}
    record_class: type | None = None
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or is_named_tuple(hint)):
        record_class = hint
    if record_class is not None and members.keys() != hints.keys():
        raise UnusableType(f"{duck} does not have the fields of {describe(hint)}: {', '.join(hints)}")
    return StructOf(tuple(members.items()), record_class)


def _tuple(duck: DuckDBPyType, hint: Any) -> TupleOf:
    fields = [(name, child) for name, child in duck.children if isinstance(child, DuckDBPyType)]
    parts = tuple_parts(hint)
    if parts is None or len(parts) != len(fields):
        raise UnusableType(f"{duck} has not as many fields as {describe(hint)}")
    return TupleOf(tuple((name, _codec(child, part)) for (name, child), part in zip(fields, parts, strict=True)))


def _child(duck: DuckDBPyType, name: str) -> DuckDBPyType:
    child = dict(duck.children)[name]
    assert isinstance(child, DuckDBPyType)
    return child
