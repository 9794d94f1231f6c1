"""Random values that a repeated batch gives again: they are computed of its time and of the position of the row.

Computed columns of tables and the rows of VALUES have them, so that queries that keep state can read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from sqlglot import exp

from sqlstream.catalog import Column, Table
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import quote_text
from sqlstream.duck.time_variables import NOW
from sqlstream.errors import SourceText, UnsupportedError
from sqlstream.logical.plan.arrival import without_arrival
from sqlstream.logical.plan.graph import N, rebuilt
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.tables import Scan
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.statements import parse_expression

# DuckDB's functions whose result is random.
RANDOM = frozenset({"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7"})
# The numbers that a DOUBLE tells apart between 0 and 1.
_STEPS = 1 << 53


def repeatable(bound: exp.Expr, salt: str, position: str) -> exp.Expr:
    """Return a bound expression whose random calls are computed of a batch's time, `salt`, and the SQL of a row's `position`.

    Two calls of one expression are independent of each other.
    """
    result = bound.copy()
    calls = [node for node in result.walk() if isinstance(node, exp.Anonymous) and _is_random(node)]
    for number, call in enumerate(calls):
        seed = quote_text(f"{salt}/{number}/")
        random_tree = parse_expression(
            SourceText("random", _random(call.name.lower(), f"{seed} || epoch_us({NOW}) || '/' || {position}"))
        )
        for node in random_tree.walk():
            node.meta.update(call.meta)
        if call is result:
            return random_tree
        call.replace(random_tree)
    return result


def without_random(bound: exp.Expr) -> exp.Expr:
    """Return a bound expression with NULL in place of random calls."""
    return bound.transform(lambda node: exp.Null() if _is_random(node) else node)


def _is_random(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in RANDOM


def _random(function: str, seed: str) -> str:
    """Return the SQL of a random value of a function, a UUID or a DOUBLE from 0 to below 1."""
    if function == "random":
        return f"(CAST(md5_number_lower({seed}) % {_STEPS} AS DOUBLE) / {_STEPS})"
    digits = f"md5({seed})"
    # A UUID of version 4, whose variant is that of RFC 9562.
    parts = (f"substr({digits}, 1, 12)", "'4'", f"substr({digits}, 13, 3)", "'a'", f"substr({digits}, 16, 15)")
    return f"CAST({' || '.join(parts)} AS UUID)"


def with_random_columns(plans: Sequence[N]) -> list[N]:
    """Return the plans of a job in which random computed columns have the same value for a row wherever and whenever it is read.

    Raises UnsupportedError for such a column of a table of changes, whose old rows would have other values.
    """
    return [cast(N, rebuilt(plan, _with_random_columns)) for plan in plans]


def _with_random_columns(node: Node) -> Node:
    if not isinstance(node, Scan) or not any(c.random for c in node.table.columns):
        return node
    if node.table.has_changes:
        name = next(c.name for c in node.table.columns if c.random)
        hint = "A row that is taken back must have the values that it came with. Compute one of its key: MD5(CAST(id AS STRING))."
        raise UnsupportedError(f'the random column "{name}" of a table of changes', node.span, hint=hint)
    columns = tuple(_repeatable(c, node.table) for c in node.table.columns)
    return without_arrival(replace(node, table=replace(node.table, columns=(*columns, ARRIVED))))


def _repeatable(column: Column, table: Table) -> Column:
    if not column.random:
        return column
    bound = parse_expression(SourceText("column", column.expression or ""))
    again = repeatable(bound, f"{table.name}.{column.name}", ARRIVED.name)
    return replace(column, expression=to_duckdb(again), random=False, reads_clock=True)
