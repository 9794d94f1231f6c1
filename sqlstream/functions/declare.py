"""`@udf`, and what it takes for a Python function to become a SQL function."""

from __future__ import annotations

import functools
import inspect
import os
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, TypeVar, overload

import duckdb
import pyarrow as pa

from sqlstream.catalog import Function
from sqlstream.duck import databases
from sqlstream.errors import BindError, Span, UnsupportedError, missing
from sqlstream.functions import pickling as carry
from sqlstream.functions import source_locations as places
from sqlstream.functions import types
from sqlstream.functions.codecs import Codec, column
from sqlstream.functions.invocation import Call, Parameter

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__sqlstream_udf__"


@dataclass(frozen=True, slots=True)
class Options:
    """What `@udf(...)` was told; None stands for what the function itself says."""

    name: str | None = None
    returns: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool = True
    vectorized: bool = False


@overload
def udf(function: F, /) -> F: ...
@overload
def udf(
    *,
    name: str | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> Callable[[F], F]: ...
def udf(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool = True,
    vectorized: bool = False,
) -> F | Callable[[F], F]:
    """Mark a Python function as callable from SQL; from Python it stays what it was.

    SQL types come from the type hints (see `sqlstream.functions.types`). `returns` and `parameters` name them instead,
    in DuckDB's spelling: `@udf(returns="DECIMAL(10,2)", parameters={"at": "TIMESTAMP WITH TIME ZONE"})`. A NULL
    argument makes the result NULL without a call, unless the parameter's hint says `| None`. `deterministic=False` is
    for results that differ between calls with equal arguments: such a function is called for every row, and refused
    where a replay could differ.

    `vectorized=True` is for a function that takes and returns Arrow arrays, many rows at a time: with hints such as
    pyarrow.Int64Array, or with `returns` and `parameters`. NULLs are its own business.

    Of a class SQL calls `__call__`, or `eval`, of one instance per worker process and job; its `open()`, if there is
    one, is called before the first row, its `close()` when the process is done with the job.
    """
    options = Options(name, returns, dict(parameters or {}), deterministic, vectorized)

    def mark(function: F) -> F:
        setattr(function, _MARK, options)
        return function

    return mark if function is None else mark(function)


def marked(value: object) -> bool:
    """Return whether a value is a function or a class under `@udf`."""
    return callable(value) and _MARK in getattr(value, "__dict__", {})


def declare(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    returns: str | None = None,
    parameters: Mapping[str, str] | None = None,
    deterministic: bool | None = None,
    vectorized: bool | None = None,
    root: str | None = None,
) -> Function:
    """Return the SQL function that a Python function declares; options given here win over those of its `@udf`.

    Files are shown relative to `root`, the current folder by default. Raises BindError or UnsupportedError, with the
    place.
    """
    root = root or os.getcwd()
    method = _method(function)
    inner = _plain_function(getattr(function, method) if method else function)
    marks: Options = getattr(function, "__dict__", {}).get(_MARK, Options())
    options = Options(
        name or marks.name or (function if method else inner).__name__,
        returns or marks.returns,
        marks.parameters if parameters is None else parameters,
        marks.deterministic if deterministic is None else deterministic,
        marks.vectorized if vectorized is None else vectorized,
    )
    call = _Declaration(function, inner, options, root, method).call()
    return Function(
        name=call.name,
        parameters=tuple(p.type for p in call.parameters),
        returns=call.returns,
        nullable=tuple(p.nullable for p in call.parameters),
        pickled=_packed(call, inner, root),
        deterministic=options.deterministic,
        location=call.location,
        names=tuple(p.name for p in call.parameters),
        defaults=tuple(p.default for p in call.parameters),
    )


@dataclass(frozen=True, slots=True)
class _Declaration:
    function: Callable[..., Any]
    inner: FunctionType
    options: Options
    root: str
    method: str | None

    def call(self) -> Call:
        name = self._checked_name()
        signature = self._checked_signature()
        if self.options.vectorized and not signature.parameters:
            hint = "Leave out vectorized=True: a function without parameters has one result for all rows."
            raise UnsupportedError(f'vectorized function "{name}" has no parameters', self._definition(), hint=hint)
        hints = self._hints()
        if extra := self.options.parameters.keys() - signature.parameters.keys():
            unexpected = sorted(extra)[0]
            raise BindError(
                f'function "{name}" has no parameter "{unexpected}"',
                self._definition(),
                hint=missing("parameter", unexpected, signature.parameters),
            )
        return Call(
            name=name,
            function=self.function,
            parameters=tuple(self._parameter(p, hints) for p in signature.parameters.values()),
            returns=(result := self._typed(None, hints))[0],
            result=result[1],
            root=self.root,
            location=places.location(self.inner, self.root),
            vectorized=self.options.vectorized,
            method=self.method,
        )

    def _parameter(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
        name = parameter.name
        sql, codec = self._typed(name, hints)
        nullable = self.options.vectorized or (name in hints and types.optional(hints[name])[1])
        return Parameter(name, sql, codec, nullable, self._default(parameter, sql, codec, nullable))

    def _default(self, parameter: inspect.Parameter, sql: str, codec: Codec, nullable: bool) -> str | None:
        """Return the default value of a parameter as SQL, None when it has none."""
        value = parameter.default
        if value is inspect.Parameter.empty:
            return None
        what = f'the default value of parameter "{parameter.name}" of function "{self.inner.__name__}"'
        span = places.parameter(self.inner, parameter.name, self.root)
        if value is None and not nullable:
            hint = "Write | None behind its type; else NULL makes the result NULL."
            raise BindError(f"{what} is None", span, hint=hint)
        try:
            return literal(codec, sql, value)
        except (pa.ArrowException, duckdb.Error, TypeError, ValueError, OverflowError) as error:
            raise BindError(f"{what}, {value!r}, is no {sql}", span) from error

    def _typed(self, parameter: str | None, hints: Mapping[str, Any]) -> tuple[str, Codec]:
        """Return type and codec of a parameter, or of the result when `parameter` is None."""
        key = parameter or "return"
        explicit = self.options.parameters.get(parameter) if parameter else self.options.returns
        what = f'parameter "{parameter}" of function "{self.inner.__name__}"' if parameter else None
        what = what or f'the result of function "{self.inner.__name__}"'
        spelled = f"@udf(parameters={{'{parameter}': 'BIGINT'}})" if parameter else "@udf(returns='BIGINT')"
        place = places.parameter(self.inner, parameter, self.root) if parameter else self._definition()
        if explicit is None and key not in hints:
            hint = f"Write {f'{parameter}: int' if parameter else '-> int'}, say, or name the SQL type: {spelled}."
            raise BindError(f"{what} has no type hint", place, hint=hint)
        try:
            if self.options.vectorized:
                sql = types.canonical(explicit or types.array_type(hints[key]))
                return sql, types.codec(sql)
            sql = types.canonical(explicit or types.sql_type(hints[key]))
            return sql, types.codec(sql, hints.get(key))
        except types.UnusableType as error:
            arrays = ", ".join(f"pyarrow.{array.__name__}" for array in types.ARRAYS)
            usable = f"Usable are {arrays}" if self.options.vectorized else types.USABLE
            hint = f"{usable}. Or name the SQL type: {spelled}."
            raise BindError(f"{what} has no usable type: {error}", place, hint=hint) from error

    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.inner if self.method else self.function, include_extras=True)
        except Exception as error:
            raise BindError(
                f'the type hints of function "{self.inner.__name__}" cannot be evaluated: {error}',
                self._definition(),
                hint="Hints may use what is defined at the top level of the file, not only under TYPE_CHECKING.",
            ) from error

    def _checked_signature(self) -> inspect.Signature:
        name = self.inner.__name__
        if inspect.iscoroutinefunction(self.inner):
            raise UnsupportedError(
                f'function "{name}" is async', self._definition(), hint="Use def instead of async def."
            )
        if inspect.isgeneratorfunction(self.inner) or inspect.isasyncgenfunction(self.inner):
            hint = "Return one value per row: a list, say, which UNNEST turns into rows."
            raise UnsupportedError(f'function "{name}" is a generator', self._definition(), hint=hint)
        signature = inspect.signature(self.inner if self.method else self.function)
        if self.method:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        for parameter in signature.parameters.values():
            if (problem := _problem(parameter)) is not None:
                message, hint = problem
                span = places.parameter(self.inner, parameter.name, self.root)
                raise UnsupportedError(f'parameter "{parameter.name}" of function "{name}" {message}', span, hint=hint)
        return signature

    def _checked_name(self) -> str:
        name = self.options.name or self.inner.__name__
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise BindError(f'"{name}" is not a function name', self._definition(), hint="Use letters, digits and _.")
        if (taken := builtin_names().get(name.lower())) is not None:
            raise BindError(
                f'function "{name}" has the name of {taken} of SQL',
                self._definition(),
                hint=f"Give it another name: @udf(name='my_{name.lower()}').",
            )
        return name

    def _definition(self) -> Span | None:
        return places.definition(self.inner, self.root)


def _plain_function(function: object) -> FunctionType:
    inner = places.unwrapped(function)
    hint = "Write a function with type hints: def name(x: int) -> str: ..."
    if inner is None:
        raise BindError(f"{getattr(function, '__name__', function)!r} is not a Python function", hint=hint)
    if inner.__name__ == "<lambda>":
        raise BindError("a lambda has neither a name nor type hints", hint=hint)
    return inner


def _problem(parameter: inspect.Parameter) -> tuple[str, str] | None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            return "takes any number of arguments", "Name each parameter, or take a list[T]."
        case inspect.Parameter.KEYWORD_ONLY:
            return "can only be given by name", "SQL gives arguments by position: remove the * before it."
    return None


def literal(codec: Codec, sql: str, value: Any) -> str:
    """Return a Python value as SQL of the given type; raises what `codec` raises, or duckdb.Error.

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


def _method(function: object) -> str | None:
    """Return the method that SQL calls of a class, None for a function."""
    if not isinstance(function, type):
        return None
    for method in ("__call__", "eval"):
        if places.unwrapped(getattr(function, method, None)) is not None:
            return method
    hint = "Write def __call__(self, x: int) -> str: ..., and open() and close() if it needs them."
    raise BindError(f'class "{function.__name__}" has no method __call__ or eval', hint=hint)


def _packed(call: Call, inner: FunctionType, root: str) -> bytes:
    try:
        return carry.pack(call)
    except carry.Uncarriable as error:
        used = f'uses "{error.name}", which' if error.name else ""
        raise BindError(
            " ".join(f'function "{call.name}" {used} cannot be sent to worker processes: {error}'.split()),
            places.definition(inner, root),
            hint="Create such an object where it is used, in a function under functools.cache.",
        ) from error


@functools.cache
def builtin_names() -> dict[str, str]:
    """Return the names that a scalar function cannot have, in lower case, with what each of them is."""
    with databases.passing() as connection:
        keywords = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords()"
            " WHERE keyword_category IN ('reserved', 'column_name', 'type_function')"
        ).fetchall()
        functions = connection.execute(
            "SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'macro', 'aggregate', 'window') AND internal ORDER BY ALL"
        ).fetchall()
    names = {name: "a keyword" for (name,) in keywords}
    return names | {name: f"{'an' if kind == 'aggregate' else 'a'} {kind} function" for name, kind in functions}
