"""The steps of an aggregate function over Arrow: they accumulate lists of rows, merge accumulators, and finish results.

A step decodes the rows of all groups of a chunk at once; a group is a range of these rows. NULL stands for an accumulator without
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from sqlstream.errors import JobError
from sqlstream.functions.codecs import Codec, column, decoded
from sqlstream.functions.invocation import SHOWN, Invocation, named, shown
from sqlstream.functions.rows import MISMATCHES, RowType, WrongTable

Indexes = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSteps(Invocation):
    """The steps of an aggregate function, each over all groups of a chunk. Call `opened` first.

    - `codec` converts accumulators between Arrow and Python objects.
    - `accumulator` has the names and types of the accumulators' columns.
    - `create` returns an accumulator without rows; None if the class has a method `create`, or is vectorized.
    - `returning` names the methods that return the accumulator; all others change their argument.
    """

    result: Codec
    accumulator: RowType
    codec: Codec
    create: Callable[[], Any] | None
    merges: bool
    retracts: bool
    returning: frozenset[str]

    def accumulate(self, rows: pa.ListArray) -> pa.Array:
        """Return one accumulator per group. A group is a list of rows: a row is the argument, or a struct of all arguments."""
        return self._with_rows("accumulate", None, rows)

    def change(self, accumulators: pa.Array, added: pa.ListArray, retracted: pa.ListArray) -> pa.Array:
        """Add the rows `added` to the accumulators of the groups, then retract the rows `retracted`; return the accumulators."""
        return self._with_rows("retract", self._extended(accumulators, added), retracted)

    def merge(self, lists: pa.ListArray) -> pa.Array:
        """Return one accumulator per group, merged from a list of accumulators; NULLs are skipped."""
        flat, owners = _flat(lists)
        if flat.null_count:
            valid = flat.is_valid()
            flat, owners = flat.filter(valid), owners[valid.to_numpy(zero_copy_only=False)]
        if self.vectorized:
            return self._in_groups(len(lists), owners, lambda groups: self._method("merge")(groups, self._table(flat)))
        merged: list[Any] = [None] * len(lists)
        first: dict[int, Any] = {}
        others: list[tuple[int, Any]] = []
        for owner, value in zip(owners.tolist(), self._objects(flat), strict=True):
            if first.setdefault(owner, value) is not value:
                others.append((owner, value))
        for owner, value in first.items():
            merged[owner] = value
        self._fold("merge", merged, [owner for owner, _ in others], [[value for _, value in others]], False)
        return self._encoded(merged)

    def finish(self, accumulators: pa.Array) -> pa.Array:
        """Return the result of each group. A group without rows has the result of a new accumulator, or NULL if vectorized."""
        if self.vectorized:
            return self._finished(accumulators)
        finish, results = self._method("finish"), []
        for value in self._objects(accumulators):
            try:
                results.append(finish(self._new() if value is None else value))
            except (Exception, SystemExit) as error:
                raise self.raised(error, (), "finish ") from error
        return self._results(results)

    def scan(self, accumulators: pa.Array, rows: pa.ListArray) -> pa.StructArray:
        """Add the rows of each group one by one. Return a struct per group: the results after each row, and the last accumulator.

        A row is wrapped in a struct with one field. A NULL struct stands for no row: it gets the result so far.
        """
        flat, owners = _flat(rows)
        valid = flat.is_valid().to_numpy(zero_copy_only=False)
        [own] = flat.flatten()
        results, after = (self._scanned if not self.vectorized else self._scanned_arrays)(
            accumulators, own, owners, valid
        )
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(rows)))])
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), results)
        return pa.StructArray.from_arrays([lists, after], names=["results", "accumulator"])

    def _extended(self, accumulators: pa.Array, rows: pa.ListArray) -> pa.Array:
        """Return the accumulators after adding a list of rows to each."""
        if not self.vectorized:
            return self._with_rows("accumulate", accumulators, rows)
        both = pa.concat_arrays([accumulators, self.accumulate(rows)])
        pairs = np.arange(len(both)).reshape(2, -1).T.ravel()
        offsets = np.arange(0, len(both) + 1, 2)
        return self.merge(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), both.take(pa.array(pairs))))

    # -- row by row

    def _scanned(
        self, accumulators: pa.Array, rows: pa.Array, owners: Indexes, valid: Indexes
    ) -> tuple[pa.Array, pa.Array]:
        columns = self._columns(rows)
        called = self.called(columns)
        # A row that is not added may hold any values.
        decoded = self.decoded(tuple(c.filter(pa.array(valid)) for c in columns))
        values = zip(*decoded, strict=True)
        objects, results = self._objects(accumulators), []
        step, finish, returns = self._method("accumulate"), self._method("finish"), "accumulate" in self.returning
        for index, (owner, is_valid) in enumerate(zip(owners.tolist(), valid.tolist(), strict=True)):
            row = next(values) if is_valid else ()
            try:
                if (value := objects[owner]) is None:
                    value = self._new()
                if is_valid and (called is None or called[index]):
                    result = step(value, *row)
                    if not returns and result is not None:
                        raise self._unhinted("accumulate", result)
                    value = objects[owner] = result if returns else value
            except JobError:
                raise
            except (Exception, SystemExit) as error:
                raise self.raised(error, row) from error
            try:
                results.append(finish(value))
            except (Exception, SystemExit) as error:
                raise self.raised(error, (), "finish ") from error
        return self._results(results), self._encoded(objects)

    def _results(self, results: list[Any]) -> pa.Array:
        try:
            return column(self.result, results)
        except MISMATCHES:
            for value in results:
                try:
                    column(self.result, [value])
                except MISMATCHES as error:
                    what = f"finish returned {shown(value, SHOWN)} ({type(value).__qualname__}), which is no {self.returns}"
                    raise self.failed(what, self.location) from error
            raise

    def _columns(self, rows: pa.Array) -> tuple[pa.ChunkedArray, ...]:
        """Return the arguments in rows: the rows themselves, or the fields of structs."""
        arrays = [rows] if len(self.parameters) == 1 else rows.flatten()
        return tuple(pa.chunked_array([array]) for array in arrays)

    def _with_rows(self, method: str, accumulators: pa.Array | None, rows: pa.ListArray) -> pa.Array:
        flat, owners = _flat(rows)
        columns = self._columns(flat)
        if self.vectorized:
            return self._with_arrays(method, accumulators, owners, len(rows), columns)
        arguments = self.decoded(columns)
        if (called := self.called(columns)) is not None:
            arguments, owners = [list(compress(values, called)) for values in arguments], owners[called]
        objects = [None] * len(rows) if accumulators is None else self._objects(accumulators)
        self._fold(method, objects, owners.tolist(), arguments, True)
        return self._encoded(objects)

    def _fold(
        self, method: str, objects: list[Any], owners: list[int], columns: list[list[Any]], shows_row: bool
    ) -> None:
        """Call a method once per row, with the accumulator `objects[owner]` of the row; create the accumulator if it is None.

        Raises JobError for an exception of the user's code, with the row's values if `shows_row`.
        """
        step, returns, folded = self._method(method), method in self.returning, 0
        rows = zip(*columns, strict=True) if columns else (() for _ in owners)
        try:
            for owner, row in zip(owners, rows, strict=True):
                if (value := objects[owner]) is None:
                    value = objects[owner] = self._new()
                if returns:
                    objects[owner] = step(value, *row)
                elif (result := step(value, *row)) is not None:
                    raise self._unhinted(method, result)
                folded += 1
        except JobError:
            raise
        except (Exception, SystemExit) as error:
            raise self.raised(error, tuple(c[folded] for c in columns) if shows_row else ()) from error

    def _unhinted(self, method: str, result: Any) -> JobError:
        """Return the error for a method that returned a value although its hint declares no result: the value would be lost."""
        what = f'method "{method}" returned {shown(result, SHOWN)} ({type(result).__qualname__}), but has no hint of a result'
        return self.failed(f"{what}: write one, or return nothing", self.location)

    def _new(self) -> Any:
        try:
            return self.create() if self.create is not None else self._method("create")()
        except (Exception, SystemExit) as error:
            raise self.raised(error, (), "create ") from error

    def _method(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.resource, name)
        return method

    def _objects(self, accumulators: pa.Array) -> list[Any]:
        return decoded(self.codec, pa.chunked_array([accumulators]))

    def _encoded(self, values: list[Any]) -> pa.Array:
        try:
            return column(self.codec, values)
        except MISMATCHES:
            for value in values:
                if (error := self._mismatch(value)) is not None:
                    kind = type(value).__qualname__
                    what = (
                        f"has made the accumulator {shown(value, SHOWN)} ({kind}), which is no {self.accumulator.type}"
                    )
                    raise self.failed(f"{what}: {named(error)}", self.location) from error
            raise

    def _mismatch(self, value: Any) -> Exception | None:
        try:
            column(self.codec, [value])
        except MISMATCHES as error:
            return error
        return None

    # -- many groups at a time

    def _scanned_arrays(
        self, accumulators: pa.Array, rows: pa.Array, owners: Indexes, valid: Indexes
    ) -> tuple[pa.Array, pa.Array]:
        """Return the accumulator after each row, and the last accumulator of each group, by a prefix scan that doubles its span.

        In each round, every accumulator is merged with the one `span` positions before it in its group; then the span doubles.
        The first position of a group holds the accumulator from before its rows.
        """
        number, indexes = len(accumulators), np.arange(len(owners))
        alone = np.repeat(indexes, valid.astype(int))
        lists = pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(valid)]), pa.int32()), rows.take(pa.array(alone))
        )
        sizes = np.bincount(owners, minlength=number) + 1
        starts = np.cumsum(sizes) - sizes
        order = np.empty(number + len(owners), int)
        order[starts] = np.arange(number)
        own_indexes = indexes + owners + 1
        order[own_indexes] = number + indexes
        prefixes = pa.concat_arrays([accumulators, self.accumulate(lists)]).take(pa.array(order))
        begins = np.repeat(starts, sizes)
        every, span = np.arange(len(prefixes)), 1
        while len(later := every[every - span >= begins]):
            pairs = np.stack([later - span, later], axis=1).ravel()
            offsets = pa.array(np.arange(0, len(pairs) + 1, 2), pa.int32())
            merged = self.merge(pa.ListArray.from_arrays(offsets, prefixes.take(pa.array(pairs))))
            chosen = every.copy()
            chosen[later] = len(prefixes) + np.arange(len(later))
            prefixes, span = pa.concat_arrays([prefixes, merged]).take(pa.array(chosen)), 2 * span
        return self.finish(prefixes.take(pa.array(own_indexes))), prefixes.take(pa.array(starts + sizes - 1))

    def _with_arrays(
        self,
        method: str,
        accumulators: pa.Array | None,
        owners: Indexes,
        number: int,
        columns: tuple[pa.ChunkedArray, ...],
    ) -> pa.Array:
        arrays = [c.combine_chunks() for c in columns]
        if accumulators is None:
            return self._in_groups(number, owners, lambda groups: self._method(method)(groups, *arrays))
        present = pa.array(_stretches(owners)[0])
        table = self._table(accumulators.take(present))
        changed = self._in_groups(number, owners, lambda groups: self._method(method)(table, groups, *arrays))
        # Groups without a retracted row stay the same.
        indexes = np.arange(number)
        indexes[present.to_numpy()] = number + np.asarray(present)
        return pa.concat_arrays([accumulators, changed]).take(pa.array(indexes))

    def _in_groups(self, number: int, owners: Indexes, call: Callable[[pa.Array], Any]) -> pa.Array:
        """Return one accumulator per group: from `call` for the groups with rows, NULL for all others."""
        present, groups = _stretches(owners)
        if not len(present):
            return pa.nulls(number, self.codec.arrow)
        try:
            result = call(pa.array(groups, pa.int64()))
        except (Exception, SystemExit) as error:
            raise self.raised(error, ()) from error
        if not isinstance(result, pa.Table | pa.RecordBatch):
            raise self._wrong(f"returned a {type(result).__qualname__}, not an Arrow table of accumulators")
        if result.num_rows != len(present):
            raise self._wrong(f"returned {result.num_rows} accumulators for {len(present)} groups")
        try:
            accumulators = self.accumulator.arrow(self.accumulator.table_arrays(result))
        except WrongTable as error:
            raise self._wrong(f"returned a table {error}") from error
        if len(present) == number:
            return accumulators
        indexes = np.zeros(number, np.int64)
        indexes[present] = np.arange(len(present))
        missing = np.ones(number, bool)
        missing[present] = False
        return accumulators.take(pa.array(indexes, mask=missing))

    def _finished(self, accumulators: pa.Array) -> pa.Array:
        present = accumulators.is_valid()
        whole = not accumulators.null_count
        try:
            result = self._method("finish")(self._table(accumulators if whole else accumulators.filter(present)))
        except (Exception, SystemExit) as error:
            raise self.raised(error, (), "finish ") from error
        array = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result
        number = len(accumulators) - accumulators.null_count
        if not isinstance(array, pa.Array):
            raise self._wrong(f"finish returned a {type(result).__qualname__}, not an Arrow array")
        if len(array) != number:
            raise self._wrong(f"finish returned {len(array)} values for {number} groups")
        try:
            array = array if array.type == self.result.arrow else array.cast(self.result.arrow)
        except pa.ArrowException as error:
            what = f"finish returned an array of {array.type}, which is no {self.returns}: {named(error)}"
            raise self._wrong(what) from error
        if whole:
            return array
        indexes = np.cumsum(present.to_numpy(zero_copy_only=False)) - 1
        return array.take(pa.array(indexes, mask=~present.to_numpy(zero_copy_only=False)))

    def _table(self, accumulators: pa.Array) -> pa.Table:
        names = [c.name for c in self.accumulator.columns]
        arrays = [accumulators] if self.accumulator.shape == "value" else accumulators.flatten()
        return pa.table(arrays, names=names)

    def _wrong(self, what: str) -> JobError:
        return self.failed(what, self.location)


def _flat(lists: pa.ListArray) -> tuple[pa.Array, Indexes]:
    """Return the elements of all lists, and for each element the index of its list."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def _stretches(owners: Indexes) -> tuple[Indexes, Indexes]:
    """Return the distinct owners, and for each element the index of its owner in them. Equal owners must be adjacent."""
    begins = np.diff(owners, prepend=-1) != 0
    return owners[begins], np.cumsum(begins) - 1
