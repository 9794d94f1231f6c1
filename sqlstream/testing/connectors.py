"""A check of what a connector declares, for the tests of connectors of other packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import UnionType

from sqlstream.connectors import interface
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.guarantees import Delivery, Replay, Rollback
from sqlstream.connectors.interface import Connector, Reach, TableSink, TableSource


def check_connector(connector: type[Connector]) -> None:
    """Raise AssertionError with all that a connector and its table classes leave out or contradict.

    Attributes that have a default in sqlstream must be declared, too: what tables reach, and what sinks do at a rollback.

    >>> from sqlstream.connectors.print.connector import PrintConnector
    >>> check_connector(PrintConnector)
    """
    faults = [
        *_faults_of_names(connector),
        *_faults_of_options(connector),
        *_faults_of_reach(connector),
        *(_faults_of_source(connector.source_type) if connector.source_type else ()),
        *(_faults_of_sink(connector.sink_type) if connector.sink_type else ()),
    ]
    if faults:
        raise AssertionError("\n".join([f"connector {connector.__name__}:", *(f"- {fault}" for fault in faults)]))


def _faults_of_names(connector: type[Connector]) -> Iterator[str]:
    for attribute in ("name", "summary"):
        if not getattr(connector, attribute, ""):
            yield f"{attribute} is missing"
    if not (connector.source_type or connector.sink_type or connector.lookup_type):
        yield "it has no source_type, sink_type or lookup_type"
    for role in ("source", "sink", "lookup"):
        is_overridden = getattr(connector, role) is not getattr(Connector, role)
        if is_overridden and getattr(connector, f"{role}_type") is None:
            yield f"{role}_type is missing, although {role}() is defined: it stands for all that {role}() returns"


def _faults_of_options(connector: type[Connector]) -> Iterator[str]:
    for name, count in Counter(option.name for option in connector.options).items():
        if count > 1:
            yield f'option "{name}" is declared {count} times'
    for option in connector.options:
        if not option.meaning:
            yield f'option "{option.name}" has no meaning, which the manual and errors show'
        if option.required and not option.example:
            yield f'option "{option.name}" is required and has no example, which the error shows when it is missing'
    for name in connector.formats:
        if name not in FORMATS:
            yield f'format "{name}" does not exist'


def _faults_of_reach(connector: type[Connector]) -> Iterator[str]:
    yield from _undeclared(connector, "reach", Reach)
    has_path = any(option.name == "path" for option in connector.options)
    if connector.reach in (Reach.FILE, Reach.STORE) and not has_path:
        yield f'reach is {connector.reach}, and there is no option "path"'


def _faults_of_source(source: type[TableSource]) -> Iterator[str]:
    for attribute, type_ in (("replay", Replay), ("replay_reason", str), ("rewinds", bool), ("slot", str | None)):
        yield from _undeclared(source, attribute, type_)
    if not hasattr(source, "split_type") and source.split is TableSource.split:
        yield f"{source.__name__}.split_type is missing"
    if getattr(source, "replay", None) is Replay.AT_MOST_ONCE and getattr(source, "rewinds", None) is True:
        yield f"{source.__name__}.rewinds is True, although its rows cannot be read again"


def _faults_of_sink(sink: type[TableSink]) -> Iterator[str]:
    for attribute, type_ in (("delivery", Delivery), ("delivery_reason", str), ("rollback", Rollback)):
        yield from _undeclared(sink, attribute, type_)


def _undeclared(kind: type, attribute: str, type_: type | UnionType) -> Iterator[str]:
    """Yield a fault if an attribute is declared neither by a class nor by its bases outside of the interface, or is wrong."""
    home = next((cls for cls in kind.__mro__ if attribute in vars(cls)), None)
    if home is None or home.__module__ == interface.__name__:
        yield f"{kind.__name__}.{attribute} is missing"
        return
    value = vars(home)[attribute]
    # A property computes the value from the options of a table.
    if not isinstance(value, (type_, property)):
        yield f"{kind.__name__}.{attribute} is {value!r}"
