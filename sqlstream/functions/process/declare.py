"""Declares process functions: from a Python class to a `ProcessFunction` of the catalog."""

from __future__ import annotations

import inspect
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import (
    VALUE,
    Column,
    ProcessFunction,
    ScalarArgument,
    SideOutputDeclaration,
    StateDeclaration,
    TableArgument,
)
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.functions import pickling, source_locations, types
from sqlstream.functions.declaration import builtin_names, literal, sql_name
from sqlstream.functions.process.api import (
    DeclaredSideOutput,
    DeclaredState,
    SideOutput,
    process_options,
    table_options,
)
from sqlstream.functions.process.broadcast_checks import check_broadcast, check_emitting, is_broadcast
from sqlstream.functions.process.context import Context
from sqlstream.functions.process.implementation import Implementation
from sqlstream.functions.process.shapes import ResultShape, RowShape, emitted, result_shape, row_shape
from sqlstream.functions.process.state_declarations import StateDeclarations, class_hints, declared_by
from sqlstream.functions.process.vectors import hinted_row
from sqlstream.functions.process.yielded import classes_of, without_sides

# Arguments that every call can have in addition to the function's own.
RESERVED = ("on_time", "uid")


def declare_process(process_class: type, *, name: str | None = None, root: str | None = None) -> ProcessFunction:
    """Return the catalog's entry of a class, under `name`, the decorator's name, or the name of the class.

    Errors show files relative to `root` (default: the current folder). Raises BindError or UnsupportedError, with the
    position.
    """
    return _Declaration(process_class, name, root or os.getcwd()).function()


def implementation_of(process_class: type) -> Implementation:
    """Return the implementation of a class with the user's own classes, not with unpickled copies of them.

    Raises what `declare_process` raises.
    """
    declaration = _Declaration(process_class, None, os.getcwd())
    declaration.function()
    return declaration.implementation


@dataclass(frozen=True, slots=True)
class _Method:
    """A method that receives the rows of the table argument `table`; or timers, if that is None."""

    name: str
    inner: FunctionType
    table: str | None


