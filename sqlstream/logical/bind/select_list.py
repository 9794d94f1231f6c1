"""The select list of a query block: output names, and the columns that stars stand for."""

from __future__ import annotations

from sqlglot import exp

from sqlstream.errors import BindError, UnsupportedError, missing
from sqlstream.logical.bind.expressions.expressions import name_of
from sqlstream.logical.bind.scope import Scope
from sqlstream.sql.spans import span_of


def expanded(select: exp.Select, scope: Scope) -> list[tuple[str, exp.Expr]]:
    """Return the select list as pairs of output name and expression, with stars replaced by columns.

    Raises BindError for a table or a column that does not exist, UnsupportedError for * RENAME and * ILIKE.
    """
    items: list[tuple[str, exp.Expr]] = []
    for projection in select.expressions:
        star = projection.this if isinstance(projection, exp.Column) else projection
        if isinstance(star, exp.Star):
            items += _star(projection, star, scope)
        elif isinstance(projection, exp.Alias):
            items.append((projection.alias, projection.this))
        else:
            items.append((name_of(projection), projection))
    return items


def _star(projection: exp.Expr, star: exp.Star, scope: Scope) -> list[tuple[str, exp.Expr]]:
    span = span_of(projection, scope.source)
    relation = scope.relation(projection.table) if isinstance(projection, exp.Column) else None
    if isinstance(projection, exp.Column) and relation is None:
        raise BindError(f'table "{projection.table}" is not in FROM', span)
    existing = [*relation.columns.items()] if relation is not None else scope.columns
    described = relation.described if relation is not None else scope.described
    for clause in ("rename", "ilike"):
        if star.args.get(clause):
            raise UnsupportedError(f"* {clause.upper()}", span, hint="Name the columns.")
    excluded = {e.name.lower(): e for e in star.args.get("except_") or ()}
    replaced = {e.alias.lower(): e.this for e in star.args.get("replace") or ()}
    for name in (*excluded, *replaced):
        if not any(own.lower() == name for own, _ in existing):
            hint = missing("column", name, [own for own, _ in existing])
            raise BindError(f'column "{name}" does not exist in {described}', span, hint=hint)
    columns = [(name, own) for name, own in existing if name.lower() not in excluded]
    return [(name, replaced.get(name.lower(), scope.reference(name, own, projection))) for name, own in columns]
