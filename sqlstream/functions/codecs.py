"""Converts values between Arrow and Python by DuckDB type: arguments of functions, and results, whose types are checked.

A codec is plain data, because it travels with its function to worker processes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from itertools import compress, starmap
from operator import attrgetter
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa

# Enough digits that quantizing any DECIMAL or HUGEINT is exact.
_DIGITS = Context(prec=80, rounding=ROUND_HALF_UP)


class Codec(Protocol):
    """The conversion of values of one DuckDB type between Arrow and the Python objects of the user's function."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values in DuckDB's chunks."""

    @property
    def plain(self) -> bool:
        """Whether the user's function takes Arrow's Python objects as they are, without `decode`."""

    def exact(self, values: list[Any]) -> bool:
        """Return whether `pa.array` takes all of these values as they are, without `encode`."""

    def decode(self, value: Any) -> Any:
        """Return the object for the user's function from Arrow's Python object; None stays None."""

    def encode(self, value: Any) -> Any:
        """Return the object that `pa.array` takes; None stays None.

        Raises TypeError, ValueError or OverflowError if a value is not of the type.
        """


@dataclass(frozen=True, slots=True)
class Leaf:
    """The codec of a type without nested types. `kind` is its key in the tables `_ENCODE`, `_DECODE` and `_EXACT`."""

    kind: str
    arrow: pa.DataType

    @property
    def plain(self) -> bool:
        return self.kind not in _DECODE

    def exact(self, values: list[Any]) -> bool:
        classes = _EXACT.get(self.kind)
        if classes is None or not classes.issuperset(map(type, values)):
            return False
        return self.kind != "timestamp" or {v.tzinfo for v in values if v is not None} <= {None}

    def decode(self, value: Any) -> Any:
        return value if value is None or self.plain else _DECODE[self.kind](value)

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        if type(value).__module__ == "numpy":
            value = value.item()
        return _ENCODE[self.kind](value, self.arrow)


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Members of an Enum, stored as their values."""

    leaf: Leaf
    members: type[enum.Enum]

    plain = False

    @property
    def arrow(self) -> pa.DataType:
        return self.leaf.arrow

    def exact(self, values: list[Any]) -> bool:
        return False

    def decode(self, value: Any) -> Any:
        return None if value is None else self.members(value)

    def encode(self, value: Any) -> Any:
        return None if value is None else self.leaf.encode(_of(value, self.members).value)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, or an array of `size` elements; `sequence_type` is tuple for hints such as tuple[int, ...]."""

    item: Codec
    size: int | None = None
    sequence_type: type[list[Any]] | type[tuple[Any, ...]] = list

    @property
    def plain(self) -> bool:
        return self.item.plain and self.sequence_type is list

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.item.arrow, -1 if self.size is None else self.size)

    def exact(self, values: list[Any]) -> bool:
        return False

    def decode(self, value: Any) -> Any:
        return value if value is None or self.plain else self.sequence_type([self.item.decode(v) for v in value])

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        if type(value).__module__ == "numpy":
            value = value.tolist()
        return [self.item.encode(v) for v in _of(value, list, tuple)]


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A tuple, stored as a STRUCT with a field for each value."""

    fields: tuple[tuple[str, Codec], ...]

    plain = False

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(name, codec.arrow) for name, codec in self.fields])

    def exact(self, values: list[Any]) -> bool:
        return False

    def decode(self, value: Any) -> Any:
        return None if value is None else tuple(codec.decode(value[name]) for name, codec in self.fields)

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        if len(_of(value, tuple)) != len(self.fields):
            raise ValueError(f"a tuple of {len(value)} values instead of {len(self.fields)}")
        return {name: codec.encode(v) for (name, codec), v in zip(self.fields, value, strict=True)}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A dict. Arrow hands out a MAP as a list of pairs."""

    key: Codec
    value: Codec

    plain = False

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.key.arrow, self.value.arrow)

    def exact(self, values: list[Any]) -> bool:
        return False

    def decode(self, value: Any) -> Any:
        return None if value is None else {self.key.decode(k): self.value.decode(v) for k, v in value}

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        return [(self.key.encode(k), self.value.encode(v)) for k, v in _of(value, Mapping).items()]


@dataclass(frozen=True, slots=True)
class StructOf:
    """Instances of a dataclass or NamedTuple, or dicts when there is none."""

    fields: tuple[tuple[str, Codec], ...]
    record_class: Callable[..., Any] | None = None

    @property
    def plain(self) -> bool:
        return self.record_class is None and all(codec.plain for _, codec in self.fields)

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(name, codec.arrow) for name, codec in self.fields])

    @property
    def positional(self) -> tuple[str, ...] | None:
        """The fields in the order of the class's constructor; None without a class, or if it does not take them by position."""
        names = [name for name, _ in self.fields]
        if isinstance(self.record_class, type) and dataclasses.is_dataclass(self.record_class):
            init_fields = [f for f in dataclasses.fields(self.record_class) if f.init]
            is_known = not any(f.kw_only for f in init_fields) and {f.name for f in init_fields} == set(names)
            return tuple(f.name for f in init_fields) if is_known else None
        if isinstance(self.record_class, type) and set(getattr(self.record_class, "_fields", ())) == set(names):
            return tuple(self.record_class._fields)  # type: ignore[attr-defined]
        return None

    def takes(self, values: list[Any]) -> bool:
        """Return whether each value is None or an instance of `record_class`, not of a subclass; False without a class."""
        return isinstance(self.record_class, type) and {self.record_class, type(None)}.issuperset(map(type, values))

    def exact(self, values: list[Any]) -> bool:
        return False

    def decode(self, value: Any) -> Any:
        if value is None or self.plain:
            return value
        values = {name: codec.decode(value[name]) for name, codec in self.fields}
        return values if self.record_class is None else self.record_class(**values)

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(self.record_class, type):
            instance = _of(value, self.record_class)
            return {name: codec.encode(getattr(instance, name)) for name, codec in self.fields}
        mapping = _of(value, Mapping)
        if extra := mapping.keys() - {name for name, _ in self.fields}:
            raise ValueError(f"unexpected fields: {', '.join(map(str, extra))}")
        return {name: codec.encode(mapping.get(name)) for name, codec in self.fields}


