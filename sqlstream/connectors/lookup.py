"""Lookup joins: rows are looked up by key, for many keys at once, with a cache and with retries."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.interface import LookupFunction
from sqlstream.connectors.options import BOOLEAN, COUNT, DURATION, NUMBER, OptionType, TableOption
from sqlstream.connectors.registry import lookup_of
from sqlstream.errors import DataError, JobError, OutageError, Span, SqlStreamError, UserCodeError
from sqlstream.secrets import harmless
from sqlstream.units import parse_duration, seconds

CACHE, RETRIES = "lookup.cache", "lookup.max-retries"
MAX_ROWS, EXPIRE, MISSING = (
    f"lookup.partial-cache.{name}" for name in ("max-rows", "expire-after-write", "cache-missing-key")
)
# Seconds before the first retry; each further one waits twice as long.
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
# The most lookups, each with its cache, that a process keeps.
_KEPT = 64


def parse_cache(text: str) -> bool:
    """Return whether the value of the option CACHE asks for a cache. Raises ValueError unless it is NONE or PARTIAL."""
    if text.upper() not in ("NONE", "PARTIAL"):
        raise ValueError(f'"{text}" is neither NONE nor PARTIAL')
    return text.upper() == "PARTIAL"


OPTIONS = (
    TableOption(
        CACHE, OptionType("NONE or PARTIAL", parse_cache), "PARTIAL caches rows that were looked up", default="NONE"
    ),
    TableOption(MAX_ROWS, COUNT, "how many rows a worker process caches at most", default="10000"),
    TableOption(EXPIRE, DURATION, "how long a row stays in the cache; without it, until the cache is full"),
    TableOption(MISSING, BOOLEAN, "whether the cache also remembers keys without rows", default="true"),
    TableOption(
        RETRIES, NUMBER, "how often a failed lookup is tried again, each time after a longer wait", default="3"
    ),
)


class CachedLookup:
    """Looks up rows of one table by key, with the cache and the retries of the table's options.

    Threads take turns.
    """

    def __init__(self, table: Table, look_up: LookupFunction, *, clock: Callable[[], float] = time.monotonic):
        self._table, self._look_up, self._clock = table, look_up, clock
        values = {o.name: o.type.parse(table.options.get(o.name, o.default)) for o in OPTIONS if o.name != EXPIRE}
        self._caches, self._keeps_missing = bool(values[CACHE]), bool(values[MISSING])
        self._max_rows, self._retries = cast(int, values[MAX_ROWS]), cast(int, values[RETRIES])
        self._seconds = seconds(parse_duration(table.options[EXPIRE])) if EXPIRE in table.options else None
        # By keys: when they were looked up, and the rows.
        self._cache: OrderedDict[tuple[Any, ...], tuple[float, list[dict[str, Any]]]] = OrderedDict()
        self._cached_rows = 0
        self._schema: pa.Schema | None = None
        # Connections of databases are for one thread at a time, as is the cache.
        self._turn = threading.Lock()

    def find(self, keys: pa.Table, span: Span | None = None) -> pa.Table:
        """Return the rows that match some keys, with the columns of `look_up`.

        `keys` has a row per key, without NULLs and duplicates. Raises DataError for rows that do not fit the table, and JobError
        (OutageError, UserCodeError) if the last retry fails. `span` is where the query names the table.
        """
        with self._turn:
            return self._find(keys, span) if self._caches else self._ask(keys, span)

    def _find(self, keys: pa.Table, span: Span | None) -> pa.Table:
        """Return the rows of the cache, and look up the other ones."""
        names = keys.column_names
        key_tuples = [tuple(row[n] for n in names) for row in _with_numbers(keys).to_pylist()]
        now = self._clock()
        cached_rows = {key: rows for key in key_tuples if (rows := self._remembered(key, now)) is not None}
        lacking = pa.array([key not in cached_rows for key in key_tuples])
        fetched_rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        if len(cached_rows) < len(key_tuples) or self._schema is None:
            answer = self._ask(keys.filter(lacking), span)
            self._schema = answer.schema
            fetched_rows = {key: [] for key in key_tuples if key not in cached_rows}
            for row in _with_numbers(answer).to_pylist():
                key = tuple(row[n] for n in names)
                if key in fetched_rows:
                    fetched_rows[key].append(row)
            for key, rows in fetched_rows.items():
                self._remember(key, rows, now)
        rows = [
            row for rows_by_key in (cached_rows, fetched_rows) for several in rows_by_key.values() for row in several
        ]
        numbers = pa.schema([pa.field(f.name, _NUMBERS.get(f.type.id, f.type)) for f in self._schema])
        return pa.Table.from_pylist(rows, schema=numbers).cast(self._schema)

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
        """Look up keys in the table; retry with growing delays."""
        delay = _FIRST_DELAY
        for attempt in range(self._retries + 1):
            try:
                return self._look_up(keys)
            except OverflowError as error:
                message = f'a key to look up in table "{self._table.name}" is a date or time that Python does not have'
                raise DataError(message, span, detail="Python has the years 1 to 9999.") from harmless(error)
            except Exception as error:
                failed = error
            if isinstance(failed, DataError):
                # A retry would find the same rows.
                raise failed
            if attempt < self._retries:
                time.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
        raise _failure(self._table, failed, self._retries, span) from harmless(failed)


# The types of the numbers that dates and timestamps are, by their ids: Python lacks some of these times.
_NUMBERS = {pa.date32().id: pa.int32(), pa.date64().id: pa.int64(), pa.timestamp("us").id: pa.int64()}


def _with_numbers(rows: pa.Table) -> pa.Table:
    """Return rows with numbers for dates and timestamps."""
    numbers = [column.cast(_NUMBERS.get(column.type.id, column.type)) for column in rows.columns]
    return pa.table(numbers, names=rows.column_names)


def _failure(table: Table, error: Exception, retries: int, span: Span | None) -> JobError:
    tried = f" {retries + 1} times" if retries else ""
    kind: type[JobError] = OutageError if isinstance(error, OutageError | OSError) else JobError
    if isinstance(error, UserCodeError):
        kind = UserCodeError
    if isinstance(error, SqlStreamError):
        reason, detail, hint = error.message, error.detail, error.hint
    else:
        detail = hint = None
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__qualname__
    return kind(f'looking up rows of table "{table.name}" failed{tried}: {reason}', span, detail=detail, hint=hint)


_lookups: OrderedDict[tuple[object, ...], CachedLookup] = OrderedDict()
_lock = threading.Lock()


def open_lookup(table: Table, keys: Sequence[str], *, warehouse: str, project: str) -> CachedLookup:
    """Return the lookup of a table by the columns `keys`. A process shares one, with its cache, for each table and keys."""
    cache_key = (os.getpid(), warehouse, project, table.name, table.definition, table.implementation, tuple(keys))
    with _lock:
        if cache_key not in _lookups:
            _lookups[cache_key] = CachedLookup(table, lookup_of(table).function(warehouse=warehouse, project=project))
            while len(_lookups) > _KEPT:
                _lookups.popitem(last=False)
        _lookups.move_to_end(cache_key)
        return _lookups[cache_key]
