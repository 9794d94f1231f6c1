"""How state grows without a bound, and what would bound it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlstream.catalog import Table
from sqlstream.logical.plan.node import Node

GROUP_IN_WINDOWS = (
    "Group by window_start and window_end of TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR), which are forgotten."
)
COUNTED_ANYWAY = "sqlstream.operators counts late rows without it."
# Tells whether reading a table comes to an end by itself.
Ends = Callable[[Table], bool]


@dataclass(frozen=True, slots=True)
class Growth:
    """What has the state, how that grows, and the edit that bounds it."""

    subject: str
    growth: str
    hint: str


def all_end(node: Node, ends: Ends) -> bool:
    """Tell whether reading all tables below a node comes to an end."""
    return all(ends(table) for table in node.tables)


def ttl_hint(*names: str) -> str:
    """Return the SQL that gives names of FROM a time to live."""
    ttls = ", ".join(f"'{name}' = '1 d'" for name in names)
    return f"SELECT /*+ STATE_TTL({ttls}) */ .."


def forget_keys(node: Node) -> str:
    """Return the edit that lets a node forget keys, as the end of a sentence."""
    return f"keys be forgotten: {ttl_hint(table_name(node))}, or SET 'table.exec.state.ttl' = '1 d'."


def table_name(node: Node) -> str:
    """Return the name of a table that a node reads, as a hint would name it."""
    return next(iter(node.table_aliases), "t")
