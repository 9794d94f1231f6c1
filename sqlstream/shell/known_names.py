"""The names that can be completed, as the session knows them: looked up now and then, not at every key."""

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
# So long a name that is new may be missing.
_SECONDS = 2.0


class KnownNames:
    """Relations, columns, functions, jobs and options of a session."""

    def __init__(self, session: Session):
        self._session = session
        self._found: dict[str, tuple[float, object]] = {}

    def _kept(self, what: str, look: Callable[[], T]) -> T:
        at, found = self._found.get(what, (float("-inf"), None))
        if time.monotonic() - at > _SECONDS:
            found = look()
            self._found[what] = (time.monotonic(), found)
        return found  # type: ignore[return-value]

    @property
    def relations(self) -> Sequence[Known]:
        return self._kept("relations", lambda: list(known_relations(self._session)))

    @property
    def jobs(self) -> Sequence[str]:
        return self._kept("jobs", lambda: list(self._session.warehouse.jobs()))

    @property
    def functions(self) -> Mapping[str, str]:
        """The functions, in lower case, with what each of them is."""
        own = {name.lower(): "a function of the project" for name in self._session.compiler.catalog.function_names}
        return {**_built_in_functions(), **own}

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables that are declared."""
        return [entry.name for entry in self._session.compiler.catalog if isinstance(entry, Table)]

    @property
    def options(self) -> Mapping[str, str]:
        """The options of SET, with what they are about."""
        return {option.name: option.meaning for option in OPTIONS.values()}

    @property
    def connectors(self) -> Sequence[str]:
        return connector_names()

    def table_options(self, connector: str | None) -> Mapping[str, str]:
        """Return the options of WITH that tables of a connector have."""
        if connector is None or not exists(connector):
            return {CONNECTOR.name: CONNECTOR.meaning}
        try:
            found = all_options(connector_named(connector))
        except UnavailableConnector:
            return {}
        return {option.name: option.meaning for option in found}


@cache
def _built_in_functions() -> Mapping[str, str]:
    flinks = dict.fromkeys((*SAME, *REWRITTEN), "a scalar function")
    named = {name: kind for name, kind in builtin_names().items() if kind != "a keyword" and name.isidentifier()}
    return {**flinks, **named}
