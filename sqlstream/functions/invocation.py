"""A user's function applied to columns: Arrow in, Arrow out, NULLs and errors handled row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import pyarrow as pa

from sqlstream.errors import JobError
from sqlstream.functions.codecs import Codec, column, objects
from sqlstream.functions.source_locations import raised_at

_SHOWN = 200


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


@dataclass(frozen=True, slots=True)
class Call:
    """A function with all that is needed to call it in a process that has none of the user's files.

    `root` is the folder relative to which files are shown, `location` the place of the definition. A `vectorized` function
    takes and returns Arrow arrays, and sees NULLs. `method` is given for a class: the method to call of an instance, which
    `opened` makes and keeps as `resource`.
    """

    name: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    returns: str
    result: Codec
    root: str
    location: str
    vectorized: bool = False
    method: str | None = None
    resource: Any = None

    def opened(self) -> Call:
        """Return the call ready to be called: that of a class has made its instance and called its `open`."""
        if self.method is None:
            return self
        try:
            instance = self.function()
            if (opening := getattr(instance, "open", None)) is not None:
                opening()
        except (Exception, SystemExit) as error:
            raise self._raised(error, (), "could not be opened, it ") from error
        return replace(self, function=getattr(instance, self.method), method=None, resource=instance)

    def close(self) -> None:
        """Call `close` of the instance, if there are both; raises what it raises as JobError."""
        closing = getattr(self.resource, "close", None)
        try:
            if closing is not None:
                closing()
        except (Exception, SystemExit) as error:
            raise self._raised(error, (), "could not be closed, it ") from error

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        """Return the results for a chunk of rows; raises JobError, which names the function and the row's arguments."""
        if self.vectorized:
            return self._vector(columns)
        decoded = [self._decoded(p, c) for p, c in zip(self.parameters, columns, strict=True)]
        strict = [c for c, p in zip(columns, self.parameters, strict=True) if c.null_count and not p.nullable]
        if strict:
            called = [all(valid) for valid in zip(*(c.is_valid().to_pylist() for c in strict), strict=True)]
            some = iter(self._results([list(compress(values, called)) for values in decoded]))
            results = [next(some) if c else None for c in called]
        else:
            results = self._results(decoded)
        return self._encoded(results, decoded)

    def constant(self) -> Any:
        """Return the one result of a function without parameters, as Arrow would hand it out."""
        try:
            value = self.function()
        except (Exception, SystemExit) as error:
            raise self._raised(error, ()) from error
        return self._encoded([value], []).to_pylist()[0]

    def _vector(self, columns: tuple[pa.ChunkedArray, ...]) -> pa.Array:
        rows = len(columns[0])
        try:
            result = self.function(*(c.combine_chunks() for c in columns))
        except (Exception, SystemExit) as error:
            raise self._raised(error, ()) from error
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise self._failed(f"returned a {type(result).__qualname__}, not an Arrow array", self.location)
        if len(result) != rows:
            raise self._failed(f"returned {len(result)} values for {rows} rows", self.location)
        try:
            return result if result.type == self.result.arrow else result.cast(self.result.arrow)
        except pa.ArrowException as error:
            what = f"returned an array of {result.type}, which is no {self.returns}: {named(error)}"
            raise self._failed(what, self.location) from error

    def _decoded(self, parameter: Parameter, chunk: pa.ChunkedArray) -> list[Any]:
        values: list[Any] = []
        decoded: list[Any] = []
        try:
            values.extend(objects(parameter.codec, chunk))
            if parameter.codec.plain:
                return values
            decoded.extend(map(parameter.codec.decode, values))
        except Exception as error:
            # Infinite and far-off dates, a dataclass that refuses its fields, a value that is no member of an Enum.
            what = f"cannot take {shown(values[len(decoded)], _SHOWN)} as" if values else "cannot take a value of"
            place = raised_at(error.__traceback__, self.root)
            raise self._failed(f'{what} parameter "{parameter.name}": {named(error)}', place) from error
        return decoded

    def _results(self, arguments: list[list[Any]]) -> list[Any]:
        results: list[Any] = []
        try:
            # The fastest loop there is. What it yields before an exception stays in the list, so its length is the row.
            results.extend(map(self.function, *arguments))
            # A StopIteration that escapes the function (a bare `next`) looks like the end of the rows.
            if len(results) < len(arguments[0]):
                raise StopIteration
        except (Exception, SystemExit) as error:
            raise self._raised(error, tuple(values[len(results)] for values in arguments)) from error
        return results

    def _encoded(self, results: list[Any], arguments: list[list[Any]]) -> pa.Array:
        try:
            return column(self.result, results)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for row, value in enumerate(results):
                if (error := self._mismatch(value)) is not None:
                    raise self._failed(
                        f"returned {shown(value, _SHOWN)} ({type(value).__qualname__}), which is no {self.returns}",
                        self.location,
                        tuple(values[row] for values in arguments),
                    ) from error
            raise

    def _mismatch(self, value: Any) -> Exception | None:
        try:
            column(self.result, [value])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            return error
        return None

    def _raised(self, error: BaseException, row: tuple[Any, ...], when: str = "") -> JobError:
        return self._failed(f"{when}raised {named(error)}", raised_at(error.__traceback__, self.root), row)

    def _failed(self, what: str, place: str | None, row: tuple[Any, ...] = ()) -> JobError:
        detail = f" --> {place or self.location}"
        if row:
            room = max(40, _SHOWN // len(row))
            given = (f"{p.name}={shown(v, room)}" for p, v in zip(self.parameters, row, strict=True))
            detail += f"\narguments: {', '.join(given)}"
        return JobError(f'function "{self.name}" {what}', detail=detail)


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
