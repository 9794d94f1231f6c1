"""Declares aggregate functions: from a Python class to an `AggregateFunction` of the catalog."""

from __future__ import annotations

import datetime as dt
import inspect
import os
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from types import FunctionType
from typing import Any, ClassVar
from uuid import UUID

from sqlstream.catalog import AggregateFunction
from sqlstream.errors import BindError
from sqlstream.functions import source_locations, types
from sqlstream.functions.aggregates.api import mark_of
from sqlstream.functions.aggregates.steps import AggregateSteps
from sqlstream.functions.codecs import Codec
from sqlstream.functions.declaration import Declaration, sql_name
from sqlstream.functions.decorators import FunctionOptions
from sqlstream.functions.rows import RowType, row_type

# The column of accumulators that are no structs.
VALUE = "value"
_OPTIONAL = ("create", "merge", "retract")
# Accumulators of these types are immutable: methods return new ones.
_UNCHANGEABLE = (int, float, str, bytes, dt.date, dt.time, dt.timedelta, Decimal, UUID, Enum)
# Names of Flink's methods, with the name of each here and an example.
_OF_FLINK = {
    **dict.fromkeys(("create_accumulator", "createAccumulator"), ("create", "def create(self) -> Acc: ..")),
    **dict.fromkeys(("get_value", "getValue"), ("finish", "def finish(self, acc: Acc) -> int: ..")),
}


def declare_aggregate(aggregate_class: type, *, name: str | None = None, root: str | None = None) -> AggregateFunction:
    """Return the catalog's entry of a class, with or without `@udaf`.

    Errors show files relative to `root` (default: the current folder). Raises BindError or UnsupportedError, with the position.
    """
    return _declaration(aggregate_class, name, root).declared()


def aggregate_steps(aggregate_class: type, root: str) -> tuple[AggregateSteps, Any]:
    """Return the steps of a class, for calls from Python, and the type hint of its accumulator.

    Raises what `declare_aggregate` raises.
    """
    declaration = _declaration(aggregate_class, None, root)
    return declaration.steps(), declaration.accumulator_hint


def _declaration(aggregate_class: type, name: str | None, root: str | None) -> AggregateDeclaration:
    options, accumulator = mark_of(aggregate_class) or (FunctionOptions(), None)
    options = replace(options, name=name or options.name or sql_name(aggregate_class.__name__))
    inner = source_locations.unwrapped(getattr(aggregate_class, "accumulate", None))
    if inner is None:
        hint = "Write def accumulate(self, acc: Acc, x: int) -> None: .., and def finish(self, acc: Acc) -> int: .."
        raise BindError(f'class "{aggregate_class.__name__}" has no method accumulate', hint=hint)
    _check_names(aggregate_class, root or os.getcwd())
    return AggregateDeclaration(aggregate_class, inner, options, root or os.getcwd(), "accumulate", accumulator)


def _check_names(aggregate_class: type, root: str) -> None:
    """Raise BindError for a method with the name that Flink gives it, where ours differs: nothing would call it."""
    for name, (own, written) in _OF_FLINK.items():
        method = source_locations.unwrapped(getattr(aggregate_class, name, None))
        if method is not None and not hasattr(aggregate_class, own):
            message = f'class "{aggregate_class.__name__}" has a method {name}, which is called {own} here'
            raise BindError(message, source_locations.definition(method, root), hint=f"Write {written}")


