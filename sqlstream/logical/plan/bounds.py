"""Warnings about nodes that keep more and more as long as their input goes on, with what would bound them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from sqlstream.catalog import Table
from sqlstream.errors import UnboundedState
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Stateful
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import SetOperation
from sqlstream.logical.plan.tables import Normalize, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow

_WINDOW = (
    "Group by window_start and window_end of TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR), which are forgotten."
)
_TTL = "SELECT /*+ STATE_TTL({}) */ .."
_ALLOW = "To run it all the same without this warning: SET 'sqlstream.unbounded-state' = 'allow'."
# Tells whether reading a table comes to an end by itself.
Ends = Callable[[Table], bool]


def unbounded(plans: Iterable[Node], ends: Ends) -> Iterator[UnboundedState]:
    """Yield a warning for every stateful node of some plans whose state grows without a bound."""
    seen: list[Node] = []
    for node in (n for plan in plans for n in walk(plan)):
        # Two sinks may have the same below them.
        if isinstance(node, Stateful) and node not in seen and not _all_end(node, ends):
            seen.append(node)
            if node.state_growth is not None:
                yield from _warnings(node, node.state_growth, ends)


def _all_end(node: Node, ends: Ends) -> bool:
    return all(ends(n.table) for n in walk(node) if isinstance(n, Scan))


def _warnings(node: Stateful, growth: str, ends: Ends) -> Iterator[UnboundedState]:
    match node:
        case SessionWindow() | WindowAggregate() | WindowRank():
            yield _warning(node, "LATE_ROWS", growth, "sqlstream.operators counts late rows without it.")
        case CountWindows():
            yield _warning(node, node.label, growth, f"Let {_ttl(node)}")
        case Join():
            yield from _of_join(node, ends)
        case Process() if not node.keeps_every_value:
            yield _warning(node, "LATE_ROWS", growth, "sqlstream.operators counts late rows without it.")
        case Process():
            ttl = _TTL.format(f"'{node.function.name}' = '1 d'")
            where = "when a broadcast row says so" if node.growth_of_lists else "in a method on_timer"
            hint = f'Let values expire: state(ttl="1 d"), or {ttl}. Or clear them {where}.'
            yield _warning(node, node.label, growth, hint)
        case Normalize() | Aggregate() | Rank() | SetOperation() | Over() | Sort() | IntervalJoin() | TemporalJoin():
            yield _warning(node, node.label, growth, f"{_WINDOW} Or let {_ttl(node)}")
        case _:
            assert_never(node)


def _warning(node: Stateful, subject: str, growth: str, hint: str) -> UnboundedState:
    message = f"the state of {subject} grows without a bound: {growth}"
    return UnboundedState(message, node.span, hint=f"{hint} {_ALLOW}")


def _ttl(node: Node) -> str:
    """Return the edit that lets a node forget keys, as the end of a sentence."""
    hint = _TTL.format(f"'{_alias(node)}' = '1 d'")
    return f"keys be forgotten: {hint}, or SET 'table.exec.state.ttl' = '1 d'."


def _of_join(node: Join, ends: Ends) -> Iterator[UnboundedState]:
    """Yield a warning where inputs that go on for ever are those of which a join keeps all rows."""
    endless = [place for place in node.growing if not _all_end(node.inputs[place], ends)]
    if not endless:
        return
    names = [node.aliases[place] or _alias(node.inputs[place]) for place in endless]
    ttl = ", ".join(f"'{name}' = '1 d'" for name in names)
    hint = (
        "Bound how far apart the times may be: AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts. "
        f"Or let keys be forgotten: {_TTL.format(ttl)}"
    )
    if node.unread is not None:
        hint = (
            f"{node.unread} is not read as a bound: that compares both times, from both sides, with constants. {hint}"
        )
    yield _warning(node, node.label, f"it keeps every row of {' and '.join(names)}", hint)


def _alias(node: Node) -> str:
    """Return the name of a table that a node reads, as a hint would name it."""
    return next((n.alias for n in walk(node) if isinstance(n, Scan)), "t")