class _Declaration:
    def __init__(self, process_class: type, name: str | None, root: str):
        self.process_class, self.root = process_class, root
        self.options = process_options(process_class)
        self.name = name or self.options.name or sql_name(process_class.__name__)
        # The methods that yield rows of side outputs, too.
        self.yielding: set[str] = set()

    def function(self) -> ProcessFunction:
        self._check_name()
        tables = list(self._tables())
        timer = self._method("on_timer")
        methods = [*tables, *([_Method("on_timer", timer, None)] if timer else [])]
        hints = {m.name: self._hints(m.inner) for m in methods}
        shapes = [self._row_shape(m, hints[m.name]) for m in tables]
        sides = dict(self._side_outputs())
        result = self._result(methods, hints, sides)
        declared = StateDeclarations(self.process_class, self.name, self.root, self.options.vectorized, self.location)
        states = declared.states()
        partitioned = [t for t in tables if not is_broadcast(self.process_class, t.name)]
        self._check_vectorized(partitioned, [s for s in states if not s.broadcast], bool(sides), timer)
        scalars, scalar_hints = self._scalars()
        arguments = tuple(self._table(m, s) for m, s in zip(tables, shapes, strict=True))
        check_broadcast(self.process_class, f'process function "{self.name}"', arguments, states, self.root)
        self._check_changes(any(a.changes for a in arguments), bool(sides))
        self._check_arguments([*(a.name for a in arguments), *(s.name for s in scalars)])
        location = self.location
        implementation = self.implementation = Implementation(
            self.name,
            self.process_class,
            tuple(shapes),
            result,
            sides,
            declared.hints,
            declared.aggregates,
            scalar_hints,
            self.root,
            location,
            frozenset(self.yielding),
        )
        return ProcessFunction(
            name=self.name,
            tables=arguments,
            scalars=scalars,
            states=states,
            outputs=_columns(result),
            pickled=self._packed(implementation),
            has_timers=timer is not None,
            location=location,
            vectorized=self.options.vectorized,
            ordered=self.options.ordered,
            changelog_mode=self.options.changelog_mode,
            side_outputs=tuple(SideOutputDeclaration(name, _columns(shape)) for name, shape in sides.items()),
        )

    # -- positions

    @property
    def location(self) -> str:
        first = next((m for m in vars(self.process_class).values() if isinstance(m, FunctionType)), None)
        return source_locations.class_location(self.process_class, self.root) or (
            source_locations.location(first, self.root) if first else ""
        )

    @property
    def _span(self) -> Span | None:
        return source_locations.class_definition(self.process_class, self.root)

    def _error(self, message: str, span: Span | None = None, hint: str | None = None) -> BindError:
        return BindError(message, span or self._span, hint=hint)

    # -- methods

    def _check_name(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name):
            raise self._error(f'"{self.name}" is not a function name', hint="Use letters, digits and _.")
        if (kind := builtin_names().get(self.name.lower())) is not None:
            hint = f"Give it another name: @process(name='my_{self.name.lower()}')."
            raise self._error(f'process function "{self.name}" has the name of {kind} of SQL', hint=hint)

    def _tables(self) -> Iterator[_Method]:
        """Yield the methods that receive rows: those under `@table` in their order, else `process`."""
        methods = {
            name: method
            for base in reversed(self.process_class.__mro__)
            for name, method in vars(base).items()
            if table_options(method) is not None
        }
        if not methods:
            inner = self._method("process")
            if inner is None:
                hint = "Write def process(self, ctx, row): ..., or a method under @table for each table."
                raise self._error(f'process function "{self.name}" has no method "process"', hint=hint)
            parameters = self._parameters("process", inner, 2)
            yield _Method("process", inner, parameters[1].name)
            return
        if self._method("process") is not None and "process" not in methods:
            hint = "Leave @table out for one table; for several, every method that gets rows has it."
            raise self._error(f'process function "{self.name}" has a method "process" beside @table', hint=hint)
        for name in methods:
            inner = self._method(name)
            assert inner is not None
            options = table_options(getattr(self.process_class, name))
            self._parameters(name, inner, 2)
            yield _Method(name, inner, (options and options.name) or name)

    def _method(self, name: str) -> FunctionType | None:
        attribute = getattr(self.process_class, name, None)
        if attribute is None:
            return None
        inner = source_locations.unwrapped(attribute)
        if inner is None:
            raise self._error(f'"{name}" of process function "{self.name}" is not a method')
        if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
            raise UnsupportedError(
                f'method "{name}" of process function "{self.name}" is async',
                source_locations.definition(inner, self.root),
                hint="Use def instead of async def.",
            )
        if name == "on_timer":
            self._parameters(name, inner, 1)
        return inner

    def _parameters(self, name: str, inner: FunctionType, count: int) -> list[inspect.Parameter]:
        parameters = list(inspect.signature(inner).parameters.values())[1:]
        per_bucket = count == 2 and self.options.vectorized == "bucket" and not is_broadcast(self.process_class, name)
        count += per_bucket and self._has_keyed_states
        if len(parameters) != count or any(p.kind != inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters):
            rows = ["", ", rows" if self.options.vectorized else ", row", ", rows, state"][count - 1]
            form = f"def {name}(self, ctx{rows}): ..."
            message = f'method "{name}" of process function "{self.name}" has other parameters than it is called with'
            raise self._error(message, source_locations.definition(inner, self.root), f"Write {form}")
        return parameters

    def _hints(self, inner: FunctionType) -> Mapping[str, Any]:
        try:
            return typing.get_type_hints(inner, include_extras=True)
        except Exception as error:
            message = f'the type hints of method "{inner.__name__}" of "{self.name}" cannot be evaluated: {error}'
            hint = "Hints may use what is defined at the top level of the file, not only under TYPE_CHECKING."
            raise self._error(message, source_locations.definition(inner, self.root), hint) from error

    # -- rows and results

    def _row_parameter(self, method: _Method) -> str:
        return list(inspect.signature(method.inner).parameters)[2]

    def _row_shape(self, method: _Method, hints: Mapping[str, Any]) -> RowShape:
        parameter = self._row_parameter(method)
        hint = hints.get(parameter)
        try:
            return row_shape(hinted_row(hint) if self.options.vectorized else hint)
        except types.UnusableType as error:
            span = source_locations.parameter(method.inner, parameter, self.root)
            message = f'parameter "{parameter}" of method "{method.name}" of "{self.name}": {error}'
            usable = "A row is a dataclass, a NamedTuple or Row."
            if hint is Context:
                usable = f"The context comes first: def {method.name}(self, ctx: Context, row: Row)."
            if self.options.vectorized:
                usable = "Write rows: pa.Table, or Annotated[pa.Table, Reading] for the columns of a dataclass."
            raise self._error(message, span, usable) from error

    def _table(self, method: _Method, shape: RowShape) -> TableArgument:
        parameter = self._row_parameter(method)
        span = source_locations.parameter(method.inner, parameter, self.root)
        columns = []
        for name, hint in shape.hints:
            try:
                columns.append(Column(name, types.canonical(types.sql_type(hint))))
            except types.UnusableType as error:
                message = f'field "{name}" of the row of method "{method.name}" of "{self.name}": {error}'
                raise self._error(message, span, f"{types.USABLE}.") from error
        assert method.table is not None
        line = source_locations.location(method.inner, self.root)
        options = table_options(getattr(self.process_class, method.name))
        changes = self.options.changes or bool(options and options.changes)
        broadcast = is_broadcast(self.process_class, method.name)
        return TableArgument(
            method.table, method.name, tuple(columns) if shape.row_class else None, line, changes, broadcast
        )

    def _result(
        self, methods: list[_Method], hints: Mapping[str, Mapping[str, Any]], sides: Mapping[str, ResultShape]
    ) -> ResultShape:
        """Return the shape of the emitted rows, which is the same for all methods."""
        for method in (m for m in methods if m.table is not None and is_broadcast(self.process_class, m.name)):
            what = f'method "{method.name}" of process function "{self.name}"'
            check_emitting(method.inner, hints[method.name].get("return"), what, self.options, self.root)
        if self.options.vectorized:
            return self._emitted()
        if self.options.emits is not None:
            hint = "Leave emits out, and write -> Iterator[Alert]; or write vectorized=True for a class that returns tables."
            raise self._error(f'process function "{self.name}" has emits, but is not vectorized', hint=hint)
        common_shape: ResultShape | None = None
        before = ""
        for method in methods:
            span = source_locations.definition(method.inner, self.root)
            what = f'method "{method.name}" of process function "{self.name}"'
            if "return" not in hints[method.name]:
                raise self._error(f"{what} has no hint of what it emits", span, "Write -> Iterator[Alert], or -> None.")
            try:
                row_hint = emitted(hints[method.name]["return"])
                hint = without_sides(row_hint, classes_of(sides))
                shape = None if hint is None else result_shape(hint, VALUE)
            except types.UnusableType as error:
                hint = "Write -> Iterator[Alert], of a dataclass, a NamedTuple or a type of SQL."
                raise self._error(f"what {what} emits has no usable type: {error}", span, hint) from error
            if shape is None:
                continue
            if hint is not row_hint:
                self.yielding.add(method.name)
            if common_shape is not None and shape != common_shape:
                message = f'{what} emits other rows than method "{before}"'
                raise self._error(message, span, "All methods of a class emit rows of one class.")
            common_shape, before = common_shape or shape, method.name
        if common_shape is None or not common_shape.fields:
            raise self._error(f'process function "{self.name}" emits nothing', hint="Write -> Iterator[Alert].")
        return common_shape

    # -- vectorized functions

    def _emitted(self) -> ResultShape:
        """Return the shape of the rows in the tables that a vectorized function returns."""
        hint = "Write @process(vectorized=True, emits=Alert), of a dataclass, a NamedTuple or a type of SQL."
        if self.options.emits is None:
            raise self._error(f'vectorized process function "{self.name}" does not say what it emits', hint=hint)
        try:
            shape = result_shape(self.options.emits, VALUE)
        except types.UnusableType as error:
            raise self._error(
                f'what process function "{self.name}" emits has no usable type: {error}', hint=hint
            ) from error
        if shape.kind == "row":
            raise self._error(f'vectorized process function "{self.name}" emits Row, which names no columns', hint=hint)
        if not shape.fields:
            raise self._error(f'process function "{self.name}" emits rows without columns', hint=hint)
        return shape

    def _check_vectorized(
        self, tables: list[_Method], states: list[StateDeclaration], sides: bool, timer: FunctionType | None
    ) -> None:
        kind, what = self.options.vectorized, f'process function "{self.name}"'
        if kind not in (None, "key", "bucket"):
            hint = 'Write vectorized=True for the rows of a key, or vectorized="bucket" for those of many keys.'
            raise self._error(f"{what} is vectorized by {kind!r}", hint=hint)
        if self.options.ordered and kind != "bucket":
            raise self._error(
                f"{what} has ordered, but is not vectorized by bucket", hint="Rows of a key are in order."
            )
        if kind != "bucket":
            return
        per_key = "@process(vectorized=True) gets the rows of one key, and has all of these."
        if timer is not None:
            raise self._error(f"{what} has timers, but is vectorized by bucket", hint=per_key)
        if len(tables) > 1:
            hint = "Let it take one table, with UNION ALL, and a column that says from where a row is."
            raise self._error(f"{what} takes several tables, but is vectorized by bucket", hint=hint)
        if sides:
            raise self._error(f"{what} has side outputs, but is vectorized by bucket", hint=per_key)
        for one in states:
            span = source_locations.assignment(self.process_class, one.name, self.root)
            message = f'state "{one.name}" of {what}, which is vectorized by bucket'
            if one.kind != "value":
                raise self._error(f"{message}, is a {one.kind}", span, f"It takes values alone. {per_key}")
            if one.refreshed_by == "read":
                hint = "A key that the method returns counts as written: return those that were read."
                raise self._error(f'{message}, has refresh="read"', span, hint)

    def _check_changes(self, changes: bool, sides: bool) -> None:
        mode, what = self.options.changelog_mode, f'process function "{self.name}"'
        if mode not in (None, "retract", "upsert"):
            hint = 'Write changelog_mode="retract", or "upsert"; without one rows are only added.'
            raise self._error(f"{what} has the changelog mode {mode!r}", hint=hint)
        if self.options.vectorized and (changes or mode):
            hint = "Leave out vectorized: a method that gets row by row takes and emits changes."
            raise self._error(f"{what} is vectorized, and takes or emits changes", hint=hint)
        if mode and sides:
            raise self._error(f"{what} has side outputs, and emits changes", hint="Make two functions of it.")

    @property
    def _has_keyed_states(self) -> bool:
        return any(not one.broadcast for one in declared_by(self.process_class, DeclaredState).values())

    # -- side outputs and arguments

    def _side_outputs(self) -> Iterator[tuple[str, ResultShape]]:
        """Yield the side outputs by name, with the shapes of their rows."""
        declarations = declared_by(self.process_class, DeclaredSideOutput)
        classes = class_hints(self.process_class, self.name, self.location) if declarations else {}
        for index, name in enumerate(declarations):
            what = f'side output "{name}" of process function "{self.name}"'
            span = source_locations.assignment(self.process_class, name, self.root)
            if name.lower() in (other.lower() for other in list(declarations)[:index]):
                raise self._error(f"{what}: there are two of this name", span, "Case makes no difference in SQL.")
            hint = f"Write {name}: SideOutput[Rejected] = side_output(), of a dataclass, a NamedTuple or a type of SQL."
            parts = typing.get_args(classes.get(name))
            if typing.get_origin(classes.get(name)) is not SideOutput or len(parts) != 1:
                raise self._error(f"{what} has no type", span, hint)
            try:
                shape = result_shape(parts[0], VALUE)
            except types.UnusableType as error:
                raise self._error(f"{what} has no usable type: {error}", span, hint) from error
            if not shape.fields:
                raise self._error(f"{what} has no columns", span)
            yield name, shape

    def _scalars(self) -> tuple[tuple[ScalarArgument, ...], dict[str, Any]]:
        init = source_locations.unwrapped(getattr(self.process_class, "__init__", None))
        if init is None:
            return (), {}
        hints = self._hints(init)
        arguments, argument_hints = [], {}
        for parameter in list(inspect.signature(init).parameters.values())[1:]:
            name = parameter.name
            span = source_locations.parameter(init, name, self.root)
            what = f'parameter "{name}" of process function "{self.name}"'
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise UnsupportedError(f"{what} takes any number of arguments", span, hint="Name each parameter.")
            if name not in hints:
                raise self._error(f"{what} has no type hint", span, f"Write {name}: float, say.")
            try:
                sql = types.canonical(types.sql_type(hints[name]))
            except types.UnusableType as error:
                raise self._error(f"{what} has no usable type: {error}", span, f"{types.USABLE}.") from error
            nullable = types.optional(hints[name])[1]
            arguments.append(
                ScalarArgument(name, sql, nullable, self._default(parameter, sql, hints[name], what, span))
            )
            argument_hints[name] = hints[name]
        return tuple(arguments), argument_hints

    def _default(self, parameter: inspect.Parameter, sql: str, hint: Any, what: str, span: Span | None) -> str | None:
        value = parameter.default
        if value is inspect.Parameter.empty:
            return None
        try:
            return literal(types.codec(sql, hint), sql, value)
        except (pa.ArrowException, duckdb.Error, TypeError, ValueError, OverflowError) as error:
            raise self._error(f"the default value of {what}, {value!r}, is no {sql}", span) from error

    def _check_arguments(self, names: list[str]) -> None:
        for index, name in enumerate(names):
            if name.lower() in (other.lower() for other in names[:index]):
                raise self._error(f'process function "{self.name}" has two arguments "{name}"')
            if name.lower() in RESERVED:
                raise self._error(
                    f'"{name}" cannot be an argument of process function "{self.name}"',
                    hint=f"Every call has {' and '.join(RESERVED)} already: take another name.",
                )

    def _packed(self, implementation: Implementation) -> bytes:
        try:
            return pickling.pack_class(implementation)
        except pickling.NotPicklable as error:
            raise self._error(
                f'process function "{self.name}" cannot be sent to worker processes: {error}',
                hint="Create such an object in open().",
            ) from error


def _columns(shape: ResultShape) -> tuple[Column, ...]:
    return tuple(Column(name, type) for name, type, _ in shape.fields)


Declare = Callable[[type], ProcessFunction]