@dataclass(frozen=True, slots=True)
class AggregateDeclaration(Declaration):
    """A Python class that aggregates rows; `accumulator` is the accumulator's type from the decorator, None without one."""

    accumulator: str | type | None
    null_rule: ClassVar[str] = "rows with NULL are left out"

    @property
    def decorator(self) -> str:
        return "udaf"

    @property
    def own_parameters(self) -> int:  # type: ignore[override]
        # Vectorized: self and groups; else self and the accumulator.
        return 2

    def declared(self) -> AggregateFunction:
        """Return the catalog's entry of the class. Raises BindError or UnsupportedError, with the position."""
        call = self.steps()
        if not call.parameters:
            what = f'accumulate of aggregate function "{self.function.__name__}" takes nothing of a row'
            raise BindError(what, self.definition(), hint="Write def accumulate(self, acc: Acc, x: int) -> None: ..")
        return AggregateFunction(
            name=call.name,
            parameters=tuple(p.type for p in call.parameters),
            accumulator=types.canonical(call.accumulator.type),
            returns=call.returns,
            merges=call.merges,
            retracts=call.retracts,
            nullable=tuple(p.nullable for p in call.parameters),
            pickled=self.packed(call),
            deterministic=self.options.deterministic,
            location=call.location,
            names=tuple(p.name for p in call.parameters),
            defaults=tuple(p.default for p in call.parameters),
            vectorized=call.vectorized,
        )

    @property
    def accumulator_hint(self) -> Any:
        """The type hint of the accumulator; None if it has only a SQL type."""
        return self._accumulator_hint(self.hints())

    def steps(self) -> AggregateSteps:
        """Return the steps of the class, unopened. Raises BindError or UnsupportedError, with the position."""
        name = self.name()
        hints = self.hints()
        accumulator = self._accumulator(hints)
        finish = self._method("finish")
        if finish is None:
            hint = "Write def finish(self, acc: Acc) -> int: .., which returns the result."
            raise BindError(f'class "{self.function.__name__}" has no method finish', self.definition(), hint=hint)
        returns, result = self._result(finish)
        methods = {m: f for m in ("accumulate", *_OPTIONAL) if (f := self._method(m)) is not None}
        returning = frozenset(m for m, f in methods.items() if _returns_value(f))
        self._check_changes({m: methods[m] for m in methods if m not in returning}, hints)
        if "retract" in methods:
            self._check_retract(methods["retract"], merges="merge" in methods)
        return AggregateSteps(
            name=name,
            function=self.function,
            parameters=self.parameters(hints),
            returns=returns,
            result=result,
            accumulator=accumulator,
            codec=types.codec(accumulator.type, self._accumulator_hint(hints)),
            create=self._creator(hints),
            merges="merge" in methods,
            retracts="retract" in methods,
            returning=returning,
            root=self.root,
            location=self.location(),
            vectorized=self.options.vectorized,
            method="accumulate",
        )

    def _method(self, name: str) -> FunctionType | None:
        return source_locations.unwrapped(getattr(self.function, name, None))

    def _accumulator_hint(self, hints: dict[str, Any]) -> Any:
        """Return the hint of the accumulator; None if only its SQL type is known."""
        if isinstance(self.accumulator, type):
            return self.accumulator
        if self.options.vectorized:
            return None
        parameters = [*inspect.signature(self.inner).parameters]
        return hints.get(parameters[1]) if len(parameters) > 1 else None

    def _accumulator(self, hints: dict[str, Any]) -> RowType:
        hint, what = self._accumulator_hint(hints), f'the accumulator of aggregate function "{self.function.__name__}"'
        explicit = self.accumulator if isinstance(self.accumulator, str) else None
        spelled = f"@{self.decorator}(accumulator='STRUCT(total DOUBLE, n BIGINT)')"
        if hint is None and explicit is None:
            how = spelled if self.options.vectorized else f"def accumulate(self, acc: Acc, ..), say, or {spelled}"
            raise BindError(f"{what} has no type", self.definition(), hint=f"Write {how}.")
        try:
            return row_type(hint, explicit, VALUE)
        except types.UnusableType as error:
            advice = f"{types.USABLE}. Or name the SQL type: {spelled}."
            raise BindError(f"{what} has no usable type: {error}", self.definition(), hint=advice) from error

    def _result(self, finish: FunctionType) -> tuple[str, Codec]:
        hints = self._hints_of(finish)
        explicit, spelled = self.options.returns, f"@{self.decorator}(returns='BIGINT')"
        what, span = (
            f'the result of aggregate function "{self.function.__name__}"',
            source_locations.definition(finish, self.root),
        )
        if explicit is None and "return" not in hints:
            hint = f"Write def finish(self, acc) -> int, say, or name the SQL type: {spelled}."
            raise BindError(f"{what} has no type hint", span, hint=hint)
        return self.typed(hints.get("return"), explicit, what, spelled, span)

    def _hints_of(self, method: FunctionType) -> dict[str, Any]:
        return AggregateDeclaration(self.function, method, self.options, self.root, method.__name__, None).hints()

    def _check_changes(self, methods: dict[str, FunctionType], hints: dict[str, Any]) -> None:
        """Raise BindError for a method that has an immutable accumulator, such as an int, and does not return the new one."""
        hint, _ = types.optional(self._accumulator_hint(hints))
        if self.options.vectorized or not isinstance(hint, type) or not issubclass(hint, _UNCHANGEABLE):
            return
        for name in ("accumulate", "merge", "retract"):
            if (method := methods.get(name)) is not None:
                kind = hint.__name__
                what = f'{name} of aggregate function "{self.function.__name__}" does not return its accumulator'
                hint_ = f"A {kind} cannot be changed: write def {name}(self, acc: {kind}, ..) -> {kind}, and return it."
                raise BindError(what, source_locations.definition(method, self.root), hint=hint_)

    def _check_retract(self, retract: FunctionType, *, merges: bool) -> None:
        """Raise BindError unless `retract` has the parameters of `accumulate` and a vectorized class also has `merge`."""
        if self.options.vectorized and not merges:
            raise BindError(
                f'vectorized aggregate function "{self.function.__name__}" has retract, but no merge',
                source_locations.definition(retract, self.root),
                hint="Write def merge(self, groups, accumulators): .., which adds further rows to an accumulator.",
            )
        parameters = [*inspect.signature(self.inner).parameters][self.own_parameters :]
        own = self.own_parameters + self.options.vectorized
        if [*inspect.signature(retract).parameters][own:] != parameters:
            raise BindError(
                f'retract of aggregate function "{self.function.__name__}" takes other parameters than accumulate',
                source_locations.definition(retract, self.root),
                hint=f"They are: {', '.join(parameters)}.",
            )

    def _creator(self, hints: dict[str, Any]) -> Callable[[], Any] | None:
        """Return the constructor of an accumulator without rows; None if the class has `create`, or is vectorized."""
        if self._method("create") is not None or self.options.vectorized:
            return None
        hint, nullable = types.optional(self._accumulator_hint(hints))
        if nullable:
            return type(None)
        accumulator_class = typing.get_origin(hint) or hint
        try:
            accumulator_class()
        except Exception as error:
            message = f'an accumulator of aggregate function "{self.function.__name__}" cannot be made: {error}'
            hint_ = "Give its fields default values, or write def create(self) -> Acc: .."
            raise BindError(message, self.definition(), hint=hint_) from error
        creator: Callable[[], Any] = accumulator_class
        return creator


def _returns_value(method: FunctionType) -> bool:
    """Return whether a method's hint says that it returns the accumulator; otherwise it changes its argument."""
    hint = method.__annotations__.get("return")
    return hint not in (None, "None", type(None))