def decoded(codec: Codec, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as objects for the user's function. Raises what `objects` and `decode` raise."""
    if isinstance(codec, StructOf) and (names := codec.positional) is not None:
        return [value for chunk in column.chunks for value in _instances(codec, names, chunk)]
    values = objects(codec, column)
    return values if codec.plain else list(map(codec.decode, values))


def _instances(codec: StructOf, names: tuple[str, ...], column: pa.StructArray) -> Iterable[Any]:
    """Return instances of the codec's class, None for NULL, from one Arrow array per field.

    Arrow would make a dict of each row, which takes four times as long.
    """
    codecs, arrays = dict(codec.fields), dict(zip(column.type.names, column.flatten(), strict=True))
    fields = [decoded(codecs[name], pa.chunked_array([arrays[name]])) for name in names]
    if not column.null_count:
        return instances(codec.record_class, fields)
    valid = column.is_valid().to_pylist()
    valid_instances = iter(instances(codec.record_class, [list(compress(values, valid)) for values in fields]))
    return [next(valid_instances) if is_there else None for is_there in valid]


def instances(record_class: Any, fields: Sequence[list[Any]]) -> Iterable[Any]:
    """Return instances of a class from one list of values per field, in the order of its constructor."""
    if record_class.__bases__ == (tuple,) and len(record_class._fields) == len(fields):
        # A named tuple, made as fast as Python can: its own constructor is Python's code.
        return map(partial(tuple.__new__, record_class), zip(*fields, strict=True))
    return starmap(record_class, zip(*fields, strict=True))


def objects(codec: Codec, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Arrow's Python objects. Raises OverflowError for times beyond Python's range."""
    # NumPy makes dates and times thirty times as fast as Arrow, but turns those beyond the year 9999 into integers.
    if not (isinstance(codec, Leaf) and codec.kind in ("date", "timestamp", "instant")):
        values: list[Any] = column.to_pylist()
        return values
    naive = column.cast(pa.timestamp("us")) if codec.kind == "instant" else column
    values = naive.to_numpy(zero_copy_only=False).tolist()
    if int in set(map(type, values)):
        raise OverflowError("date value out of range")
    return values


def column(codec: Codec, values: list[Any]) -> pa.Array:
    """Return values of the user's code as an Arrow array of the codec's type. Raises what `encode` raises, or ArrowInvalid."""
    if isinstance(codec, StructOf) and codec.takes(values):
        return _fields(codec, values)
    if not codec.exact(values):
        values = [codec.encode(v) for v in values]
    return pa.array(values, codec.arrow)


def _fields(codec: StructOf, values: list[Any]) -> pa.StructArray:
    """Return instances as an Arrow array of structs, field by field."""
    arrays, fields = [], []
    for name, field in codec.fields:
        value_of = attrgetter(name)
        arrays.append(column(field, [None if value is None else value_of(value) for value in values]))
        fields.append(pa.field(name, field.arrow))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=missing)


def decimal_leaf(precision: int, scale: int) -> Leaf:
    """Return the codec of DECIMAL(precision, scale)."""
    return Leaf("decimal", pa.decimal128(precision, scale))


def _of(value: Any, *classes: type) -> Any:
    if isinstance(value, classes):
        return value
    raise TypeError(f"{type(value).__qualname__} instead of {classes[0].__qualname__}")


def _date(value: Any, _: pa.DataType) -> dt.date:
    # A datetime is a date to Python; storing it would cut off its time.
    if isinstance(value, dt.datetime):
        raise TypeError("datetime instead of date")
    day: dt.date = _of(value, dt.date)
    return day


def _naive(value: Any, _: pa.DataType) -> Any:
    if _of(value, dt.datetime, dt.time).tzinfo is not None:
        raise TypeError("a value with a time zone where the type has none")
    return value


def _aware(value: Any, _: pa.DataType) -> dt.datetime:
    instant: dt.datetime = _of(value, dt.datetime)
    if instant.tzinfo is None:
        raise TypeError("a datetime without a time zone where the type has one")
    return instant.astimezone(dt.UTC)


def _decimal(value: Any, arrow: pa.DataType) -> Decimal:
    number = _of(value, Decimal, int, float)
    number = Decimal(repr(float(number))) if isinstance(number, float) else Decimal(number)
    # InvalidOperation (infinite, or too many digits) is an ArithmeticError, no ValueError.
    if not number.is_finite() or number.adjusted() >= 40:
        raise ValueError("out of range")
    return number.quantize(Decimal(1).scaleb(-arrow.scale), context=_DIGITS)


def _interval(value: Any) -> dt.timedelta:
    return dt.timedelta(days=value.days + 30 * value.months, microseconds=value.nanoseconds // 1000)


def _utc(value: dt.datetime) -> dt.datetime:
    # Arrow returns instants inside of another value in the session's zone; `objects` has read all others as UTC.
    return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


_ENCODE: dict[str, Callable[[Any, pa.DataType], Any]] = {
    "int": lambda v, _: int(_of(v, int)),
    "float": lambda v, _: float(_of(v, float, int)),
    "str": lambda v, _: str.__str__(_of(v, str)),
    "bool": lambda v, _: _of(v, bool),
    "bytes": lambda v, _: bytes(_of(v, bytes, bytearray, memoryview)),
    "date": _date,
    "time": lambda v, arrow: _naive(_of(v, dt.time), arrow),
    "timestamp": lambda v, arrow: _naive(_of(v, dt.datetime), arrow),
    "instant": _aware,
    "interval": lambda v, _: _of(v, dt.timedelta),
    "decimal": _decimal,
    "hugeint": lambda v, _: Decimal(_of(v, int)),
    "uuid": lambda v, _: str(_of(v, UUID)),
}
_DECODE: dict[str, Callable[[Any], Any]] = {"interval": _interval, "hugeint": int, "uuid": UUID, "instant": _utc}
_EXACT = {
    kind: frozenset({python, type(None)})
    for kind, python in {
        "int": int,
        "float": float,
        "str": str,
        "bool": bool,
        "bytes": bytes,
        "date": dt.date,
        "timestamp": dt.datetime,
    }.items()
}

# By DuckDB's type id. Nanoseconds, BIT, BIGNUM, UNION and the like have no Python value that keeps them whole.
LEAVES: dict[str, Leaf] = {
    "tinyint": Leaf("int", pa.int8()),
    "smallint": Leaf("int", pa.int16()),
    "integer": Leaf("int", pa.int32()),
    "bigint": Leaf("int", pa.int64()),
    "utinyint": Leaf("int", pa.uint8()),
    "usmallint": Leaf("int", pa.uint16()),
    "uinteger": Leaf("int", pa.uint32()),
    "ubigint": Leaf("int", pa.uint64()),
    "hugeint": Leaf("hugeint", pa.decimal128(38, 0)),
    "float": Leaf("float", pa.float32()),
    "double": Leaf("float", pa.float64()),
    "varchar": Leaf("str", pa.string()),
    "json": Leaf("str", pa.json_(pa.string())),
    "boolean": Leaf("bool", pa.bool_()),
    "blob": Leaf("bytes", pa.binary()),
    "date": Leaf("date", pa.date32()),
    "time": Leaf("time", pa.time64("us")),
    "timestamp": Leaf("timestamp", pa.timestamp("us")),
    "timestamp_s": Leaf("timestamp", pa.timestamp("s")),
    "timestamp_ms": Leaf("timestamp", pa.timestamp("ms")),
    "timestamp with time zone": Leaf("instant", pa.timestamp("us", "UTC")),
    "interval": Leaf("interval", pa.month_day_nano_interval()),
    "uuid": Leaf("uuid", pa.string()),
}
