"""What all calls of user functions from DuckDB share: resources, arguments from Arrow to Python, errors that name the row."""

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
# What tells an outage from other errors where DuckDB passes on no more than the text of an error.
OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as SQL sees it. When it is not `nullable`, a NULL makes the result NULL without a call.

    `default` is SQL; without one the parameter must be given.
    """

    name: str
    type: str
    codec: Codec
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A function with all that is needed to call it in a process that has none of the user's files.

    `returns` is the DuckDB type of what DuckDB gets. `root` is the folder relative to which files are shown, `location` the
    place of the definition. A `vectorized` function takes and returns Arrow arrays, and sees NULLs. `method` is given for a
    class: the method to call of an instance, which `opened` makes and keeps as `resource`.
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
        """Return the call ready to be called: that of a class has made its instance and called its `open`."""
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
        """Call `close` of the instance, if there are both; raises what it raises as JobError."""
        closing = getattr(self.resource, "close", None)
        try:
            if closing is not None:
                closing()
        except (Exception, SystemExit) as error:
            raise self.raised(error, (), "could not be closed, it ") from error

    def decoded(self, columns: tuple[pa.ChunkedArray, ...]) -> list[list[Any]]:
        """Return the values of each parameter as Python objects."""
        return [self._decoded(p, c) for p, c in zip(self.parameters, columns, strict=True)]

    def called(self, columns: tuple[pa.ChunkedArray, ...]) -> list[bool] | None:
        """Return for which rows the function is called, None where for all: a NULL that it does not take rules a row out."""
        strict = [c for c, p in zip(columns, self.parameters, strict=True) if c.null_count and not p.nullable]
        if not strict:
            return None
        return [all(valid) for valid in zip(*(c.is_valid().to_pylist() for c in strict), strict=True)]

    def _decoded(self, parameter: Parameter, chunk: pa.ChunkedArray) -> list[Any]:
        with suppress(Exception):
            return decoded(parameter.codec, chunk)
        # One by one, to name the value that cannot be decoded.
        values: list[Any] = []
        found: list[Any] = []
        try:
            values.extend(objects(parameter.codec, chunk))
            if parameter.codec.plain:
                return values
            found.extend(map(parameter.codec.decode, values))
        except Exception as error:
            # Infinite and far-off dates, a dataclass that refuses its fields, a value that is no member of an Enum.
            what = f"cannot take {shown(values[len(found)], SHOWN)} as" if values else "cannot take a value of"
            place = raised_at(error.__traceback__, self.root)
            raise self.failed(f'{what} parameter "{parameter.name}": {named(error)}', place) from error
        return found

    def raised(self, error: BaseException, row: tuple[Any, ...], when: str = "") -> JobError:
        place = raised_at(error.__traceback__, self.root)
        return self.failed(f"{when}raised {named(error)}", place, row, outage=is_outage(error))

    def failed(self, what: str, place: str | None, row: tuple[Any, ...] = (), *, outage: bool = False) -> JobError:
        detail = f" --> {place or self.location}"
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
    """A function that DuckDB calls once for the rows of a chunk."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of the rows that a table function gives, with their types."""
        return ()

    @abstractmethod
    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        """Return the results for a chunk of rows; raises JobError, which names the function and the row's arguments."""

    @abstractmethod
    def constant(self) -> Any:
        """Return the result of a function without parameters, as Arrow would hand it out."""


def is_outage(error: BaseException) -> bool:
    """Tell whether an error of user's code says that something does not answer now: a file that is not there stays away."""
    return isinstance(error, ConnectionError | TimeoutError)


def named(error: BaseException) -> str:
    """Return an error as its class and its text, in a line."""
    try:
        text = " ".join(str(error).split("\n"))
    except Exception:
        text = ""
    kind = type(error).__qualname__
    return f"{kind}: {text}" if text else kind


def shown(value: Any, room: int) -> str:
    """Return a value in a line of so many characters at most."""
    try:
        text = repr(value).replace("\n", " ")
    except Exception:
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= room else text[: room - 1] + "…"
