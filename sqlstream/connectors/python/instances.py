"""Users' classes and functions: imported by their names, pickled by value for workers, instantiated with the table's options."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlstream.catalog import Table
from sqlstream.connectors.lookup import OPTIONS as LOOKUP_OPTIONS
from sqlstream.connectors.options import MONITOR, SCAN_OPTIONS, TEXT, TableOption
from sqlstream.connectors.python.classes import AnySink, OwnTable, Source
from sqlstream.duck.internal_columns import PARTITION
from sqlstream.errors import BindError, OutageError, SqlStreamError, UserCodeError, missing
from sqlstream.functions import pickling as carry
from sqlstream.functions.invocation import is_outage
from sqlstream.functions.source_locations import raised_at
from sqlstream.secrets import harmless

OPTIONS = (
    TableOption(
        "class", TEXT, "the class of the source or sink, as `module.Class`", required=True, example="module.Class"
    ),
    TableOption("function", TEXT, "the function of a lookup table, as `module.function`", instead_of="class"),
    MONITOR,
)
# The options that are not passed to the user's class.
_OURS = {"connector", *(option.name for option in (*OPTIONS, *SCAN_OPTIONS, *LOOKUP_OPTIONS))}
# A file udfs/x.py is loaded as the module x of a package of this name.
_PROJECT = re.compile(r"udfs_[0-9a-f]{12}")
# The most instances that a process keeps; the least recently used ones are forgotten.
_MAX_INSTANCES = 64
# The most coroutines that run at the same time.
AT_A_TIME = 100


def implemented(table: Table) -> Table:
    """Return the table with its class or function, pickled by value, as its `implementation`.

    It is imported from the project's `udfs/`, or from an installed module. Raises BindError if it does not exist, is of the wrong
    kind, or cannot be pickled.
    """
    if "class" not in table.options:
        implementation = _named(table, "function")
        if not callable(implementation):
            raise BindError(f'table "{table.name}": "{table.options["function"]}" cannot be called', table.span)
        return _carried(table, implementation)
    implementation = _named(table, "class")
    if not (isinstance(implementation, type) and issubclass(implementation, Source | AnySink)):
        raise BindError(
            f'table "{table.name}": "{table.options["class"]}" is not a Source or a Sink',
            table.span,
            hint="Derive it from Source, Sink, UpsertSink, WriteAheadSink or TwoPhaseSink of sqlstream.connectors.",
        )
    return _carried(table, implementation)


def _carried(table: Table, implementation: Any) -> Table:
    try:
        return replace(table, implementation=carry.pack_class(implementation))
    except carry.NotPicklable as error:
        message = f'table "{table.name}": {_what(table)} cannot be sent to workers'
        raise BindError(message, table.span, detail=str(error)) from error


def _what(table: Table) -> str:
    kind = "class" if "class" in table.options else "function"
    return f'{kind} "{table.options[kind]}"'


def _named(table: Table, option: str) -> object:
    module, _, name = table.options[option].rpartition(".")
    where = "Put it into a file under udfs/, or install it."
    projects = [key.partition(".")[0] for key in sys.modules if _PROJECT.fullmatch(key)]
    candidates = [f"{package}.{module}" for package in reversed(projects)]
    loaded = next((sys.modules[c] for c in candidates if c in sys.modules), None)
    try:
        loaded = loaded or importlib.import_module(module)
    except Exception as error:
        needed = error.name if isinstance(error, ModuleNotFoundError) and error.name else module
        if module != needed and not module.startswith(f"{needed}."):
            # The module exists, and imports one that does not.
            where = f"Install it: pip install {needed.partition('.')[0]} (its package may have another name)."
        is_missing = isinstance(error, ImportError | ValueError) and not where.startswith("Install")
        reason = "does not exist" if is_missing else f"cannot be imported: {error}"
        raise BindError(f'table "{table.name}": module "{module}" {reason}', table.span, hint=where) from error
    if not hasattr(loaded, name):
        usable = isinstance if option == "class" else lambda v, _: callable(v)
        hint = missing(option, name, [k for k, v in vars(loaded).items() if usable(v, type)])
        raise BindError(f'table "{table.name}": module "{module}" has no {option} "{name}"', table.span, hint=hint)
    return getattr(loaded, name)


def kind(table: Table) -> type[Source] | type[AnySink]:
    """Return the user's class that the option `class` of a table names."""
    assert table.implementation is not None
    user_class: type[Source] | type[AnySink] = carry.unpack_class(table.options["class"], table.implementation)
    return user_class


