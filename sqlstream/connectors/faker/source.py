"""The `faker` source: rows that are made up from a seed and their numbers, each column by an expression.

It has the options of Flink's connector `faker` (https://github.com/knaufk/flink-faker); `seed` is an extension. The nth row is
always the same, on any worker, except for times, which count from the time of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from random import Random
from typing import Any, cast

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from sqlstream.catalog import Table
from sqlstream.connectors.extras import imported
from sqlstream.connectors.faker.expressions import ValueContext, parse, time_of
from sqlstream.connectors.generated_rows import RowRange
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck import databases
from sqlstream.duck.sql import Relation, Select, quote_name
from sqlstream.errors import BindError, UnsupportedError, missing
from sqlstream.units import ProcessingTime, parse_count

DEFAULT_RATE = 10_000
FIELD_OPTIONS = ("expression", "null-rate", "length")
_NUMBER = "_row_number"
_numbers = itertools.count()
# Makes a value, of texts, of the row with a number.
_Values = Callable[[int, datetime], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """A value to make up: a column, or a part inside of it. `path` is its name in the options `fields.<path>.*`."""

    path: str
    type: DuckDBPyType

    def option(self, key: str) -> str:
        return f"fields.{self.path}.{key}"

    def parts(self) -> list[tuple[str, _Field]]:
        """Return the fields of a ROW, or key and value of a MAP; the element of an ARRAY has the array's own options."""
        if self.type.id not in ("struct", "map"):
            return []
        children = cast(list[tuple[str, DuckDBPyType]], self.type.children)
        return [(name, _Field(f"{self.path}.{name}", kind)) for name, kind in children]


