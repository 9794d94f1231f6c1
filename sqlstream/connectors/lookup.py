"""Looking up rows outside by their keys: those of a chunk together, with a cache, and again when it fails."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.errors import DataError, JobError, Span, SqlStreamError
from sqlstream.secrets import harmless
from sqlstream.units import parse_boolean, parse_count, parse_duration

CACHE, RETRIES = "lookup.cache", "lookup.max-retries"
MAX_ROWS, EXPIRE, MISSING = (
    f"lookup.partial-cache.{name}" for name in ("max-rows", "expire-after-write", "cache-missing-key")
)
_DEFAULT_ROWS, _DEFAULT_RETRIES = 10_000, 3
# Seconds before the first retry; each further one waits twice as long.
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
# Tables of this process whose caches stay.
_KEPT = 64


def parse_cache(text: str) -> bool:
    """Return whether there is a cache. Raises ValueError."""
    if text.upper() not in ("NONE", "PARTIAL"):
        raise ValueError(f'"{text}" is neither NONE nor PARTIAL')
    return text.upper() == "PARTIAL"


def _parse_number(text: str) -> int:
    return 0 if text.strip() == "0" else parse_count(text)


OPTIONS: Mapping[str, Callable[[str], object]] = {
    CACHE: parse_cache,
    MAX_ROWS: parse_count,
    EXPIRE: parse_duration,
    MISSING: parse_boolean,
    RETRIES: _parse_number,
}


def without_options(table: Table) -> Table:
    """Return a table without the options that only say how it is looked up."""
    return replace(table, options={k: v for k, v in table.options.items() if k not in OPTIONS})


class Outside(Protocol):
    """What is looked up: returns the rows whose columns have the values of the keys, with the table's physical columns.

    `keys` are columns of the table with their types; none is NULL, no two rows are equal. Rows of other keys do no harm.
    """

    def __call__(self, keys: pa.Table) -> pa.Table: ...


class Lookup:
    """Finds rows of one table by some of its columns, and remembers them as long as the table's options say."""

    def __init__(self, table: Table, outside: Outside, *, clock: Callable[[], float] = time.monotonic):
        options = table.options
        self._table, self._outside, self._clock = table, outside, clock
        self._caches = parse_cache(options.get(CACHE, "NONE"))
        self._max_rows = parse_count(options.get(MAX_ROWS, str(_DEFAULT_ROWS)))
        self._seconds = parse_duration(options[EXPIRE]).total_seconds() if EXPIRE in options else None
        self._keeps_missing = parse_boolean(options.get(MISSING, "true"))
        self._retries = _parse_number(options.get(RETRIES, str(_DEFAULT_RETRIES)))
        # By keys: when they were looked up, and the rows.
        self._cache: OrderedDict[tuple[Any, ...], tuple[float, list[dict[str, Any]]]] = OrderedDict()
        self._cached_rows = 0
        self._schema: pa.Schema | None = None

    def find(self, keys: pa.Table, span: Span | None = None) -> pa.Table:
        """Return the rows for some keys. Raises JobError when they cannot be looked up, also not again."""
        if not self._caches:
            return self._ask(keys, span)
        names = keys.column_names
        wanted = [tuple(row[n] for n in names) for row in keys.to_pylist()]
        now = self._clock()
        known = {key: rows for key in wanted if (rows := self._remembered(key, now)) is not None}
        lacking = pa.array([key not in known for key in wanted])
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        if len(known) < len(wanted) or self._schema is None:
            answer = self._ask(keys.filter(lacking), span)
            self._schema = answer.schema
            found = {key: [] for key in wanted if key not in known}
            for row in answer.to_pylist():
                key = tuple(row[n] for n in names)
                if key in found:
                    found[key].append(row)
            for key, rows in found.items():
                self._remember(key, rows, now)
        rows = [row for given in (known, found) for several in given.values() for row in several]
        return pa.Table.from_pylist(rows, schema=self._schema)

    def _remembered(self, key: tuple[Any, ...], now: float) -> list[dict[str, Any]] | None:
        if key not in self._cache:
            return None
        at, rows = self._cache[key]
        if self._seconds is not None and now - at >= self._seconds:
            self._forget(key)
            return None
        self._cache.move_to_end(key)
        return rows

    def _remember(self, key: tuple[Any, ...], rows: list[dict[str, Any]], now: float) -> None:
        if not rows and not self._keeps_missing:
            return
        self._cache[key] = (now, rows)
        self._cached_rows += max(len(rows), 1)
        while self._cached_rows > self._max_rows:
            self._forget(next(iter(self._cache)))

    def _forget(self, key: tuple[Any, ...]) -> None:
        _, rows = self._cache.pop(key)
        self._cached_rows -= max(len(rows), 1)

    def _ask(self, keys: pa.Table, span: Span | None) -> pa.Table:
        """Look up keys; again with growing delays while that fails."""
        delay = _FIRST_DELAY
        for attempt in range(self._retries + 1):
            try:
                return self._outside(keys)
            except Exception as error:
                failed = error
            if isinstance(failed, DataError):
                # What is declared wrongly stays wrong.
                raise failed
            if attempt < self._retries:
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
        raise _failure(self._table, failed, self._retries, span) from harmless(failed)


def _failure(table: Table, error: Exception, retries: int, span: Span | None) -> JobError:
    tried = f" {retries + 1} times" if retries else ""
    if isinstance(error, SqlStreamError):
        reason, detail, hint = error.message, error.detail, error.hint
    else:
        detail = hint = None
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__qualname__
    return JobError(f'looking up rows of table "{table.name}" failed{tried}: {reason}', span, detail=detail, hint=hint)


_lookups: OrderedDict[tuple[object, ...], Lookup] = OrderedDict()


def lookup_of(table: Table, keys: Sequence[str], place: tuple[object, ...], make: Callable[[], Outside]) -> Lookup:
    """Return this process's lookup of a table by some columns; `place` is where a job runs."""
    known = (os.getpid(), place, table.name, table.definition, table.implementation, tuple(keys))
    if known not in _lookups:
        _lookups[known] = Lookup(table, make())
        while len(_lookups) > _KEPT:
            _lookups.popitem(last=False)
    _lookups.move_to_end(known)
    return _lookups[known]
