"""Binding of ROW_NUMBER, RANK and DENSE_RANK, over the rows of a window or over all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from sqlstream.errors import Source, Span, UnsupportedError
from sqlstream.logical.judge import Judge
from sqlstream.logical.nodes import Expression, Field, Node, Rank, WindowRank, quote
from sqlstream.logical.properties import schema, window_columns
from sqlstream.logical.window_tables import tells_windows_apart
from sqlstream.sql.dialect import to_duckdb

FUNCTIONS = ("row_number", "rank", "dense_rank")
_HINT = "ROW_NUMBER, RANK and DENSE_RANK run, without a frame; aggregates run with GROUP BY."
Rewrite = Callable[[exp.Expr], exp.Expr]


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    keys: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    windowed: bool
    span: Span

    @property
    def sql(self) -> tuple[object, ...]:
        """What two calls must agree on to be one."""
        return self.function, self.windowed, *map(to_duckdb, self.keys), "", *map(to_duckdb, self.order)


class Ranks:
    """The ranking calls of one query block over the rows of `node`; equal ones are computed once."""

    def __init__(self, node: Node):
        self.node = node
        # The output name of the select item being bound, where that is a call.
        self.output: str | None = None
        self._calls: dict[str, _Call] = {}

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that the calls add."""
        return tuple(Field(column, "BIGINT") for column in self._calls)

    def column(self, call: exp.Window, rewrite: Rewrite, span: Span) -> str:
        """Return the name of the column that a call becomes. Raises UnsupportedError for any other call with OVER."""
        function = call.this.name.lower() if isinstance(call.this, exp.Anonymous) else ""
        order = call.args.get("order")
        if function not in FUNCTIONS or call.args.get("spec") is not None or call.args.get("alias") is not None:
            raise UnsupportedError("OVER", span, hint=_HINT)
        if order is None:
            raise UnsupportedError(
                f"{function.upper()} without ORDER BY", span, hint="Add ORDER BY to its OVER clause."
            )
        window = window_columns(self.node)
        partition = [rewrite(p) for p in call.args.get("partition_by") or ()]
        bounds = {quote(c) for c in (window.start, window.end, window.time) if c is not None} if window else set()
        named = {sql for p in partition if (sql := to_duckdb(p)) in bounds}
        windowed = window is not None and tells_windows_apart(self.node, window, named)
        keys = tuple(p for p in partition if not windowed or to_duckdb(p) not in bounds)
        found = _Call(function, keys, tuple(rewrite(o) for o in order.expressions), windowed, span)
        for column, known in self._calls.items():
            if known.sql == found.sql:
                return column
        taken = {f.name.lower() for f in schema(self.node)} | {c.lower() for c in self._calls}
        wanted, self.output = self.output, None
        column = wanted if wanted and wanted.lower() not in taken else f"_rank_{len(self._calls) + 1}"
        self._calls[column] = found
        return column

    def above(self, node: Node, judge: Judge, source: Source) -> Node:
        """Return the rows of a node, over whose columns the calls were rewritten, with their ranks."""
        fields = schema(node)
        for column, call in self._calls.items():
            window = window_columns(node) if call.windowed else None

            def typed(parts: tuple[exp.Expr, ...]) -> tuple[Expression, ...]:
                values = [p.this if isinstance(p, exp.Ordered) else p for p in parts]
                types = judge.types(fields, values, source)
                return tuple(Expression(to_duckdb(p), t) for p, t in zip(parts, types, strict=True))

            keys, order = typed(call.keys), typed(call.order)
            if window is None:
                node = Rank(node, "", column, call.function, keys, order, span=call.span)
            else:
                node = WindowRank(node, "", column, call.function, keys, window, order, None, span=call.span)
        return node
