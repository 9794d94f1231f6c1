"""The names that statements of a session can use: its relations with their columns, functions, jobs, connectors and options."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from sqlstream.catalog import Table, View
from sqlstream.compiler.catalog_answers import Answer
from sqlstream.connectors.options import CONNECTOR
from sqlstream.connectors.registry import UnavailableConnector, exists
from sqlstream.connectors.registry import named as connector_named
from sqlstream.connectors.registry import names as connector_names
from sqlstream.connectors.tables import all_options
from sqlstream.errors import QueryError, Span, SqlStreamError, missing
from sqlstream.functions.declaration import builtin_names
from sqlstream.logical.bind.expressions.flink_functions import REWRITTEN, SAME
from sqlstream.options import OPTIONS
from sqlstream.queries.system import SYSTEM_TABLES, system_columns
from sqlstream.warehouse.jobs import TABLE, read_record

if TYPE_CHECKING:
    from sqlstream.session.session import Session

T = TypeVar("T")
# A new name may be missing in completions for this many seconds.
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class KnownRelation:
    """A relation: its full name, its kind such as "warehouse table", and its columns as (name, type), empty if not known."""

    name: str
    kind: str
    columns: tuple[tuple[str, str], ...] = ()


def known_relations(session: Session) -> Iterator[KnownRelation]:
    """Yield the relations of a session: declared tables and views, state, undeclared warehouse tables, system tables."""
    catalog = session.compiler.catalog
    declared = set[str]()
    for entry in sorted(catalog, key=lambda e: e.name.lower()):
        declared.add(entry.name.lower())
        if isinstance(entry, Table):
            columns = tuple((c.name, c.type or "") for c in entry.visible)
            yield KnownRelation(
                entry.name, f"table ({entry.connector})" if entry.connector else "warehouse table", columns
            )
        else:
            yield KnownRelation(entry.name, "view", _columns_of(session, entry))
    written: dict[str, KnownRelation] = {}
    warehouse = session.warehouse
    for name in warehouse.jobs():
        try:
            record = read_record(warehouse.fs, warehouse.job(name))
        except SqlStreamError:
            # A query that names its state gets the error.
            continue
        if record is None:
            continue
        for operator in record.operators:
            for view in operator.views:
                columns = tuple(operator.view_columns) if view == operator.name else ()
                yield KnownRelation(f"state.{record.job}.{view}", "state", columns)
        for sink in record.sinks:
            if sink.kind == TABLE and sink.table.lower() not in declared:
                written[sink.table.lower()] = KnownRelation(sink.table, "warehouse table", tuple(sink.columns))
    yield from written.values()
    for name in SYSTEM_TABLES:
        yield KnownRelation(f"sqlstream.{name}", "system table", tuple(system_columns(name).items()))


def _columns_of(session: Session, view: View) -> tuple[tuple[str, str], ...]:
    try:
        return tuple((f.name, f.type) for f in session.compiler.binder.view(view).schema)
    except SqlStreamError:
        # A query that names the view gets the error.
        return ()


def relations(session: Session) -> Answer:
    """Return a row for each relation: its name, its kind, and the names of its columns, cut to 80 characters."""
    rows = [(r.name, r.kind, ", ".join(name for name, _ in r.columns) or None) for r in known_relations(session)]
    return Answer(("name", "kind", "columns"), tuple((name, kind, _short(text)) for name, kind, text in rows))


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= 80 else f"{text[:77]}..."


def described(session: Session, name: Span) -> Answer:
    """Return the columns of a relation, as rows (column, type). Raises QueryError when there is no relation of this name."""
    candidates = list(known_relations(session))
    full_name = name.text.replace('"', "").lower()
    relation = next((r for r in candidates if r.name.lower() == full_name), None)
    if relation is None:
        hint = missing("relation", name.text, [r.name for r in candidates])
        raise QueryError(f'relation "{name.text}" does not exist', name, hint=hint)
    columns = relation.columns or tuple(_queried(session, relation.name))
    return Answer(("column", "type"), columns)


def _queried(session: Session, name: str) -> Iterator[tuple[str, str]]:
    """Yield (column, type) of a relation, by opening a query of it."""
    relation = session.query(f"FROM {name}")
    for column, type in zip(relation.columns, relation.types, strict=True):
        yield column, str(type)


class KnownNames:
    """The names of a session's relations, columns, functions, jobs and options, looked up for completion every few seconds."""

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
    def relations(self) -> Sequence[KnownRelation]:
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
