"""The texts of warnings about state that grows without a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlstream.catalog import Table
from sqlstream.logical.plan.node import Node

GROUP_IN_WINDOWS = (
    "Group by window_start and window_end of TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR), which are forgotten."
)
COUNTED_ANYWAY = "sqlstream.operators counts late rows without it."
# Returns whether the input of a table ends, as for files that are read once.
Ends = Callable[[Table], bool]


@dataclass(frozen=True, slots=True)
class Growth:
    """The subject that has the state, how it grows, and a hint with the edit that bounds it."""

    subject: str
    growth: str
    hint: str


def all_end(node: Node, ends: Ends) -> bool:
    """Return whether the input of all tables below a node ends."""
    return all(ends(table) for table in node.tables)


def ttl_hint(*names: str) -> str:
    """Return the SQL of a hint that sets the time to live of names in FROM."""
    ttls = ", ".join(f"'{name}' = '1 d'" for name in names)
    return f"SELECT /*+ STATE_TTL({ttls}) */ .."


def forget_keys(node: Node) -> str:
    """Return the edit that makes a node forget keys, as the end of a sentence that begins with "let"."""
    return f"keys be forgotten: {ttl_hint(table_name(node))}, or SET 'table.exec.state.ttl' = '1 d'."


def table_name(node: Node) -> str:
    """Return the alias of the first table below a node, for a hint; "t" if there is none."""
    return next(iter(node.table_aliases), "t")
