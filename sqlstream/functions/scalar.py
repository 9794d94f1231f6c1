"""Scalar functions, which `@udf` marks: one value per row."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

import pyarrow as pa

from sqlstream.catalog import FunctionKind
from sqlstream.errors import BindError, UnsupportedError
from sqlstream.functions.codecs import Codec, column
from sqlstream.functions.declaration import FunctionDeclaration
from sqlstream.functions.invocation import SHOWN, Call, named, shown


@dataclass(frozen=True, slots=True)
class ScalarDeclaration(FunctionDeclaration):
    """A Python function that returns one value per row."""

    kind: ClassVar[FunctionKind] = "scalar"
    null_rule: ClassVar[str] = "NULL makes the result NULL"

    def call(self) -> ScalarCall:
        name = self.name()
        if inspect.isgeneratorfunction(self.inner):
            hint = "Mark it @udtf, and write CROSS JOIN LATERAL f(..): or return one value per row, such as a list."
            raise UnsupportedError(f"{self.called} is a generator", self.definition(), hint=hint)
        hints = self.hints()
        parameters = self.parameters(hints)
        explicit, spelled = self.options.returns, "@udf(returns='BIGINT')"
        what, span = f"the result of {self.called}", self.definition()
        if explicit is None and "return" not in hints:
            hint = f"Write -> int, say, or name the SQL type: {spelled}."
            raise BindError(f"{what} has no type hint", span, hint=hint)
        returns, result = self.typed(hints.get("return"), explicit, what, spelled, span)
        return ScalarCall(
            name=name,
            function=self.function,
            parameters=parameters,
            returns=returns,
            result=result,
            root=self.root,
            location=self.location(),
            vectorized=self.options.vectorized,
            method=self.method,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarCall(Call):
    """A scalar function that is called per row; a vectorized one is called once per chunk."""

    result: Codec

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        if self.vectorized:
            return self._vector(columns)
        decoded = self.decoded(columns)
        if (called := self.called(columns)) is not None:
            some = iter(self._results([list(compress(values, called)) for values in decoded]))
            results = [next(some) if c else None for c in called]
        else:
            results = self._results(decoded)
        return self._encoded(results, decoded)

    def constant(self) -> Any:
        try:
            value = self.function()
        except (Exception, SystemExit) as error:
            raise self.raised(error, ()) from error
        return self._encoded([value], []).to_pylist()[0]

    def _vector(self, columns: tuple[pa.ChunkedArray, ...]) -> pa.Array:
        rows = len(columns[0])
        try:
            result = self.function(*(c.combine_chunks() for c in columns))
        except (Exception, SystemExit) as error:
            raise self.raised(error, ()) from error
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise self.failed(f"returned a {type(result).__qualname__}, not an Arrow array", self.location)
        if len(result) != rows:
            raise self.failed(f"returned {len(result)} values for {rows} rows", self.location)
        try:
            return result if result.type == self.result.arrow else result.cast(self.result.arrow)
        except pa.ArrowException as error:
            what = f"returned an array of {result.type}, which is no {self.returns}: {named(error)}"
            raise self.failed(what, self.location) from error

    def _results(self, arguments: list[list[Any]]) -> list[Any]:
        results: list[Any] = []
        try:
            # The fastest loop there is. Results before an exception stay in the list, so its length is the index of the row.
            results.extend(map(self.function, *arguments))
            # A StopIteration that escapes the function (a bare `next`) looks like the end of the rows.
            if len(results) < len(arguments[0]):
                raise StopIteration
        except (Exception, SystemExit) as error:
            raise self.raised(error, tuple(values[len(results)] for values in arguments)) from error
        return results

    def _encoded(self, results: list[Any], arguments: list[list[Any]]) -> pa.Array:
        try:
            return column(self.result, results)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for row, value in enumerate(results):
                if (error := self._mismatch(value)) is not None:
                    raise self.failed(
                        f"returned {shown(value, SHOWN)} ({type(value).__qualname__}), which is no {self.returns}",
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