def source(table: Table) -> Source:
    """Return the instance of a table's Source for the driver; a process creates it once."""
    instance: Source = _instance(table, "class")
    return instance


def reading_source(table: Table) -> Source:
    """Return the instance of a table's Source that reads in this thread, which creates it once; no other thread calls it."""
    instance: Source = _instance(table, "class", thread=threading.get_ident())
    return instance


def sink(table: Table, identity: str) -> Any:
    """Return the instance of a table's sink for a job, whose name in the table is `identity`; a process creates it once."""
    return _instance(table, "class", identity)


def function(table: Table) -> Any:
    """Return the function of a lookup table; if it is a class, an instance, created with the table's other options."""
    assert table.implementation is not None
    implementation = carry.unpack_class(table.options["function"], table.implementation)
    return _instance(table, "function") if isinstance(implementation, type) else implementation


def errors(table: Table) -> AbstractContextManager[None]:
    """Return a context in which errors of a table's class or function become UserCodeErrors that name it and the line.

    An error about an outage becomes an OutageError; a SqlStreamError is raised unchanged.
    """
    option = "class" if "class" in table.options else "function"
    return _errors(table.name, table.options[option], option)


def finished(answers: Sequence[Any]) -> list[Any]:
    """Return the results of calls, in order. Results that are coroutines are awaited, at most AT_A_TIME of them at a time."""
    if not any(map(inspect.iscoroutine, answers)):
        return list(answers)

    async def wait() -> list[Any]:
        free = asyncio.Semaphore(AT_A_TIME)

        async def one(answer: Any) -> Any:
            if not isinstance(answer, Coroutine):
                return answer
            async with free:
                return await answer

        return await asyncio.gather(*map(one, answers))

    # This thread may already run an event loop, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, wait()).result()


def _instance(table: Table, option: str, identity: str = "", thread: int | None = None) -> Any:
    assert table.implementation is not None
    declared = (tuple((c.name, c.type) for c in table.physical if c != PARTITION), table.primary_key)
    options = tuple(sorted(table.options.items()))
    return _create(table.name, option, table.implementation, options, declared, identity, thread)


@lru_cache(maxsize=_MAX_INSTANCES)
def _create(
    name: str,
    option: str,
    pickled: bytes,
    options: tuple[tuple[str, str], ...],
    declared: tuple[tuple[tuple[str, str], ...], tuple[str, ...]],
    identity: str,
    thread: int | None,
) -> Any:
    """Return an instance of a user's class; `thread` is the thread that it is for, None for all of them."""
    path = dict(options)[option]
    arguments: dict[str, Any] = {re.sub(r"[-.]", "_", key): value for key, value in options if key not in _OURS}
    with _errors(name, path, option):
        implementation = carry.unpack_class(path, pickled)
        if "table" not in arguments and "table" in inspect.signature(implementation).parameters:
            arguments["table"] = OwnTable(name, dict(declared[0]), declared[1])
        instance = implementation(**arguments)
        if identity:
            instance.identity = identity
        return instance


@contextmanager
def _errors(table: str, path: str, what: str) -> Iterator[None]:
    try:
        yield
    except SqlStreamError:
        raise
    except Exception as error:
        at = raised_at(error.__traceback__, "")
        reason = f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__
        message = f'{what} "{path}" of table "{table}" raised {reason}'
        kind = OutageError if is_outage(error) else UserCodeError
        raise kind(message, detail=f" --> {at}" if at else None) from harmless(error)
