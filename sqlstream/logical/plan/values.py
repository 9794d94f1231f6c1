"""How nodes say what makes them another one: expressions in their canonical form, calls of aggregates."""

from __future__ import annotations

from collections.abc import Iterable

from sqlstream.catalog import Column
from sqlstream.logical.plan.canonical import canonical
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item
from sqlstream.logical.plan.settings import CallSettings, Pairs


def form(expression: Expression) -> str:
    """Return the canonical form of an expression."""
    return canonical(expression.sql)


def forms(expressions: Iterable[Expression]) -> tuple[str, ...]:
    """Return the canonical forms of expressions."""
    return tuple(map(form, expressions))


def optional_form(expression: Expression | None) -> str | None:
    """Return the canonical form of an expression, if there is one."""
    return form(expression) if expression is not None else None


def single_keys(keys: Iterable[Expression]) -> tuple[tuple[str, ...], ...]:
    """Return keys of which each is one expression."""
    return tuple((form(key),) for key in keys)


def named_forms(items: Iterable[Item]) -> Pairs:
    """Return the names of items, each with the canonical form of its expression."""
    return tuple((i.name, form(i.expression)) for i in items)


def typed(columns: Iterable[Column]) -> Pairs:
    """Return the names of columns, each with its type."""
    return tuple((c.name, c.type) for c in columns)


class CallForms:
    """The canonical forms of what the calls of a node are of.

    Calls of equal SQL share state. So of texts that have one form, each but the first gets a number.
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def call(self, call: AggregateItem, *, retracts: bool = False) -> CallSettings:
        """Return what there is to say of a call; one that `retracts` takes rows back."""
        function = call.python
        return CallSettings(
            call.name,
            call.function,
            self._of(call.arguments),
            call.distinct,
            self._of(call.order_by),
            self._of([call.filter])[0] if call.filter is not None else None,
            # What is kept of another type makes it another call.
            function.accumulator if function is not None and function.merges else None,
            function.accumulator if retracts and function is not None and function.retracts else None,
        )

    def _of(self, expressions: Iterable[Expression]) -> tuple[str, ...]:
        return tuple(self._numbered(e.sql) for e in expressions)

    def _numbered(self, sql: str) -> str:
        shared = canonical(sql)
        texts = self._texts.setdefault(shared, [])
        if sql not in texts:
            texts.append(sql)
        number = texts.index(sql) + 1
        return shared if number == 1 else f"{shared} {number}"
