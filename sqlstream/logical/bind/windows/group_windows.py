"""Flink's group windows: `GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)`, with TUMBLE_START, TUMBLE_END and TUMBLE_ROWTIME."""

from __future__ import annotations

from itertools import count

from sqlglot import exp

from sqlstream.errors import BindError, UnsupportedError
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.scope import Scope, column_reference
from sqlstream.logical.bind.windows.window_tables import WindowBinder
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.windows import BOUNDS
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of

# The number of intervals that each kind takes.
KINDS = {"tumble": 1, "hop": 2, "session": 1}
_USAGE = {"tumble": "TUMBLE(ts, size)", "hop": "HOP(ts, slide, size)", "session": "SESSION(ts, gap)"}
_BOUNDS = {"_start": "window_start", "_end": "window_end", "_rowtime": "window_time", "_proctime": "window_time"}
NAMES = {*KINDS, *(f"{kind}{suffix}" for kind in KINDS for suffix in _BOUNDS)}


def find_group_window(select: exp.Select) -> exp.Anonymous | None:
    """Return the call of a group window in a block's GROUP BY, None if there is none."""
    group = select.args.get("group")
    for node in group.expressions if group is not None else ():
        if isinstance(node, exp.Anonymous) and node.name.lower() in KINDS:
            return node
    return None


class GroupWindows:
    """Rewrites a block that groups by a window into a block that groups rows by the bounds of a window function."""

    def __init__(self, checker: TypeChecker, scope: Scope, node: Node):
        self.checker, self.scope, self.node = checker, scope, node
        # The new names of columns of the input that have the names of window columns.
        self._renamed: dict[str, str] = {}

    def rewrite(self, select: exp.Select) -> tuple[Node, exp.Select]:
        """Return the node with rows in windows, and a copy of the block with window columns in place of its calls.

        Raises BindError for wrong arguments, and for a call such as TUMBLE_END that does not match the window;
        UnsupportedError for a session whose other keys are not columns.
        """
        window = find_group_window(select)
        assert window is not None
        kind, arguments = window.name.lower(), window.expressions
        span = span_of(window, self.scope.source)
        if len(arguments) - 1 not in (KINDS[kind], KINDS[kind] + (kind != "session")):
            message = f"{kind.upper()} takes a time attribute and {'2 intervals' if kind == 'hop' else 'an interval'}"
            raise BindError(message, span, hint=f"Write {_USAGE[kind]}.")
        time, *intervals = arguments
        if not isinstance(time, exp.Column):
            raise BindError(f"{kind.upper()} needs a time attribute", span_of(time, self.scope.source))
        self._rename_bounds()
        windows = WindowBinder(self.checker, self.scope.source, self.scope.described)
        node = windows.windows(
            self.node,
            kind=kind.upper(),
            time=self._column(time),
            at=span_of(time, self.scope.source),
            intervals=intervals[: KINDS[kind]],
            offset=next(iter(intervals[KINDS[kind] :]), None),
            keys=self._keys(select, window) if kind == "session" else [],
            span=span,
        )
        return node, self._replaced(select, window)

    def _rename_bounds(self) -> None:
        """Give columns of the input that have the names of window columns, such as those of a view with windows, other names."""
        names = {f.name for f in self.node.schema}
        if self.scope.joined:
            return
        for name in sorted(names):
            if name.lower() in BOUNDS:
                self._renamed[name] = next(n for i in count(1) if (n := f"_{name}_{i}") not in names)
        if self._renamed:
            columns = (Expression.of_column(f.name, f.type) for f in self.node.schema)
            items = (Item(self._renamed.get(c.column or "", c.column or ""), c) for c in columns)
            self.node = Projection(self.node, tuple(items))

    def _own(self, node: exp.Expr) -> exp.Expr:
        """Return a column of the input by its new name; any other expression as it is."""
        if not isinstance(node, exp.Column) or (node.table and node.table.lower() != self.scope.alias.lower()):
            return node
        new = next((new for old, new in self._renamed.items() if old.lower() == node.name.lower()), None)
        if new is None:
            return node
        column = column_reference(new)
        column.meta.update(node.meta)
        return column

    def _column(self, column: exp.Column) -> str:
        bound = self.scope.resolve(column)
        if not isinstance(bound, exp.Column):
            raise BindError("a window needs a column of its input", span_of(column, self.scope.source))
        return self._renamed.get(bound.name, str(bound.name))

    def _keys(self, select: exp.Select, window: exp.Anonymous) -> list[str]:
        """Return the other keys of GROUP BY, by which sessions are partitioned."""
        keys = []
        for node in select.args["group"].expressions:
            if node is window:
                continue
            if not isinstance(node, exp.Column):
                raise UnsupportedError(
                    "a session by an expression",
                    span_of(node, self.scope.source),
                    hint="Compute it in a subquery, and group by its name.",
                )
            keys.append(self._column(node))
        return keys

    def _replaced(self, select: exp.Select, window: exp.Anonymous) -> exp.Select:
        arguments = [to_duckdb(e) for e in window.expressions]
        kind = window.name.lower()

        def bound(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Anonymous) or node.name.lower() not in NAMES:
                return self._own(node)
            suffix = node.name.lower().removeprefix(kind)
            if suffix not in _BOUNDS or [to_duckdb(e) for e in node.expressions] != arguments:
                message = f"{node.name.upper()} does not match the window in GROUP BY"
                raise BindError(message, span_of(node, self.scope.source), hint=f"GROUP BY has {to_duckdb(window)}.")
            column: exp.Expr = column_reference(_BOUNDS[suffix])
            if suffix == "_proctime" and self.checker.meaning.is_flinks:
                # The time at which the window's rows leave.
                self.checker.meaning.differs = True
                column = exp.Anonymous(this="proctime")
            column.meta.update(node.meta)
            return column

        copy = select.copy()
        self._keep_names(copy)
        group = copy.args["group"]
        index = next(i for i, e in enumerate(group.expressions) if e == window)
        columns = [column_reference("window_start"), column_reference("window_end"), column_reference("window_time")]
        for column in columns:
            column.meta.update(window.meta)
        others = [node for number, node in enumerate(group.expressions) if number != index]
        group.set("expressions", others)
        for key in ("expressions", "group", "having", "qualify"):
            parts = copy.args.get(key)
            # FROM is left out: its blocks have their own group windows.
            if isinstance(parts, list):
                copy.set(key, [part.transform(bound, copy=False) for part in parts])
            elif parts is not None:
                copy.set(key, parts.transform(bound, copy=False))
        # Those of this window, which the transformation must not take for columns of the input.
        group.set("expressions", [*group.expressions[:index], *columns, *group.expressions[index:]])
        return copy

    def _keep_names(self, select: exp.Select) -> None:
        """Name items of the select list that are nothing but a renamed column by its old name."""
        for item in select.expressions:
            if self._own(item) is not item:
                item.replace(exp.Alias(this=item.copy(), alias=exp.to_identifier(item.name, quoted=True)))
