"""The names that can be completed, from the session: looked up every few seconds, not at every key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from sqlstream.catalog import Table
from sqlstream.connectors.options import CONNECTOR
from sqlstream.connectors.registry import UnavailableConnector, exists
from sqlstream.connectors.registry import named as connector_named
from sqlstream.connectors.registry import names as connector_names
from sqlstream.connectors.tables import all_options
from sqlstream.functions.declaration import builtin_names
from sqlstream.logical.bind.expressions.flink_functions import REWRITTEN, SAME
from sqlstream.options import OPTIONS
from sqlstream.session.relations import Known, known_relations
from sqlstream.session.session import Session

T = TypeVar("T")
# A new name may be missing for so many seconds.
_SECONDS = 2.0


class KnownNames:
    """The names of a session's relations, columns, functions, jobs and options, for completion."""

    def __init__(self, session: Session):
        self._session = session
        self._cache: dict[str, tuple[float, object]] = {}

    def _cached(self, what: str, look: Callable[[], T]) -> T:
        at, value = self._cache.get(what, (float("-inf"), None))
        if time.monotonic() - at > _SECONDS:
            value = look()
            self._cache[what] = (time.monotonic(), value)
        return value  # type: ignore[return-value]

    @property
    def relations(self) -> Sequence[Known]:
        """The relations that a query can name, with their columns."""
        return self._cached("relations", lambda: list(known_relations(self._session)))

    @property
    def jobs(self) -> Sequence[str]:
        """The names of the jobs of the warehouse."""
        return self._cached("jobs", lambda: list(self._session.warehouse.jobs()))

    @property
    def functions(self) -> Mapping[str, str]:
        """The functions by name in lower case, each with its kind, such as "a scalar function"."""
        own = {name.lower(): "a function of the project" for name in self._session.compiler.catalog.function_names}
        return {**_built_in_functions(), **own}

    @property
    def tables(self) -> Sequence[str]:
        """The names of the declared tables."""
        return [entry.name for entry in self._session.compiler.catalog if isinstance(entry, Table)]

    @property
    def options(self) -> Mapping[str, str]:
        """The options of SET, by name, with their meanings."""
        return {option.name: option.meaning for option in OPTIONS.values()}

    @property
    def connectors(self) -> Sequence[str]:
        """The names of all connectors."""
        return connector_names()

    def table_options(self, connector: str | None) -> Mapping[str, str]:
        """Return the options of WITH for a connector, with their meanings; only 'connector' for an unknown one."""
        if connector is None or not exists(connector):
            return {CONNECTOR.name: CONNECTOR.meaning}
        try:
            options = all_options(connector_named(connector))
        except UnavailableConnector:
            return {}
        return {option.name: option.meaning for option in options}


@cache
def _built_in_functions() -> Mapping[str, str]:
    flinks = dict.fromkeys((*SAME, *REWRITTEN), "a scalar function")
    named = {name: kind for name, kind in builtin_names().items() if kind != "a keyword" and name.isidentifier()}
    return {**flinks, **named}
