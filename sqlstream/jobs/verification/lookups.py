"""Which columns of a result come from lookup tables."""

from __future__ import annotations

from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Projection, Union
from sqlstream.logical.plan.tables import ResultSink


def looked_up(sink: ResultSink) -> frozenset[str]:
    """Return the columns of a sink whose values come from lookup tables.

    A lookup that only decides whether a row exists does not show in any column.
    """
    own = _of(sink.input)
    pairs = zip(sink.input.schema, sink.columns, strict=True)
    return frozenset(target.name for below, target in pairs if below.name in own)


def _of(node: Node) -> frozenset[str]:
    below = frozenset[str]().union(*map(_of, node.children))
    match node:
        case LookupJoin():
            return below | {f.name for _, f in node.columns}
        case Projection():
            return frozenset(i.name for i in node.items if i.expression.reads.columns & below)
        case Aggregate() | WindowAggregate():
            keys = {k.name for k in node.keys if k.expression.reads.columns & below}
            calls = {a.name for a in node.aggregates if any(e.reads.columns & below for e in a.expressions)}
            return frozenset(keys | calls)
        case Union():
            indexes = {i for child in node.inputs for i, f in enumerate(child.schema) if f.name in _of(child)}
            return frozenset(f.name for i, f in enumerate(node.schema) if i in indexes)
        case _:
            return below
