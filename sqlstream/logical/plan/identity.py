"""What makes a plan another one: a digest over the values of its nodes.

No word that EXPLAIN says is in it, no name of a class of ours, and no SQL as sqlglot writes it: these may change from version to
version, and a job goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.settings import NodeValues, ScanSettings
from sqlstream.logical.plan.tables import ResultSink


def digest_of(value: object) -> str:
    """Return what tells plain data from any other."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def plan_digest(sinks: Iterable[Node], *, starts: bool = True) -> str:
    """Return what tells plans from others, but for which tables they write; without `starts` but for where sources begin."""
    return digest_of([_digest(sink, starts) for sink in sinks])


def _digest(root: Node, starts: bool) -> str:
    digests: dict[int, str] = {}
    for node in walk(root):
        below = tuple(digests[id(child)] for child in node.children)
        digests[id(node)] = digest_of(node_values(node, below, starts=starts))
    return digests[id(root)]


def node_values(node: Node, inputs: tuple[str, ...] = (), *, starts: bool = True) -> NodeValues:
    """Return the values of a node over inputs with some digests."""
    columns = tuple((f.name, f.type) for f in node.schema)
    values = replace(node.values, inputs=inputs, columns=columns)
    if isinstance(values.settings, ScanSettings) and not starts:
        values = replace(values, settings=replace(values.settings, starts=()))
    if isinstance(node, ResultSink):
        # What else there is to say of its rows is said of its input.
        return values
    changing = tuple(sorted(next(iter(node.unique_keys), ()))) if node.is_changelog else None
    return replace(values, time=node.time_attribute, changing=changing)
