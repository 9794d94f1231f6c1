"""The aggregate function of an AggregatingState: one of DuckDB's, or a class under `@udaf`."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import duckdb
import pyarrow as pa

from sqlstream.duck import databases
from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental
from sqlstream.duck.aggregates.calls import Partial, partial, reason, strategy
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, REFUSED, Kind
from sqlstream.duck.aggregates.partial_columns import Strategy
from sqlstream.duck.sql import quote_name
from sqlstream.errors import nearest
from sqlstream.functions import types
from sqlstream.functions.aggregates.declare import aggregate_steps
from sqlstream.functions.aggregates.steps import AggregateSteps
from sqlstream.functions.codecs import Codec, column, decoded
from sqlstream.functions.process.plain_aggregates import PlainAggregate, plain_aggregate

# Functions whose result depends on the order of rows, or that keep all values: their partial results do not merge.
_NOT_MERGING = (Kind.PICK, Kind.QUANTILE)


class UnsupportedAggregate(ValueError):
    """A state cannot use an aggregate function; the message is the reason."""


class Aggregator(ABC):
    """An aggregate function for the values of a state. Accumulators are Python objects; None is one without values."""

    # The type hint of an accumulator; None if it has none.
    hint: Any

    @property
    @abstractmethod
    def type(self) -> str:
        """The DuckDB type of an accumulator."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """Add a value, and return the new accumulator. It must be `settled` before it is stored or read."""

    @abstractmethod
    def settled(self, accumulators: Sequence[Any]) -> list[Any]:
        """Return the accumulators with all added values applied, as they are stored.

        Call it for many accumulators at once: that costs little more than one.
        """

    @abstractmethod
    def result(self, accumulator: Any) -> Any:
        """Return the result of a settled accumulator."""

    def opened(self) -> Self:
        """Return the function with its resource open."""
        return self

    def close(self) -> None:
        """Close the resource."""
        return


@dataclass(frozen=True, slots=True)
class _PendingValues:
    """An accumulator, and values that the next `settled` adds to it."""

    accumulator: Any
    values: list[Any]


@dataclass(frozen=True)
class RowAggregator(Aggregator):
    """A class under `@udaf` that is not vectorized: `add` calls it for each value."""

    steps: AggregateSteps
    hint: Any
    # Whether a value is a tuple of arguments.
    several: bool

    @property
    def type(self) -> str:
        return self.steps.accumulator.type

    def opened(self) -> Self:
        return replace(self, steps=self.steps.opened())

    def close(self) -> None:
        self.steps.close()

    def add(self, accumulator: Any, value: Any) -> Any:
        row = value if self.several else (value,)
        if any(v is None and not p.nullable for v, p in zip(row, self.steps.parameters, strict=False)):
            return accumulator
        if accumulator is None:
            accumulator = self._new()
        result = self.steps.resource.accumulate(accumulator, *row)
        return result if "accumulate" in self.steps.returning else accumulator

    def _new(self) -> Any:
        return self.steps.create() if self.steps.create is not None else self.steps.resource.create()

    def settled(self, accumulators: Sequence[Any]) -> list[Any]:
        return list(accumulators)

    def result(self, accumulator: Any) -> Any:
        return self.steps.resource.finish(self._new() if accumulator is None else accumulator)


@dataclass(frozen=True)
class DuckAggregator(Aggregator):
    """An aggregate function of DuckDB. `own` is the DuckDB type of its result, and `returns` the type to which `result` casts it.

    The most common functions run in Python, without DuckDB. For all others, `add` only collects values; `settled` aggregates the
    values of many keys in one query.
    """

    function: str
    parameters: tuple[str, ...]
    returns: str
    own: str
    partial: Partial
    hint: None = None

    @cached_property
    def type(self) -> str:
        columns = self.partial.columns
        if len(columns) == 1:
            return types.canonical(columns[0][1])
        return types.canonical(f"STRUCT({', '.join(f'{quote_name(n)} {t}' for n, t in columns)})")

    @cached_property
    def _codec(self) -> Codec:
        return types.codec(self.type)

    @cached_property
    def _codecs(self) -> tuple[Codec, ...]:
        return tuple(map(types.codec, self.parameters))

    @cached_property
    def _names(self) -> list[str]:
        return [name for name, _ in self.partial.columns]

    @cached_property
    def _plain(self) -> PlainAggregate | None:
        return plain_aggregate(self.function, self.parameters, self.own, self.returns)

    def add(self, accumulator: Any, value: Any) -> Any:
        if self._plain is not None:
            return accumulator if value is None else self._plain.add(accumulator, value)
        if isinstance(accumulator, _PendingValues):
            accumulator.values.append(value)
            return accumulator
        return _PendingValues(accumulator, [value])

    def settled(self, accumulators: Sequence[Any]) -> list[Any]:
        waiting = [n for n, one in enumerate(accumulators) if isinstance(one, _PendingValues)]
        if not waiting:
            return list(accumulators)
        stored = list(accumulators)
        merged = self._merged([accumulators[n] for n in waiting])
        for number, accumulator in zip(waiting, merged, strict=True):
            stored[number] = accumulator
        return stored

    def result(self, accumulator: Any) -> Any:
        if self._plain is not None:
            return self._plain.result(accumulator)
        with databases.passing() as con:
            con.register("_kept", self._table([0], [accumulator]))
            table = con.sql(f"SELECT CAST({self.partial.final} AS {self.returns}) FROM _kept").to_arrow_table()
        [value] = decoded(types.codec(self.returns), table.column(0))
        return value

    def _merged(self, waiting: Sequence[_PendingValues]) -> list[Any]:
        """Return the accumulators with their waiting values added."""
        rows = [value for one in waiting for value in one.values]
        numbers = [n for n, one in enumerate(waiting) for _ in one.values]
        columns = [rows] if len(self.parameters) == 1 else [*zip(*rows, strict=True)]
        values = {f"a{i}": column(c, [*v]) for i, (c, v) in enumerate(zip(self._codecs, columns, strict=True))}
        pairs = zip(self.partial.partial, self.partial.columns, strict=True)
        partial_items = ", ".join(f"CAST({sql} AS {type}) AS {name}" for sql, (name, type) in pairs)
        stored_items = ", ".join(f"CAST({name} AS {type}) AS {name}" for name, type in self.partial.columns)
        merged = [f"{sql} AS {name}" for sql, name in zip(self.partial.merge, self._names, strict=True)]
        both = f"SELECT n, {stored_items} FROM _kept UNION ALL SELECT n, {partial_items} FROM _values GROUP BY n"
        with databases.passing() as con:
            con.register("_kept", self._table(range(len(waiting)), [one.accumulator for one in waiting]))
            con.register("_values", pa.table({"n": pa.array(numbers, pa.int64()), **values}))
            table = con.sql(f"SELECT {', '.join(merged)} FROM ({both}) GROUP BY n ORDER BY n").to_arrow_table()
        if len(self._names) == 1:
            return decoded(self._codec, table.column(0).cast(self._codec.arrow))
        fields = [table.column(i).combine_chunks() for i in range(table.num_columns)]
        struct = pa.StructArray.from_arrays(fields, names=self._names).cast(self._codec.arrow)
        return decoded(self._codec, pa.chunked_array([struct]))

    def _table(self, numbers: Sequence[int], accumulators: Sequence[Any]) -> pa.Table:
        array = column(self._codec, list(accumulators))
        fields = [array] if len(self._names) == 1 else array.flatten()
        return pa.table([pa.array(numbers, pa.int64()), *fields], names=["n", *self._names])


def aggregator_of(aggregate: Any, value_hint: Any, result: Any, root: str) -> Aggregator:
    """Return the aggregate function of a state: `aggregate` is the name of one of DuckDB's, or a class under `@udaf`.

    `value_hint` and `result` are the type hints of an added value and of the result. Raises UnsupportedAggregate,
    types.UnusableType, and what `declare_aggregate` raises.
    """
    several = typing.get_origin(value_hint) is tuple and Ellipsis not in typing.get_args(value_hint)
    hints = typing.get_args(value_hint) if several else (value_hint,)
    parameters = tuple(types.canonical(types.sql_type(hint)) for hint in hints)
    returns = types.canonical(types.sql_type(result))
    if isinstance(aggregate, str):
        return _of_duckdb(aggregate, parameters, returns)
    if isinstance(aggregate, type):
        return _of_class(aggregate, parameters, returns, several, root)
    raise UnsupportedAggregate(
        f"{aggregate!r} is no aggregate: write the name of one of DuckDB's, or a class under @udaf"
    )


def _of_class(aggregate_class: type, parameters: tuple[str, ...], returns: str, several: bool, root: str) -> Aggregator:
    steps, hint = aggregate_steps(aggregate_class, root)
    if steps.vectorized:
        raise UnsupportedAggregate(f"{aggregate_class.__name__} is vectorized: a state takes value by value")
    parameter_types = [p.type for p in steps.parameters]
    needed = sum(p.default is None for p in steps.parameters)
    if not needed <= len(parameters) <= len(parameter_types) or [*parameters] != parameter_types[: len(parameters)]:
        raise UnsupportedAggregate(
            f"{aggregate_class.__name__} takes ({', '.join(parameter_types)}), not ({', '.join(parameters)})"
        )
    if returns != types.canonical(steps.returns):
        raise UnsupportedAggregate(f"{aggregate_class.__name__} returns {steps.returns}, not {returns}")
    return RowAggregator(steps, hint, several)


def _of_duckdb(name: str, parameters: tuple[str, ...], returns: str) -> Aggregator:
    function = ALIASES.get(name.lower(), name.lower())
    if function not in FUNCTIONS:
        suggestion = f"; did you mean {near}?" if (near := nearest(name.lower(), FUNCTIONS)) else ""
        raise UnsupportedAggregate(REFUSED.get(function) or f"DuckDB has no aggregate {name}{suggestion}")
    shape = FUNCTIONS[function]
    arguments = tuple(f"a{i}" for i in range(len(parameters)))
    if any(index < len(arguments) for index in shape.constants) or function in ("approx_quantile", "approx_top_k"):
        raise UnsupportedAggregate(f"{name} takes a constant, which a state has none for")
    typed = ", ".join(f"CAST(NULL AS {type})" for type in parameters)
    try:
        with databases.passing() as con:
            query = f"SELECT typeof(v), CAST(v AS {returns}) FROM (SELECT {function}({typed}) AS v)"
            [(own, _)] = con.execute(query).fetchall()
    except duckdb.Error as error:
        raise UnsupportedAggregate(str(error).splitlines()[0]) from error
    call = AggregateCall(function, arguments, parameters, result_type=own)
    if shape.kind in _NOT_MERGING or strategy(call) not in (Strategy.PLAIN, Strategy.STATE):
        why = reason(call) or "it keeps all values"
        raise UnsupportedAggregate(f"{name} does not merge: {why}")
    try:
        aggregator = DuckAggregator(function, parameters, returns, own, partial(call, "part"))
    except NotIncremental as error:
        raise UnsupportedAggregate(str(error)) from error
    # Python must be able to hold an accumulator.
    types.codec(aggregator.type)
    return aggregator
