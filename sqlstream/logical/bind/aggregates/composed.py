"""Flink's aggregates that are composed of DuckDB's: COLLECT, JSON_ARRAYAGG, JSON_OBJECTAGG and PERCENTILE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

from sqlstream.errors import BindError, SourceText
from sqlstream.logical.bind.expressions.forms import filled
from sqlstream.sql.spans import span_of

# A form in which `_0`, `_1`, .. stand for parsed expressions, aggregate calls among them.
Composed: TypeAlias = tuple[str, tuple[exp.Expr, ...]]

_NOT_NULL = "_0 IS NOT NULL"
_KEY = "CAST(__sqlstream_e.k AS VARCHAR)"
_KEYS = f"list_transform(_0, lambda __sqlstream_e: {_KEY})"
_MEMBER = f"CAST(to_json({_KEY}) AS VARCHAR) || ':' || coalesce(CAST(to_json(__sqlstream_e.v) AS VARCHAR), 'null')"
_MEMBERS = f"array_to_string(list_transform(_0, lambda __sqlstream_e: {_MEMBER}), ',')"
_OBJECT = (
    f"CASE WHEN list_contains(list_transform({_KEYS}, lambda __sqlstream_e: __sqlstream_e IS NULL), true)"
    f" THEN error('a key of JSON_OBJECTAGG is NULL') WHEN len(list_distinct({_KEYS})) < len(_0)"
    f" THEN error('a key of JSON_OBJECTAGG comes twice') ELSE CAST('{{' || coalesce({_MEMBERS}, '') || '}}' AS JSON) END"
)
_REPEATED = (
    "list_aggregate(flatten(list_transform(_0, lambda __sqlstream_e: "
    "list_resize([__sqlstream_e.v], __sqlstream_e.f, __sqlstream_e.v))), 'quantile_cont', _1)"
)


def composed(node: exp.Expr, type_of: Callable[[exp.Expr], str | None], source: SourceText) -> Composed | None:
    """Return a parsed aggregate call, which may have FILTER around it, as a form over others; None for any other call.

    `type_of` returns the DuckDB type of a parsed argument. Raises BindError for a wrong number of arguments.
    """
    call = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in _COMPOSERS:
        return None
    least, most, compose = _COMPOSERS[call.name.lower()]
    arguments = [a for a in call.expressions if not isinstance(a, exp.Var)]
    if not least <= len(arguments) <= most:
        takes = str(least) if least == most else f"{least} or {most}"
        raise BindError(
            f"{call.name.upper()} takes {takes} argument{'' if takes == '1' else 's'}", span_of(call, source)
        )
    where = node.expression.this if isinstance(node, exp.Filter) else None
    keeps_nulls = any(isinstance(a, exp.Var) and a.name == "NULL" for a in call.expressions)
    return compose(AggregateParts(call, arguments, where, keeps_nulls, type_of))


class AggregateParts:
    """An aggregate call: its arguments and its filter, None without one."""

    def __init__(
        self,
        node: exp.Anonymous,
        arguments: list[exp.Expr],
        where: exp.Expr | None,
        keeps_nulls: bool,
        type_of: Callable[[exp.Expr], str | None],
    ):
        self.node, self.arguments, self.where, self.keeps_nulls = node, arguments, where, keeps_nulls
        self._type_of = type_of

    @property
    def value(self) -> exp.Expr:
        """The first argument without DISTINCT and ORDER BY around it."""
        value = self.arguments[0]
        while isinstance(value, exp.Distinct | exp.Order):
            value = value.expressions[0] if isinstance(value, exp.Distinct) else value.this
        return value

    @property
    def type(self) -> str | None:
        return self._type_of(self.value)

    def over(self, sql: str, condition: str | None = None) -> exp.Expr:
        """Return an aggregate call, `_0`, `_1`, .. of which stand for the arguments, over the rows that meet a condition."""
        call = filled(sql, self.node, lambda number: self.arguments[number])
        values = [self.value, *self.arguments[1:]]
        conditions = [self.where.copy()] if self.where is not None else []
        conditions += [filled(condition, self.node, lambda number: values[number])] if condition is not None else []
        if conditions:
            both = exp.and_(*conditions, copy=False) if len(conditions) > 1 else conditions[0]
            call = exp.Filter(this=call, expression=exp.Where(this=both))
        call.meta.update(self.node.meta)
        # Its result has no output name.
        call.meta["part"] = True
        return call


def _collect(call: AggregateParts) -> Composed:
    kind = call.type
    counted = f"CAST(coalesce(_0, MAP {{}}) AS MAP({kind}, INTEGER))" if kind is not None else "_0"
    return counted, (call.over("histogram(_0)"),)


def _array(call: AggregateParts) -> Composed:
    values = call.over("list(_0)", None if call.keeps_nulls else _NOT_NULL)
    return "coalesce(to_json(_0), CAST('[]' AS JSON))", (values,)


def _object(call: AggregateParts) -> Composed:
    members = call.over("list(struct_pack(k := _0, v := _1))", None if call.keeps_nulls else "_1 IS NOT NULL")
    return _OBJECT, (members,)


def _percentile(call: AggregateParts) -> Composed:
    share = call.arguments[1]
    if len(call.arguments) == 2:
        return "_0", (call.over("quantile_cont(CAST(_0 AS DOUBLE), _1)"),)
    pairs = "list(struct_pack(v := CAST(_0 AS DOUBLE), f := CAST(_2 AS BIGINT)))"
    return _REPEATED, (call.over(pairs, f"{_NOT_NULL} AND _2 > 0"), share)


# The least and the greatest number of arguments, and what composes the call, by name.
_COMPOSERS: dict[str, tuple[int, int, Callable[[AggregateParts], Composed]]] = {
    "collect": (1, 1, _collect),
    "json_arrayagg": (1, 1, _array),
    "json_objectagg": (2, 2, _object),
    "percentile": (2, 3, _percentile),
}
