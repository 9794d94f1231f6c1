"""Which stateful nodes keep more and more as long as their input goes on, and what would bound them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sqlstream.catalog import Table
from sqlstream.errors import UnboundedState
from sqlstream.logical.bind.over.over import keeps_rows
from sqlstream.logical.plan.join_nodes import Join, LookupJoin
from sqlstream.logical.plan.nodes import (
    Aggregate,
    Changing,
    CountWindows,
    Expand,
    Filter,
    InOrder,
    Lateral,
    Node,
    Normalize,
    Over,
    Projection,
    Rank,
    Remembering,
    Scan,
    SetOperation,
    Sort,
    Union,
    Windowed,
    walk,
)
from sqlstream.logical.plan.properties import called, changes, schema

_WINDOW = (
    "Group by window_start and window_end of TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR), which are forgotten."
)
_TTL = "let keys be forgotten: SELECT /*+ STATE_TTL('{table}' = '1 d') */ .., or SET 'table.exec.state.ttl' = '1 d'."
_ALLOW = "To run it all the same without this warning: SET 'sqlstream.unbounded-state' = 'allow'."
# Types with so few values that a row for each is no matter.
_FEW = ("BOOLEAN",)


def unbounded(plans: Iterable[Node], ends: Callable[[Table], bool]) -> Iterator[UnboundedState]:
    """Yield a warning for every stateful node of some plans whose state grows without a bound.

    `ends` tells whether reading a table comes to an end by itself.
    """
    found: list[Node] = []
    for node in (n for plan in plans for n in walk(plan)):
        # Two sinks may have the same below them.
        if node in found or all(ends(n.table) for n in walk(node) if isinstance(n, Scan)):
            continue
        found.append(node)
        if isinstance(node, Windowed) and node.late_rows is not None:
            message = "the state of LATE_ROWS grows without a bound: it keeps every row that comes too late"
            yield UnboundedState(message, node.span, hint=f"sqlstream.operators counts late rows without it. {_ALLOW}")
        if isinstance(node, CountWindows) and not node.ttl and _has_many(node):
            message = (
                f"the state of windows by rows grows without a bound: it keeps up to {node.size} rows for every key"
            )
            edit = _ttl(node)
            yield UnboundedState(message, node.span, hint=f"{edit[:1].upper()}{edit[1:]} {_ALLOW}")
        if isinstance(node, Join):
            yield from _of_join(node, ends)
        if isinstance(node, Changing | InOrder) and (reason := growth(node)) is not None:
            message = f"the state of {called(node)} grows without a bound: {reason}"
            yield UnboundedState(message, node.span, hint=f"{_WINDOW} Or {_ttl(node)} {_ALLOW}")


def _has_many(node: CountWindows) -> bool:
    """Tell whether the keys of windows by rows may have many values."""
    return any(f.type not in _FEW for f in schema(node.input) if f.name in node.keys)


def _ttl(node: Node) -> str:
    """Return the edit that lets a node forget keys, as a part of a sentence."""
    return _TTL.format(table=_alias(node))


def _of_join(node: Join, ends: Callable[[Table], bool]) -> Iterator[UnboundedState]:
    """Yield a warning where a join keeps all rows of inputs that go on for ever."""
    grow = [
        place
        for place, (below, ttl) in enumerate(zip(node.inputs, node.ttls, strict=True))
        if not ttl and grows_by(below) and not all(ends(n.table) for n in walk(below) if isinstance(n, Scan))
    ]
    if not grow:
        return
    names = [node.aliases[place] or _alias(node.inputs[place]) for place in grow]
    message = f"the state of {called(node)} grows without a bound: it keeps every row of {' and '.join(names)}"
    ttl = ", ".join(f"'{name}' = '1 d'" for name in names)
    hint = (
        "Bound how far times lie apart: AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts. Or let keys be forgotten: "
    )
    if node.unread is not None:
        hint = f"{node.unread} is not read as a bound for how far times lie apart, from both sides and constant. {hint}"
    yield UnboundedState(message, node.span, hint=f"{hint}SELECT /*+ STATE_TTL({ttl}) */ .. {_ALLOW}")


def grows_by(node: Node) -> bool:
    """Tell whether a node that keeps every row of its input keeps more and more of them: see `growth`."""
    return not all(changes(n) and not isinstance(n, Windowed) and not _forgets(n) for n in _inputs(node))


def _alias(node: Node) -> str:
    """Return the name of a table that a node reads, as a hint would name it."""
    return next((n.alias for n in walk(node) if isinstance(n, Scan)), "t")


def growth(node: Changing | InOrder) -> str | None:
    """Return what a node keeps more and more of, None where there is a bound.

    A result that changes has no more rows than the node that makes it keeps: what grows is said of that one. But what windows
    and times to live have forgotten is not taken back. A table of changes is a table whose rows go as they come.
    """
    if isinstance(node, Remembering) and node.ttl:
        return None
    if not grows_by(node.input):
        return None
    match node:
        case Normalize():
            return None
        case Aggregate():
            sets = {n.column for n in walk(node.input) if isinstance(n, Expand)}
            keyed = any(k.expression.type not in _FEW and k.expression.column not in sets for k in node.keys)
            if changes(node.input):
                return "it keeps every row of its input"
            if any(a.distinct or a.order_by for a in node.aggregates):
                return "it keeps every value that it has seen"
            return "it keeps a row for every key" if keyed else None
        case Rank():
            if node.limit is None or changes(node.input):
                return "it keeps every row of its input"
            keyed = any(k.type not in _FEW for k in node.keys)
            return f"it keeps {node.limit} row{'' if node.limit == 1 else 's'} for every key" if keyed else None
        case SetOperation():
            if all(f.type in _FEW for f in schema(node)):
                return None
            return "it keeps every row of both sides"
        case Over():
            return _kept_of_keys(node)
        case Sort():
            return None


def _kept_of_keys(node: Over) -> str | None:
    if any(keeps_rows(c) for c in node.calls):
        return "it keeps every row of its input"
    if all(k.type in _FEW for k in node.keys):
        return None
    if rows := rows_kept(node):
        return f"it keeps {rows} row{'' if rows == 1 else 's'} for every key"
    return "it keeps a row for every key" if any(c.frame.preceding is None for c in node.calls) else None


def rows_kept(node: Over) -> int:
    """Return how many of a key's last rows frames of ROWS, and calls that wait for later rows, need."""
    frames = [c.frame for c in node.calls if c.frame.mode == "rows"]
    return max(0, max((f.preceding or 0 for f in frames), default=0)) + node.following


def _forgets(node: Node) -> bool:
    return any((isinstance(n, Remembering) and n.ttl) or (isinstance(n, Join) and any(n.ttls)) for n in walk(node))


def _inputs(node: Node) -> Iterator[Node]:
    """Yield the inputs of a union, through filters and projections, else the node itself."""
    pending, seen = [node], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case Union():
                pending += reversed(node.inputs)
            case Filter() | Projection() | Expand() | Lateral() | LookupJoin():
                pending.append(node.input)
            case _:
                yield node
