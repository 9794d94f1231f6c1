"""Declarations of Python functions of all kinds: names in SQL, typed parameters, and positions in the user's files for errors."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from sqlstream.catalog import Function, FunctionKind
from sqlstream.duck import databases
from sqlstream.errors import BindError, Span, UnsupportedError, missing
from sqlstream.functions import pickling as carry
from sqlstream.functions import source_locations, types
from sqlstream.functions.codecs import Codec, column
from sqlstream.functions.decorators import DECORATORS, FunctionOptions
from sqlstream.functions.invocation import Call, Invocation, Parameter


def sql_name(name: str) -> str:
    """Return the SQL name of a class.

    >>> sql_name("TemperatureAlerts"), sql_name("HTTPLog"), sql_name("Top2")
    ('temperature_alerts', 'http_log', 'top2')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@dataclass(frozen=True, slots=True)
class Declaration(ABC):
    """A Python function, or a class whose method named `method` SQL calls, from which an entry of the catalog is made.

    `inner` is the function or method without its decorators. Errors show files relative to `root`.
    """

    function: Callable[..., Any]
    inner: FunctionType
    options: FunctionOptions
    root: str
    method: str | None
    # The effect of NULL for a parameter that is not nullable, in words; and how many first parameters of the method SQL lacks.
    null_rule: ClassVar[str]
    own_parameters: ClassVar[int] = 1

    @property
    @abstractmethod
    def decorator(self) -> str:
        """The name of the decorator, without the @."""

    @property
    def called(self) -> str:
        """What errors call the function, with its name in Python, such as `function "f"`."""
        return f'function "{self.inner.__name__}"'

    def name(self) -> str:
        """Return the function's name in SQL. Raises BindError if it is not a valid name, or is reserved."""
        name = self.options.name or (self.function if self.method else self.inner).__name__
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise BindError(f'"{name}" is not a function name', self.definition(), hint="Use letters, digits and _.")
        if (kind := self.reserved_names().get(name.lower())) is not None:
            raise BindError(
                f'function "{name}" has the name of {kind} of SQL',
                self.definition(),
                hint=f"Give it another name: @{self.decorator}(name='my_{name.lower()}').",
            )
        return name

    def reserved_names(self) -> dict[str, str]:
        """Return the reserved names, in lower case, each with its kind, such as "a keyword"."""
        return builtin_names()

    def hints(self) -> dict[str, Any]:
        """Return the type hints by parameter name, with `return`. Raises BindError if one cannot be evaluated."""
        try:
            return typing.get_type_hints(self.inner if self.method else self.function, include_extras=True)
        except Exception as error:
            raise BindError(
                f"the type hints of {self.called} cannot be evaluated: {error}",
                self.definition(),
                hint="Hints may use what is defined at the top level of the file, not only under TYPE_CHECKING.",
            ) from error

    def parameters(self, hints: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """Return the parameters that SQL passes. Raises BindError or UnsupportedError for one that SQL cannot pass."""
        signature = self._signature()
        name = self.name()
        if self.options.vectorized and not signature.parameters:
            hint = "Leave out vectorized=True: a function without parameters has one result for all rows."
            raise UnsupportedError(f'vectorized function "{name}" has no parameters', self.definition(), hint=hint)
        if extra := self.options.parameters.keys() - signature.parameters.keys():
            unexpected = sorted(extra)[0]
            raise BindError(
                f'function "{name}" has no parameter "{unexpected}"',
                self.definition(),
                hint=missing("parameter", unexpected, signature.parameters),
            )
        return tuple(self._parameter(p, hints) for p in signature.parameters.values())

    def _signature(self) -> inspect.Signature:
        if inspect.iscoroutinefunction(self.inner) or inspect.isasyncgenfunction(self.inner):
            raise UnsupportedError(f"{self.called} is async", self.definition(), hint="Use def instead of async def.")
        signature = inspect.signature(self.inner if self.method else self.function)
        if self.method:
            signature = signature.replace(parameters=list(signature.parameters.values())[self.own_parameters :])
        for parameter in signature.parameters.values():
            if (problem := _problem(parameter)) is not None:
                message, hint = problem
                span = source_locations.parameter(self.inner, parameter.name, self.root)
                raise UnsupportedError(f'parameter "{parameter.name}" of {self.called} {message}', span, hint=hint)
        return signature

    def _parameter(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
        name = parameter.name
        span = source_locations.parameter(self.inner, name, self.root)
        what, spelled = f'parameter "{name}" of {self.called}', f"@{self.decorator}(parameters={{'{name}': 'BIGINT'}})"
        explicit = self.options.parameters.get(name)
        if explicit is None and name not in hints:
            hint = f"Write {name}: int, say, or name the SQL type: {spelled}."
            raise BindError(f"{what} has no type hint", span, hint=hint)
        sql, codec = self.typed(hints.get(name), explicit, what, spelled, span)
        nullable = self.options.vectorized or (name in hints and types.optional(hints[name])[1])
        return Parameter(name, sql, codec, nullable, self._default(parameter, sql, codec, nullable))

    def _default(self, parameter: inspect.Parameter, sql: str, codec: Codec, nullable: bool) -> str | None:
        """Return the default value of a parameter as SQL; None if it has none."""
        value = parameter.default
        if value is inspect.Parameter.empty:
            return None
        what = f'the default value of parameter "{parameter.name}" of {self.called}'
        span = source_locations.parameter(self.inner, parameter.name, self.root)
        if value is None and not nullable:
            hint = f"Write | None behind its type; else {self.null_rule}."
            raise BindError(f"{what} is None", span, hint=hint)
        try:
            return literal(codec, sql, value)
        except (pa.ArrowException, duckdb.Error, TypeError, ValueError, OverflowError) as error:
            raise BindError(f"{what}, {value!r}, is no {sql}", span) from error

    def typed(self, hint: Any, explicit: str | None, what: str, spelled: str, span: Span | None) -> tuple[str, Codec]:
        """Return the DuckDB type and the codec of a value, from the SQL type `explicit` if it is set, else from the type hint.

        Raises BindError at `span` if neither is usable. `what` names the value in the error, `spelled` is how to declare its SQL
        type.
        """
        try:
            if self.options.vectorized:
                sql = types.canonical(explicit or types.array_type(hint))
                return sql, types.codec(sql)
            sql = types.canonical(explicit or types.sql_type(hint))
            return sql, types.codec(sql, hint)
        except types.UnusableType as error:
            arrays = ", ".join(f"pyarrow.{array.__name__}" for array in types.ARRAYS)
            usable = f"Usable are {arrays}" if self.options.vectorized else types.USABLE
            advice = f"{usable}. Or name the SQL type: {spelled}."
            raise BindError(f"{what} has no usable type: {error}", span, hint=advice) from error

    def packed(self, call: Invocation) -> bytes:
        """Pickle the call by value, with all objects that it uses. Raises BindError if one of them cannot be pickled."""
        try:
            return carry.pack(call)
        except carry.NotPicklable as error:
            used = f'uses "{error.name}", which' if error.name else ""
            raise BindError(
                " ".join(f'function "{call.name}" {used} cannot be sent to worker processes: {error}'.split()),
                self.definition(),
                hint="Create such an object where it is used, in a function under functools.cache.",
            ) from error

    def location(self) -> str:
        """Return `file:line` of the definition."""
        return source_locations.location(self.inner, self.root)

    def definition(self) -> Span | None:
        """Return the position of `def name`; None if its source text is unavailable."""
        return source_locations.definition(self.inner, self.root)


@dataclass(frozen=True, slots=True)
class FunctionDeclaration(Declaration):
    """A scalar or table function in Python, which DuckDB calls."""

    kind: ClassVar[FunctionKind]

    @property
    def decorator(self) -> str:
        return DECORATORS[self.kind]

    @abstractmethod
    def call(self) -> Call:
        """Return the object that DuckDB calls per chunk of rows. Raises BindError or UnsupportedError, with the position."""

    def declared(self) -> Function:
        """Return the catalog's entry of the function. Raises BindError or UnsupportedError, with the position."""
        call = self.call()
        return Function(
            name=call.name,
            parameters=tuple(p.type for p in call.parameters),
            returns=call.returns,
            nullable=tuple(p.nullable for p in call.parameters),
            pickled=self.packed(call),
            deterministic=self.options.deterministic,
            location=call.location,
            names=tuple(p.name for p in call.parameters),
            defaults=tuple(p.default for p in call.parameters),
            kind=self.kind,
            columns=call.columns,
        )


def plain_function(function: object) -> FunctionType:
    """Return a function without its decorators. Raises BindError for a lambda, and for anything but a Python function."""
    inner = source_locations.unwrapped(function)
    hint = "Write a function with type hints: def name(x: int) -> str: ..."
    if inner is None:
        raise BindError(f"{getattr(function, '__name__', function)!r} is not a Python function", hint=hint)
    if inner.__name__ == "<lambda>":
        raise BindError("a lambda has neither a name nor type hints", hint=hint)
    return inner


def called_method(function: object) -> str | None:
    """Return the method of a class that SQL calls, None for a function. Raises BindError for a class without one."""
    if not isinstance(function, type):
        return None
    for method in ("__call__", "eval"):
        if source_locations.unwrapped(getattr(function, method, None)) is not None:
            return method
    hint = "Write def __call__(self, x: int) -> str: ..., and open() and close() if it needs them."
    raise BindError(f'class "{function.__name__}" has no method __call__ or eval', hint=hint)


def _problem(parameter: inspect.Parameter) -> tuple[str, str] | None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            return "takes any number of arguments", "Name each parameter, or take a list[T]."
        case inspect.Parameter.KEYWORD_ONLY:
            return "can only be given by name", "SQL gives arguments by position: remove the * before it."
    return None


def literal(codec: Codec, sql: str, value: Any) -> str:
    """Return a Python value as a SQL literal of the DuckDB type `sql`.

    Raises what `codecs.column` raises, duckdb.Error, or ValueError if the literal would not equal the value.

    >>> literal(types.codec("BIGINT"), "BIGINT", 2)
    "CAST('2' AS BIGINT)"
    """
    if value is None:
        return f"CAST(NULL AS {sql})"
    with databases.passing() as connection:
        connection.register("given", pa.table({"v": column(codec, [value])}))
        [(text, same)] = connection.execute(
            f"SELECT CAST(v AS VARCHAR) AS t, CAST(t AS {sql}) = v FROM (SELECT CAST(v AS {sql}) AS v FROM given)"
        ).fetchall()
    if not same:
        raise ValueError("the text of the value does not give the value")
    return f"CAST('{str(text).replace(chr(39), chr(39) * 2)}' AS {sql})"


@functools.cache
def builtin_names() -> dict[str, str]:
    """Return the names that no function can have, in lower case, each with its kind, such as "a keyword"."""
    with databases.passing() as connection:
        keywords = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords()"
            " WHERE keyword_category IN ('reserved', 'column_name', 'type_function')"
        ).fetchall()
        functions = connection.execute(
            "SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'macro', 'aggregate', 'window') AND internal ORDER BY ALL"
        ).fetchall()
    names = {name: "a keyword" for (name,) in keywords} | dict.fromkeys(
        ("side_output", "late_rows"), "a table function"
    )
    return names | {name: f"{'an' if kind == 'aggregate' else 'a'} {kind} function" for name, kind in functions}


@functools.cache
def table_function_names() -> dict[str, str]:
    """Return the names of DuckDB's table functions, in lower case, each with its kind: "a table function"."""
    with databases.passing() as connection:
        rows = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
        ).fetchall()
    return {name: "a table function" for (name,) in rows}
