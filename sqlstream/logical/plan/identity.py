"""The identity of a plan: a digest over the values of its nodes.

It includes no text of EXPLAIN, no name of a class, and no SQL as sqlglot prints it: these may change between versions, and a job
must still be recognised as the same.
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
    """Return the SHA-256 of plain data as JSON, in hexadecimal."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def plan_digest(sinks: Iterable[Node], *, starts: bool = True) -> str:
    """Return the digest of the plans of a job, without the names of the tables that they write.

    Without `starts` it also ignores the options that set where a job begins to read a source.
    """
    return digest_of([_digest(sink, starts) for sink in sinks])


def _digest(root: Node, starts: bool) -> str:
    digests: dict[int, str] = {}
    for node in walk(root):
        below = tuple(digests[id(child)] for child in node.children)
        digests[id(node)] = digest_of(node_values(node, below, starts=starts))
    return digests[id(root)]


def node_values(node: Node, inputs: tuple[str, ...] = (), *, starts: bool = True) -> NodeValues:
    """Return the values of a node, with its columns; `inputs` are the digests of its children."""
    columns = tuple((f.name, f.type) for f in node.schema)
    values = replace(node.values, inputs=inputs, columns=columns)
    if isinstance(values.settings, ScanSettings) and not starts:
        values = replace(values, settings=replace(values.settings, starts=()))
    if isinstance(node, ResultSink):
        # Time attribute and key are among the values of its input.
        return values
    changing = tuple(sorted(next(iter(node.unique_keys), ()))) if node.is_changelog else None
    return replace(values, time=node.time_attribute, changing=changing)