class FakeRows:
    """Makes the rows of a table."""

    def __init__(self, table: Table):
        self._table, self._options = table, table.options
        self._specs = [_Field(c.name, DuckDBPyType(c.type)) for c in table.stored]
        self._seed = table.options.get("seed", "0").strip()

    @property
    def rate(self) -> float:
        """Rows per second."""
        return int(self._options.get("rows-per-second", DEFAULT_RATE))

    @property
    def total(self) -> int | None:
        """The number of rows, None without a limit."""
        return int(self._options["number-of-rows"]) if "number-of-rows" in self._options else None

    def field_options(self) -> list[str]:
        """Return the names of the options of columns, and of those that are set for unknown columns."""
        names = (name for name in self._options if name.startswith("fields."))
        return list(dict.fromkeys([*(p.option(key) for p in self._all(self._specs) for key in FIELD_OPTIONS), *names]))

    def validate(self) -> None:
        """Raise BindError for options that do not fit the columns, or whose expressions are wrong."""
        by_option = {spec.option(key): spec for spec in self._all(self._specs) for key in FIELD_OPTIONS}
        for name, text in self._options.items():
            if not name.startswith("fields."):
                continue
            if name not in by_option:
                paths = [spec.path for spec in self._all(self._specs)]
                path, _, key = name.removeprefix("fields.").rpartition(".")
                is_column = path in paths
                hint = missing("option", key, FIELD_OPTIONS) if is_column else missing("column", path, paths)
                raise self._wrong(f'option "{name}" does not exist', name, hint=hint)
            self._check_option(name, text)
        for spec in self._specs:
            self._check(spec)

    def _check(self, spec: _Field) -> None:
        if spec.type.id == "list":
            [(_, element)] = cast(list[tuple[str, DuckDBPyType]], spec.type.children)
            if element.id in ("list", "struct", "map"):
                hint = "Leave the column out, and compute it in the query."
                raise UnsupportedError(f"a made-up column of type {spec.type}", self._table.span, hint=hint)
        elif spec.parts():
            for _, part in spec.parts():
                self._check(part)
            return
        if spec.option("expression") not in self._options:
            hint = f"Write '{spec.option('expression')}' = '#{{Name.fullName}}', or another expression."
            raise self._wrong(f'column "{spec.path}" has no expression', hint=hint)

    def _check_option(self, name: str, text: str) -> None:
        try:
            _CHECKS[name.rpartition(".")[2]](text)
        except ValueError as error:
            raise self._wrong(f'option "{name}": {error}', name, value=True) from None

    def _wrong(self, message: str, option: str = "", *, value: bool = False, hint: str | None = None) -> BindError:
        at = self._table.option_span(option, value=value)
        return BindError(f'table "{self._table.name}": {message}', at, hint=hint)

    def _all(self, specs: Sequence[_Field]) -> Iterator[_Field]:
        for spec in specs:
            yield spec
            yield from self._all([part for _, part in spec.parts()])

    def check_sample(self) -> None:
        """Raise UsageError if Faker is not installed, BindError if the first row does not fit the columns' types."""
        imported(self._table, "faker", ["faker"], called="Faker")
        for spec in self._specs:
            value = self._maker(spec)(0, time_of(0))
            with databases.passing() as con:
                con.register(_NUMBER, pa.table({"value": pa.array([value], _arrow(spec.type))}))
                try:
                    con.execute(f"SELECT CAST(value AS {spec.type}) FROM {_NUMBER}").fetchall()
                except duckdb.Error:
                    message = f'"{value}" of column "{spec.path}" is no {spec.type}'
                    raise self._wrong(message, spec.option("expression"), value=True) from None

    # -- rows

    def rows(self, first: int, end: int, time: ProcessingTime) -> pa.Table:
        """Return the rows [first, end), as texts, with their numbers; `time` is the time of the batch."""
        now = time_of(time)
        columns: dict[str, pa.Array] = {}
        for number, spec in enumerate(self._specs):
            make = self._maker(spec)
            columns[f"_{number}"] = pa.array([make(n, now) for n in range(first, end)], _arrow(spec.type))
        columns[_NUMBER] = pa.array(range(first, end), pa.int64())
        return pa.table(columns)

    def sql(self, relation: str) -> Select:
        """Return the rows of a relation of `rows`, with the table's physical columns."""
        items = [f"CAST(_{number} AS {c.type}) AS {quote_name(c.name)}" for number, c in enumerate(self._table.stored)]
        # The only metadata is the row's number.
        items += [f"{_NUMBER} AS {quote_name(c.name)}" for c in self._table.physical if c.metadata]
        return Select(f"SELECT {', '.join(items) or '1'} FROM {relation}")

    def _maker(self, spec: _Field) -> _Values:
        share = float(self._options.get(spec.option("null-rate"), "0"))
        make = self._present(spec)
        if not share:
            return make
        return lambda n, now: None if self._random(spec, n, "?").random() < share else make(n, now)

    def _present(self, spec: _Field) -> _Values:
        if spec.type.id == "struct":
            fields = [(name, self._maker(part)) for name, part in spec.parts()]
            return lambda n, now: {name: make(n, now) for name, make in fields}
        if spec.type.id == "map":
            (_, key), (_, value) = spec.parts()
            count = int(self._options.get(spec.option("length"), "1"))
            keys, values = self._repeated(key, count), self._repeated(value, count)
            return lambda n, now: list(dict(zip(keys(n, now), values(n, now), strict=True)).items())
        if spec.type.id == "list":
            return self._repeated(spec, int(self._options.get(spec.option("length"), "1")))
        repeated = self._repeated(spec, 1)
        return lambda n, now: repeated(n, now)[0]

    def _repeated(self, spec: _Field, count: int) -> Callable[[int, datetime], list[str]]:
        """Return the function that makes `count` texts from the expression of a value, for a row number and the batch's time."""
        from faker import Faker

        make, fake = parse(self._options[spec.option("expression")]), Faker("en_US", use_weighting=False).factories[0]

        def texts(n: int, now: datetime) -> list[str]:
            random = self._random(spec, n)
            fake.random = random
            return [make(ValueContext(random, fake, now)) for _ in range(count)]

        return texts

    def _random(self, spec: _Field, n: int, salt: str = "") -> Random:
        key = f"{self._seed}/{spec.path}/{salt}/{n}".encode()
        return Random(int.from_bytes(blake2b(key, digest_size=8).digest(), "big"))


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise ValueError(f'"{text}" is not between 0 and 1')
    return share


_CHECKS: Mapping[str, Callable[[str], object]] = {"expression": parse, "null-rate": _share, "length": parse_count}


def _arrow(kind: DuckDBPyType) -> pa.DataType:
    """Return the type of made-up values, in which every scalar is a text."""
    children = cast(list[tuple[str, DuckDBPyType]], kind.children) if kind.id in ("struct", "map", "list") else []
    match kind.id:
        case "struct":
            return pa.struct([(name, _arrow(child)) for name, child in children])
        case "map":
            return pa.map_(pa.string(), pa.string())
        case "list":
            return pa.list_(pa.string())
    return pa.string()


def read_fake(
    con: duckdb.DuckDBPyConnection, splits: Sequence[RowRange], table: Table, time: ProcessingTime
) -> ReadPlan:
    """Return the plan of some rows, which are made up now; `time` is the time of their batch, in microseconds since 1970."""
    fake = FakeRows(table)
    relation = Relation(f"_faked_{next(_numbers)}")
    con.register(relation, pa.concat_tables([fake.rows(s.first, s.end, time) for s in splits]))
    return ReadPlan(fake.sql(relation), keep=True)
