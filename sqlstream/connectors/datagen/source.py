"""The `datagen` source: rows that are computed from a seed and their numbers, each column by a DuckDB expression.

Options are Flink's (https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/datagen/); `seed` is an extension.
The nth row is always the same, on any worker, except for dates and times, which count back from the time of the batch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import cast

from duckdb.sqltypes import DuckDBPyType

from sqlstream.catalog import Table
from sqlstream.connectors.generated_rows import RowRange
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.sql import Select, quote_name, quote_text, union_all
from sqlstream.errors import BindError, UnsupportedError, missing
from sqlstream.units import ProcessingTime, parse_boolean, parse_count, parse_duration

DEFAULT_RATE = 10_000
_INTEGERS = {"tinyint": 8, "smallint": 16, "integer": 32, "bigint": 64}
_UNSIGNED = {"utinyint": 8, "usmallint": 16, "uinteger": 32, "ubigint": 64}
_FLOATS = {"float": Decimal("3.4028235e38"), "double": Decimal(repr(sys.float_info.max))}
_NUMBERS = {*_INTEGERS, *_UNSIGNED, *_FLOATS, "decimal"}
_TEXTS = {"varchar", "blob"}
_TIMESTAMPS = {"timestamp", "timestamp with time zone"}
# The options of a column, after `fields.<name>.`.
FIELD_OPTIONS = ("kind", "min", "max", "max-past", "length", "var-len", "start", "end", "null-rate")
_OF_SEQUENCES = ("kind", "start", "end")
_ENDS = tuple(f".{key}" for key in FIELD_OPTIONS)
# A hash has 64 bits, a double 53.
_HASHES = "18446744073709551616.0"


@dataclass(frozen=True, slots=True)
class _Value:
    """A value to generate: a column, or a field or element inside of it. `path` is its name in the options `fields.<path>.*`."""

    path: str
    type: DuckDBPyType
    # The index of an element of an array, such as "[2]", as each element is drawn separately.
    suffix: str = ""

    @property
    def id(self) -> str:
        return str(self.type.id)

    def parts(self) -> list[tuple[str, _Value]]:
        """Return the fields of a ROW, or the element of an ARRAY."""
        if self.id not in ("struct", "list"):
            return []
        children = cast(list[tuple[str, DuckDBPyType]], self.type.children)
        names = {"list": "element"}
        return [(name, _Value(f"{self.path}.{names.get(self.id, name)}", type, self.suffix)) for name, type in children]


def whole(text: str) -> int:
    """Return a whole number, which may be negative. Raises ValueError with a message for users."""
    if not re.fullmatch(r"-?\d+", text.strip()):
        raise ValueError(f'"{text}" is not a whole number')
    return int(text)


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f'"{text}" is not a number') from None
    if not number.is_finite():
        raise ValueError(f'"{text}" is not a number')
    return number


def _share(text: str) -> Decimal:
    if not 0 <= (share := _number(text)) <= 1:
        raise ValueError(f'"{text}" is not between 0 and 1')
    return share


def _kind(text: str) -> str:
    if text not in ("random", "sequence"):
        raise ValueError(f'"{text}" is not random or sequence')
    return text


class Generator:
    """The generator of a table: its columns as expressions over the row's number `n`."""

    def __init__(self, table: Table):
        self._table, self._options = table, table.options
        self._columns = [_Value(c.name, DuckDBPyType(c.type)) for c in table.stored]
        self._seed = table.options.get("seed", "0").strip()

    @property
    def rate(self) -> float:
        """Rows per second."""
        return int(self._options.get("rows-per-second", DEFAULT_RATE))

    @property
    def total(self) -> int | None:
        """The number of rows: `number-of-rows`, or the length of the shortest sequence if that is less; None without a limit."""
        bounds = [int(self._options["number-of-rows"])] if "number-of-rows" in self._options else []
        for value in self._values():
            if self._option(value, "kind", "random") == "sequence":
                bounds.append(self._whole(value, "end") - self._whole(value, "start") + 1)
        return min(bounds, default=None)

    def sql(self, first: int, end: int, time: ProcessingTime) -> Select:
        """Return the rows [first, end), with the table's physical columns; `time` is the time of the batch."""
        items = ", ".join(
            f"CAST({self._expression(v, time)} AS {c.type}) AS {quote_name(c.name)}"
            for v, c in zip(self._columns, self._table.stored, strict=True)
        )
        # The only metadata is the row's number.
        numbers = [f"n AS {quote_name(c.name)}" for c in self._table.physical if c.metadata]
        items = ", ".join(filter(None, [items, *numbers]))
        return Select(f"SELECT {items or '1'} FROM range({first}, {end}) _rows(n)")

    def field_options(self) -> list[str]:
        """Return the names of the options `fields.*` of the columns, and of those that are set for unknown columns."""
        names = (name for name in self._options if name.startswith("fields.") and name.endswith(_ENDS))
        return list(dict.fromkeys([*(f"fields.{v.path}.{k}" for v in self._values() for k in FIELD_OPTIONS), *names]))

    def validate(self) -> None:
        """Raise BindError or UnsupportedError for options that do not fit the columns."""
        paths = {v.path: v for v in self._values()}
        for name, text in self._options.items():
            if not name.startswith("fields."):
                continue
            path, _, key = name.removeprefix("fields.").rpartition(".")
            if path not in paths:
                raise self._wrong(f'option "{name}": no column "{path}"', missing("column", path, paths), name)
            self._check_field(paths[path], key, name, text)
        for value in self._values():
            self._check_value(value)

    def _check_field(self, value: _Value, key: str, name: str, text: str) -> None:
        fits = {
            "min": value.id in _NUMBERS,
            "max": value.id in _NUMBERS,
            "max-past": value.id in _TIMESTAMPS,
            "length": value.id in (*_TEXTS, "list"),
            "var-len": value.id in _TEXTS,
            "start": self._option(value, "kind", "random") == "sequence",
            "end": self._option(value, "kind", "random") == "sequence",
        }
        if key in ("start", "end") and not fits[key]:
            raise self._wrong(f'option "{name}" needs "fields.{value.path}.kind" = "sequence"', None, name)
        if self._option(value, "kind", "random") == "sequence" and key not in _OF_SEQUENCES:
            hint = f"A sequence is set by fields.{value.path}.start and .end."
            raise self._wrong(f'option "{name}" does not fit a sequence', hint, name)
        if not fits.get(key, True):
            raise self._wrong(f'option "{name}" does not fit a column of type {value.type}', None, name)
        number: Callable[[str], object] = whole if value.id in _INTEGERS or value.id in _UNSIGNED else _number
        checks: dict[str, Callable[[str], object]] = {
            "kind": _kind,
            "min": number,
            "max": number,
            "start": whole,
            "end": whole,
            "max-past": parse_duration,
            "length": parse_count,
            "var-len": parse_boolean,
            "null-rate": _share,
        }
        self._checked(name, text, checks[key])

    def _check_value(self, value: _Value) -> None:
        if value.id not in (*_NUMBERS, *_TEXTS, *_TIMESTAMPS, "boolean", "date", "time", "struct", "list"):
            hint = "Leave the column out, and compute it in the query."
            raise UnsupportedError(f"a generated column of type {value.type}", self._table.span, hint=hint)
        if self._option(value, "kind", "random") == "sequence":
            if value.id not in (*_NUMBERS, "varchar"):
                raise self._wrong(f'column "{value.path}" of type {value.type} cannot be a sequence', None)
            for key in ("start", "end"):
                if self._option(value, key) is None:
                    raise self._wrong(f'a sequence needs the option "fields.{value.path}.{key}"', None)
                self._check_range(value, key)
            if self._whole(value, "end") < self._whole(value, "start"):
                raise self._wrong(f'the sequence of column "{value.path}" ends before it starts', None)
        if value.id in _NUMBERS:
            for key in ("min", "max"):
                self._check_range(value, key)
            low, high = self._bounds(value)
            if low > high:
                raise self._wrong(f'the minimum of column "{value.path}" is above its maximum', None)

    def _check_range(self, value: _Value, key: str) -> None:
        """Raise BindError for a bound of random numbers or of a sequence that is out of the range of the column's type."""
        text = self._option(value, key)
        least, greatest = _limits(value.type)
        if text is not None and not least <= _number(text) <= greatest:
            holder = "a sequence of texts" if value.id in _TEXTS else f"{value.type}"
            message = f'option "fields.{value.path}.{key}": {holder} holds {least} to {greatest}'
            raise self._wrong(message, None, f"fields.{value.path}.{key}", value=True)

    def _checked(self, name: str, text: str, check: Callable[[str], object]) -> None:
        try:
            check(text)
        except ValueError as error:
            raise self._wrong(f'option "{name}": {error}', None, name, value=True) from None

    def _wrong(self, message: str, hint: str | None, option: str = "", *, value: bool = False) -> BindError:
        """Return an error about the table, or about one of its options."""
        at = self._table.option_span(option, value=value)
        return BindError(f'table "{self._table.name}": {message}', at, hint=hint)

    def _values(self, values: Sequence[_Value] | None = None) -> Iterator[_Value]:
        for value in self._columns if values is None else values:
            yield value
            yield from self._values([part for _, part in value.parts()])

    def _option(self, value: _Value, key: str, default: str | None = None) -> str | None:
        return self._options.get(f"fields.{value.path}.{key}", default)

    def _whole(self, value: _Value, key: str) -> int:
        return int(self._option(value, key) or "0")

    # -- expressions

    def _hash(self, value: _Value, salt: str = "") -> str:
        return f"hash(n, {self._seed}, {quote_text(value.path + value.suffix + salt)})"

    def _expression(self, value: _Value, time: ProcessingTime) -> str:
        if self._option(value, "kind", "random") == "sequence":
            return self._sequence(value)
        drawn = self._drawn(value, time)
        share = float(self._option(value, "null-rate", "0") or "0")
        return f"CASE WHEN {self._hash(value, '?')} / {_HASHES} >= {share} THEN {drawn} END" if share else drawn

    def _sequence(self, value: _Value) -> str:
        start, end = self._whole(value, "start"), self._whole(value, "end")
        if end < 1 << 63:
            return f"n + {start}"
        return f"n + {start}::{'DOUBLE' if value.id in _FLOATS else 'HUGEINT'}"

    def _drawn(self, value: _Value, time: ProcessingTime) -> str:
        number = self._hash(value)
        match value.id:
            case "boolean":
                return f"{number} % 2 = 0"
            case "date":
                return f"CAST(make_timestamp({time}) AS DATE)"
            case "time":
                return f"CAST(make_timestamp({time}) AS TIME)"
            case "timestamp" | "timestamp with time zone":
                past = parse_duration(self._option(value, "max-past", "0") or "0")
                zoned = "tz" if value.id != "timestamp" else ""
                back = f" - CAST({number} % {past + 1} AS BIGINT)" if past else ""
                return f"make_timestamp{zoned}({time}{back})"
            case "varchar" | "blob":
                return self._text(value)
            case "struct":
                fields = (f"{quote_name(n)} := {self._expression(v, time)}" for n, v in value.parts())
                return f"struct_pack({', '.join(fields)})"
            case "list":
                return self._list(value, time)
        low, high = self._bounds(value)
        if value.id in _INTEGERS or value.id in _UNSIGNED:
            span = int(high) - int(low) + 1
            if span >= 1 << 63:
                return f"CAST({number} AS HUGEINT) % {span} + {int(low)}::HUGEINT"
            return f"CAST({number} % {span} AS BIGINT) + {int(low)}"
        if high - low <= sys.float_info.max:
            return f"{low}::DOUBLE + {number} / {_HASHES} * {high - low}::DOUBLE"
        return f"{low}::DOUBLE * (1 - {number} / {_HASHES}) + {high}::DOUBLE * ({number} / {_HASHES})"

    def _bounds(self, value: _Value) -> tuple[float, float]:
        """Return the least and the greatest value that a number may have."""
        least, greatest = _range(value.type)
        number = int if value.id in _INTEGERS or value.id in _UNSIGNED else float
        low, high = self._option(value, "min"), self._option(value, "max")
        return number(low) if low else least, number(high) if high else greatest

    def _text(self, value: _Value) -> str:
        """Return the SQL of a random text of `length` hexadecimal digits; with `var-len`, of 1 to `length` digits."""
        length = int(self._option(value, "length", "100" if value.id == "varchar" else "50") or 0)
        chunks = -(-length // 32)
        # `concat`, as DuckDB limits how deeply `||` is nested.
        digits = ", ".join(
            f"md5({quote_text(f'{self._seed}/{value.path}{value.suffix}/{i}/')} || n)" for i in range(chunks)
        )
        length_sql = str(length)
        if parse_boolean(self._option(value, "var-len", "false") or "false"):
            length_sql = f"CAST(1 + {self._hash(value, '#')} % {length} AS BIGINT)"
        text = f"substr(concat({digits}), 1, {length_sql})"
        return f"encode({text})" if value.id == "blob" else text

    def _list(self, value: _Value, time: ProcessingTime) -> str:
        length = int(self._option(value, "length", "3") or 0)
        [(_, element)] = value.parts()
        values = (_Value(element.path, element.type, f"{value.suffix}[{i}]") for i in range(length))
        return f"[{', '.join(self._expression(v, time) for v in values)}]"


def _limits(type: DuckDBPyType) -> tuple[int | Decimal, int | Decimal]:
    """Return the least and the greatest number that a type holds; for a text, the range of BIGINT, for sequences."""
    name = str(type.id)
    if name in _FLOATS:
        return _FLOATS[name].copy_negate(), _FLOATS[name]
    if name == "decimal":
        precision, scale = map(int, re.findall(r"\d+", str(type)))
        greatest = Decimal((0, (9,) * precision, -scale))
        return greatest.copy_negate(), greatest
    if name in _UNSIGNED:
        return 0, (1 << _UNSIGNED[name]) - 1
    half = 1 << (_INTEGERS.get(name, 64) - 1)
    return -half, half - 1


def _range(type: DuckDBPyType) -> tuple[float, float]:
    """Return the default bounds (least, greatest) of the random numbers of a type."""
    name = str(type.id)
    if name in _INTEGERS or name in _UNSIGNED:
        least, greatest_whole = _limits(type)
        return int(least), int(greatest_whole)
    if name == "decimal":
        precision, scale = map(int, re.findall(r"\d+", str(type)))
        # A double has no more digits.
        return 0.0, 10.0 ** min(precision - scale, 15) - 10.0**-scale
    greatest = 3.4e38 if name == "float" else 8e307
    return -greatest, greatest


def read_generated(splits: Sequence[RowRange], table: Table, time: ProcessingTime) -> ReadPlan:
    """Return the plan that generates some rows; `time` is the time of their batch, in microseconds since 1970."""
    generator = Generator(table)
    return ReadPlan(union_all(generator.sql(s.first, s.end, time) for s in splits))
