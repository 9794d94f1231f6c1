"""PARTITION BY in calls of process functions: keys are columns, or expressions, which a projection computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlstream.catalog import Catalog, ProcessFunction
from sqlstream.errors import BindError, SourceText
from sqlstream.logical.bind.expressions.expressions import ExpressionBinder, name_of
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.joins.joins import Relation
from sqlstream.logical.bind.process_checks import called
from sqlstream.logical.bind.scope import Scope
from sqlstream.logical.plan.expressions import Expression, Item, Schema
from sqlstream.logical.plan.relational import Projection
from sqlstream.sql.spans import span_of


@dataclass(frozen=True, slots=True)
class KeyedRelation:
    """A table of a call, with the columns that PARTITION BY computes, and its keys; `own` are the table's own columns."""

    relation: Relation
    keys: tuple[Expression, ...]
    own: Schema


class PartitionBinder:
    """Binds PARTITION BY in calls of one function."""

    def __init__(self, function: ProcessFunction, catalog: Catalog, checker: TypeChecker, source: SourceText):
        self.function, self.catalog, self.checker, self.source = function, catalog, checker, source

    def bind(self, relation: Relation, items: Sequence[exp.Expr]) -> KeyedRelation:
        """Return a table with its keys, the items of PARTITION BY.

        Raises BindError for an expression that is volatile or reads the clock, and for a name that the table has already.
        """
        schema = relation.node.schema
        scope = Scope(relation.alias, schema, self.source, relation.described)
        binder = ExpressionBinder(scope, self.catalog, self.checker)
        keys: list[Expression] = []
        computed: list[Item] = []
        for item in items:
            value = item.this if isinstance(item, exp.Alias) else item
            binder.refuse_aggregates(value, "in PARTITION BY")
            bound = binder.bind(value)
            self._check_lasting(bound)
            if bound.column is not None and not isinstance(item, exp.Alias):
                keys.append(Expression.of_column(bound.column, bound.type, bound.span))
                continue
            name = item.alias if isinstance(item, exp.Alias) else name_of(value)
            self._check_free(name, item, relation, [*(f.name for f in schema), *(one.name for one in computed)])
            computed.append(Item(name, bound))
            keys.append(Expression.of_column(name, bound.type, bound.span))
        if computed:
            columns = (Item(f.name, Expression.of_column(f.name, f.type)) for f in schema)
            relation = Relation(Projection(relation.node, (*columns, *computed)), relation.alias, relation.described)
        return KeyedRelation(relation, tuple(keys), schema)

    def _check_lasting(self, bound: Expression) -> None:
        if bound.volatile or bound.reads.clock:
            message = f"{called(self.function)}: PARTITION BY what differs whenever it is computed"
            raise BindError(message, bound.span, hint="Equal rows have equal keys: use the columns of the row alone.")

    def _check_free(self, name: str, item: exp.Expr, relation: Relation, names: Sequence[str]) -> None:
        if name.lower() in map(str.lower, names):
            message = f'PARTITION BY computes "{name}", but {relation.described} has a column of this name'
            hint = "Give what is computed another name: PARTITION BY upper(k) AS key."
            raise BindError(f"{called(self.function)}: {message}", span_of(item, self.source), hint=hint)
