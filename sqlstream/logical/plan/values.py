"""Helpers for the values that identify nodes: expressions in canonical form, and aggregate calls."""

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
    """Return the canonical form of an expression, None for None."""
    return form(expression) if expression is not None else None


def single_keys(keys: Iterable[Expression]) -> tuple[tuple[str, ...], ...]:
    """Return the canonical forms of keys, each as a tuple of one: a node with several inputs has several forms per key."""
    return tuple((form(key),) for key in keys)


def named_forms(items: Iterable[Item]) -> Pairs:
    """Return pairs of the name and the canonical form of items."""
    return tuple((i.name, form(i.expression)) for i in items)


def typed(columns: Iterable[Column]) -> Pairs:
    """Return pairs of the name and the type of columns."""
    return tuple((c.name, c.type) for c in columns)


class CallForms:
    """The canonical forms of the aggregate calls of one node.

    Only calls with equal SQL share state. So if different texts have the same form, all but the first get a number.
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def call(self, call: AggregateItem, *, retracts: bool = False) -> CallSettings:
        """Return the values that identify a call; with `retracts` its input is a changelog."""
        function = call.python
        return CallSettings(
            call.name,
            call.function,
            self._of(call.arguments),
            call.distinct,
            self._of(call.order_by),
            self._of([call.filter])[0] if call.filter is not None else None,
            # A call with an accumulator of another type is another call.
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
