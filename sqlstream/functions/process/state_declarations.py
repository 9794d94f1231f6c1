"""The states that the class of a process function declares."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from sqlstream.catalog import ROW, StateDeclaration
from sqlstream.errors import BindError, Span
from sqlstream.functions import source_locations, types
from sqlstream.functions.codecs import column
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.aggregating import Aggregator, UnsupportedAggregate, aggregator_of
from sqlstream.functions.process.api import NO_DEFAULT, DeclaredSideOutput, DeclaredState
from sqlstream.functions.process.shapes import is_row
from sqlstream.functions.process.states import KINDS, AggregatingState, MapState, ReducingState, ValueState
from sqlstream.units import Duration, duration_of, parse_duration

# The type parameters of states that have others than T.
_PARTS: dict[Any, tuple[str, ...]] = {MapState: ("K", "V"), AggregatingState: ("IN", "OUT")}
D = TypeVar("D", DeclaredState, DeclaredSideOutput)


def declared_by(process_class: type, kind: type[D]) -> dict[str, D]:
    """Return the declarations of a kind in a class and its base classes, by name."""
    bases = reversed(process_class.__mro__)
    return {n: one for base in bases for n, one in vars(base).items() if isinstance(one, kind)}


def class_hints(process_class: type, name: str, location: str) -> Mapping[str, Any]:
    """Return the type hints of a class. Raises BindError if one cannot be evaluated."""
    try:
        return typing.get_type_hints(process_class, include_extras=True)
    except Exception as error:
        message = f'the type hints of "{name}" cannot be evaluated: {error}'
        raise BindError(message, detail=f" --> {location}") from error


class StateDeclarations:
    """Reads the states that the class of the process function `name` declares.

    `states` fills `hints` with the type hints of the stored values of each state, and `aggregates` with the functions of
    aggregating states, both by the name of the state.
    """

    def __init__(self, process_class: type, name: str, root: str, vectorized: str | None, location: str):
        self.process_class, self.name, self.root = process_class, name, root
        self.vectorized, self.location = vectorized, location
        self.hints: dict[str, tuple[Any, ...]] = {}
        self.aggregates: dict[str, Aggregator] = {}

    def states(self) -> tuple[StateDeclaration, ...]:
        """Return the states in the order of their declarations. Raises BindError, with the position."""
        declarations = declared_by(self.process_class, DeclaredState)
        self._check_all_declared(declarations)
        classes = class_hints(self.process_class, self.name, self.location) if declarations else {}
        return tuple(self._state(name, one, classes.get(name)) for name, one in declarations.items())

    def _check_all_declared(self, declarations: Mapping[str, DeclaredState]) -> None:
        """Raise BindError for an annotated state to which nothing is assigned: it would be missing at the first row."""
        hints: Mapping[str, Any] = {}
        # Hints that nobody evaluates may be for a type checker alone.
        with suppress(Exception):
            hints = typing.get_type_hints(self.process_class, include_extras=True)
        for name, hint in hints.items():
            if typing.get_origin(hint) in KINDS and name not in declarations and not hasattr(self.process_class, name):
                kind = typing.get_origin(hint).__name__
                what = f'state "{name}" of process function "{self.name}" is annotated, but not declared'
                raise self._error(what, self._span_of(name), f"Write {name}: {kind}[..] = state().")

    def _state(self, name: str, one: DeclaredState, annotation: Any) -> StateDeclaration:
        what = f'state "{name}" of process function "{self.name}"'
        span = source_locations.assignment(self.process_class, name, self.root)
        handle, parts = typing.get_origin(annotation), typing.get_args(annotation)
        if handle not in KINDS or len(parts) != len(_PARTS.get(handle, "T")):
            usable = ", ".join(f"{c.__name__}[{', '.join(_PARTS.get(c, 'T'))}]" for c in KINDS)
            raise self._error(f"{what} has no kind", span, f"Usable are {usable}: {name}: ValueState[int] = state().")
        try:
            if handle is AggregatingState or one.aggregate is not None:
                parts = self._aggregated(name, one, handle, parts, what, span)
                sql = [self.aggregates[name].type]
            else:
                sql = self._types(handle, parts, what, span)
        except types.UnusableType as error:
            raise self._error(f"{what} has no usable type: {error}", span, f"{types.USABLE}.") from error
        if (one.reduce is None) == (handle is ReducingState):
            hint = f"A ReducingState has one, and no other state: {name}: ReducingState[int] = state(reduce=max)."
            raise self._error(f"{what} has {'no' if one.reduce is None else 'a'} function reduce", span, hint)
        self._check_default(one, handle, parts, sql, what, span)
        key_type = sql[0] if handle is MapState else None
        self.hints[name] = parts
        return StateDeclaration(
            name,
            KINDS[handle],
            sql[-1],
            key_type,
            self._ttl(one, what, span),
            one.refresh,
            one.visibility == "until_cleaned",
            one.broadcast,
        )

    def _types(self, handle: Any, parts: tuple[Any, ...], what: str, span: Span | None) -> list[str]:
        """Return the DuckDB types of what a state stores; ROW for a `Row`, whose columns a call sets. Raises UnusableType."""
        if not is_row(parts[-1]):
            return [types.canonical(types.sql_type(part)) for part in parts]
        if self.vectorized:
            hint = "Write a dataclass with the columns in place of Row."
            raise self._error(f"{what} is a Row, but its methods get Arrow tables", span, hint)
        return [*(types.canonical(types.sql_type(part)) for part in parts[:-1]), ROW]

    def _check_default(
        self, one: DeclaredState, handle: Any, parts: tuple[Any, ...], sql: list[str], what: str, span: Span | None
    ) -> None:
        """Raise BindError if a state cannot have a default, or the default is not of its type."""
        if one.default is NO_DEFAULT:
            return
        if handle is not ValueState or self.vectorized == "bucket" or sql[0] == ROW:
            hint = "A ValueState has one, of a type but Row, where the class gets its rows key by key."
            raise self._error(f"{what} has a default", span, hint)
        try:
            column(types.codec(sql[0], parts[0]), [one.default])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._error(f"the default of {what}, {shown(one.default, 200)}, is no {sql[0]}", span) from error

    def _aggregated(
        self, name: str, one: DeclaredState, handle: Any, parts: tuple[Any, ...], what: str, span: Span | None
    ) -> tuple[Any, ...]:
        """Record the aggregate function of a state; return the hint of what is stored: its accumulator."""
        form = f'{name}: AggregatingState[float, float] = state(aggregate="avg")'
        hint = f"An AggregatingState has one, and no other state: {form}."
        if handle is not AggregatingState or one.aggregate is None:
            raise self._error(f"{what} has {'no' if one.aggregate is None else 'an'} aggregate", span, hint)
        if one.broadcast:
            raise self._error(f"{what} aggregates, and is broadcast", span, "Keep a ValueState, and compute its value.")
        if self.vectorized == "bucket":
            hint = "Keep a value, and aggregate with Arrow. @process(vectorized=True) takes such states."
            raise self._error(f"{what} aggregates, and is vectorized by bucket", span, hint)
        try:
            self.aggregates[name] = aggregator_of(one.aggregate, parts[0], parts[1], self.root)
        except UnsupportedAggregate as error:
            raise self._error(f"{what} cannot aggregate: {error}", span) from error
        return (self.aggregates[name].hint,)

    def _ttl(self, one: DeclaredState, what: str, span: Span | None) -> Duration | None:
        if one.refresh not in ("write", "read") or one.visibility not in ("never", "until_cleaned"):
            hint = 'refresh is "write" or "read", visibility "never" or "until_cleaned".'
            raise self._error(f"{what} has options that do not exist", span, hint)
        if one.ttl is None:
            return None
        try:
            return parse_duration(one.ttl, unit=None) if isinstance(one.ttl, str) else duration_of(one.ttl)
        except (TypeError, ValueError) as error:
            raise self._error(f"{what}: {error}", span, 'Write state(ttl="1 h").') from error

    def _span_of(self, name: str) -> Span | None:
        return source_locations.assignment(self.process_class, name, self.root)

    def _error(self, message: str, span: Span | None = None, hint: str | None = None) -> BindError:
        return BindError(message, span or source_locations.class_definition(self.process_class, self.root), hint=hint)
