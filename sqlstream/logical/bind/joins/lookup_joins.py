"""Binding of lookup joins: picks the columns by which a lookup table is queried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlstream.catalog import Table
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.bind.joins.versions import AsOf
from sqlstream.logical.plan.expressions import Expression, Field
from sqlstream.logical.plan.joining import Kind
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Scan


def lookup_join(
    left: Node,
    right: Node,
    kind: Kind,
    pairs: Sequence[tuple[Expression, Expression]],
    constants: Sequence[tuple[Expression, Expression]],
    condition: Expression | None,
    described: str,
    as_of: AsOf,
    span: Span,
    on: Span | None,
) -> LookupJoin:
    """Return the join of the rows of `left` with the lookup table `right`.

    `pairs` are the operands of equalities between both inputs, `constants` of equalities between a constant and the table; the
    second operand is of the table. `condition` includes all equalities. The keys are the PRIMARY KEY if equalities cover it, else
    the columns of `pairs`, else of `constants`. `described` names the table in errors, `on` is the position of ON in the text.

    Raises UnsupportedError for a changelog, and for anything but a table; BindError if there is no key.
    """
    if left.is_changelog:
        hint = "Look up before rows are grouped, ranked or joined: a retraction could find another answer than its row did."
        raise UnsupportedError("a lookup join after a changelog", as_of.span, hint=hint)
    lookup_table = _lookup_table(right)
    if lookup_table is None:
        hint = "Name the table itself behind JOIN, and write conditions into ON or WHERE."
        raise UnsupportedError(f"AS OF PROCTIME() of {described}", as_of.span, hint=hint)
    table, columns = lookup_table
    keys = list(_keys(table, columns, [*pairs, *constants]))
    primary = [k for k in keys if k[1] in table.primary_key]
    if table.primary_key and len(primary) == len(table.primary_key):
        keys = primary
    elif pairs:
        keys = list(_keys(table, columns, pairs))
    if not keys:
        hint = f"Existing columns: {', '.join(c.name for c in table.physical)}."
        raise BindError(
            f"ON does not say which rows of {described} to look up",
            on or span,
            hint=f"Write a = b, where b is a column with a type that a converts to. {hint}",
        )
    return LookupJoin(left, table, kind, tuple(keys), columns, condition, span)


def _keys(
    table: Table, columns: tuple[tuple[str, Field], ...], pairs: Sequence[tuple[Expression, Expression]]
) -> Iterator[tuple[Expression, str]]:
    own = {f.name: name for name, f in columns}
    physical = {c.name: c for c in table.physical}
    seen = set[str]()
    for value, side in pairs:
        name = own.get(side.column or "")
        if name is None or name not in physical or name in seen:
            continue
        seen.add(name)
        kind = physical[name].type
        # A value that the column cannot hold has no match: NULL.
        yield value.cast(kind, how="TRY_CAST"), name


def _lookup_table(node: Node) -> tuple[Table, tuple[tuple[str, Field], ...]] | None:
    """Return the table that a relation reads, and pairs of the name of a column and its field in the relation; None otherwise."""
    match node:
        case Scan():
            return node.table, tuple((f.name, f) for f in node.schema)
        case StatefulNode() if node.is_table:
            return _lookup_table(node.children[0])
        case Projection():
            if (below := _lookup_table(node.input)) is None:
                return None
            names = {f.name: name for name, f in below[1]}
            if any(i.expression.column not in names for i in node.items):
                return None
            passed = ((names[i.expression.column or ""], i) for i in node.items)
            return below[0], tuple((name, Field(i.name, i.expression.type)) for name, i in passed)
        case _:
            return None
