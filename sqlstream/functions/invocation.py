"""Calls of user functions from DuckDB: resources, arguments from Arrow to Python, errors that name the row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from sqlstream.errors import JobError, OutageError, UserCodeError
from sqlstream.functions.codecs import Codec, decoded, objects
from sqlstream.functions.source_locations import raised_at

SHOWN = 200
# The kind of an OutageError of a function. It begins the text of the error, and DuckDB passes on only the text.
OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function in SQL. If it is not `nullable`, the function is not called for rows with NULL.

    `default` is SQL; None for a parameter that each call must pass.
    """

    name: str
    type: str
    codec: Codec
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A user's function with everything that a process without the user's files needs to call it.

    `returns` is the DuckDB type of the result. Errors show files relative to `root`; `location` is `file:line` of the definition.
    A `vectorized` function takes and returns Arrow arrays, and receives NULLs. For a class, `method` is the method to call on an
    instance, which `opened` creates and keeps as `resource`.
    """

    name: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    returns: str
    root: str
    location: str
    vectorized: bool = False
    method: str | None = None
    resource: Any = None

    def opened(self) -> Self:
        """Return a call that is ready; for a class, it has an instance whose `open` was called. Raises JobError."""
        if self.method is None:
            return self
        try:
            instance = self.function()
            if (opening := getattr(instance, "open", None)) is not None:
                opening()
        except (Exception, SystemExit) as error:
            raise self.raised(error, (), "could not be opened, it ") from error
        return replace(self, function=getattr(instance, self.method), method=None, resource=instance)

    def close(self) -> None:
        """Call `close` of the instance, if there is one. Raises JobError for any error in it."""
        closing = getattr(self.resource, "close", None)
        try:
            if closing is not None:
                closing()
        except (Exception, SystemExit) as error:
            raise self.raised(error, (), "could not be closed, it ") from error

    def decoded(self, columns: tuple[pa.ChunkedArray, ...]) -> list[list[Any]]:
        """Return a list of Python objects per parameter. Raises JobError for a value that cannot be converted."""
        return [self._decoded(p, c) for p, c in zip(self.parameters, columns, strict=True)]

    def called(self, columns: tuple[pa.ChunkedArray, ...]) -> list[bool] | None:
        """Return for each row whether to call the function, which a NULL argument may prevent; None: call it for all rows."""
        strict = [c for c, p in zip(columns, self.parameters, strict=True) if c.null_count and not p.nullable]
        if not strict:
            return None
        return [all(valid) for valid in zip(*(c.is_valid().to_pylist() for c in strict), strict=True)]

    def _decoded(self, parameter: Parameter, chunk: pa.ChunkedArray) -> list[Any]:
        with suppress(Exception):
            return decoded(parameter.codec, chunk)
        # One by one, to name the value that cannot be converted.
        values: list[Any] = []
        arguments: list[Any] = []
        try:
            values.extend(objects(parameter.codec, chunk))
            if parameter.codec.plain:
                return values
            arguments.extend(map(parameter.codec.decode, values))
        except Exception as error:
            # Infinite and far-off dates, a dataclass that refuses its fields, a value that is no member of an Enum.
            what = f"cannot take {shown(values[len(arguments)], SHOWN)} as" if values else "cannot take a value of"
            location = raised_at(error.__traceback__, self.root)
            raise self.failed(f'{what} parameter "{parameter.name}": {named(error)}', location) from error
        return arguments

    def raised(self, error: BaseException, row: tuple[Any, ...], when: str = "") -> JobError:
        """Return the error for an exception of the user's code with the arguments `row`; `when` is text before "raised"."""
        location = raised_at(error.__traceback__, self.root)
        return self.failed(f"{when}raised {named(error)}", location, row, outage=is_outage(error))

    def failed(self, what: str, location: str | None, row: tuple[Any, ...] = (), *, outage: bool = False) -> JobError:
        """Return the error `function "f" <what>`, at `location` (`file:line`; None: the definition), with the arguments `row`.

        It is an OutageError with `outage`, otherwise a UserCodeError.
        """
        detail = f" --> {location or self.location}"
        if row:
            room = max(40, SHOWN // len(row))
            values = (f"{p.name}={shown(v, room)}" for p, v in zip(self.parameters, row, strict=True))
            detail += f"\narguments: {', '.join(values)}"
        failed = (OutageError if outage else UserCodeError)(f'function "{self.name}" {what}', detail=detail)
        if outage:
            failed.kind = OUTAGE
        return failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Invocation, ABC):
    """A function that DuckDB calls once per chunk of rows."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of a table function's rows, as (name, DuckDB type); empty for a scalar function."""
        return ()

    @abstractmethod
    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        """Return one result per row of a chunk. Raises JobError, which names the function and the row's arguments."""

    @abstractmethod
    def constant(self) -> Any:
        """Return the result of a function without parameters, as the object that Arrow's `to_pylist` returns. Raises JobError."""


def is_outage(error: BaseException) -> bool:
    """Return whether an exception of the user's code is an outage: a lost connection or a timeout, but not a missing file."""
    return isinstance(error, ConnectionError | TimeoutError)


def named(error: BaseException) -> str:
    """Return the class and the message of an exception, on one line."""
    try:
        text = " ".join(str(error).split("\n"))
    except Exception:
        text = ""
    kind = type(error).__qualname__
    return f"{kind}: {text}" if text else kind


def shown(value: Any, room: int) -> str:
    """Return the repr of a value on one line, cut off after `room` characters."""
    try:
        text = repr(value).replace("\n", " ")
    except Exception:
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= room else text[: room - 1] + "…"
