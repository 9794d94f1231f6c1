"""Binding of scalar expressions: names resolved, the clock made the batch's, what cannot run refused."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp, parse_one

from sqlstream.catalog import Catalog
from sqlstream.errors import BindError, Span, UnsupportedError
from sqlstream.logical.judge import Judge
from sqlstream.logical.nodes import Expression
from sqlstream.logical.ranking import Ranks
from sqlstream.logical.scope import Scope, column_reference
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of

NOW = "CAST(getvariable('_now') AS TIMESTAMP WITH TIME ZONE)"
# What tells the time: DuckDB would take its own clock, a repeated batch must see the same one.
_CLOCKS = {
    **dict.fromkeys(("now", "proctime", "current_timestamp", "get_current_timestamp", "transaction_timestamp"), NOW),
    **dict.fromkeys(("current_date", "today"), f"CAST({NOW} AS DATE)"),
    **dict.fromkeys(("localtimestamp",), f"CAST({NOW} AS TIMESTAMP)"),
    **dict.fromkeys(("current_time", "get_current_time"), f"CAST({NOW} AS TIME WITH TIME ZONE)"),
    **dict.fromkeys(("localtime",), f"CAST(CAST({NOW} AS TIMESTAMP) AS TIME)"),
}
_CLOCK_NODES: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.Localtimestamp: "localtimestamp",
    exp.Localtime: "localtime",
}
_RANDOM = {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7"}
# They ask about a connection, or change it: a worker's connection is nobody's business.
_OF_A_CONNECTION = {
    *("current_database", "current_schema", "current_schemas", "current_setting", "getvariable", "in_search_path"),
    *("txid_current", "current_connection_id", "current_query", "current_query_id", "current_transaction_id"),
    *("currval", "nextval", "setseed", "setval", "sleep_ms", "stats", "vector_type", "write_log", "set_config"),
}
_MANY_VALUES = "Functions such as list_transform, list_filter and list_sum take the list as a whole."
# Functions that make several values of one, and Flink's that DuckDB does not have: what to write.
_INSTEAD = {
    **dict.fromkeys(("unnest", "unlist"), _MANY_VALUES),
    "columns": "Name the columns.",
    "current_watermark": "Query sqlstream.watermarks instead.",
    "date_format": "Write strftime(ts, '%Y-%m-%d').",
    "split_index": "Write split_part(text, separator, index + 1).",
    "to_timestamp_ltz": "Write make_timestamptz(micros), or to_timestamp(seconds).",
    "unix_timestamp": "Write epoch(ts).",
    "from_unixtime": "Write to_timestamp(seconds).",
    "timestampdiff": "Write date_diff('hour', a, b).",
    "timestampadd": "Write ts + INTERVAL '1' HOUR.",
    "json_query": "Write json_extract(text, '$.path').",
    "first_value": "Write first(x ORDER BY ts).",
    "last_value": "Write last(x ORDER BY ts).",
    "collect": "Write list(x); there is no type MULTISET.",
    "json_arrayagg": "Write json_group_array(x) FILTER (WHERE x IS NOT NULL).",
    "json_objectagg": "Write json_group_object(key, value).",
}


# They have a meaning in GROUP BY, and beside it.
_GROUP_WINDOWS = {
    f"{kind}{suffix}" for kind in ("tumble", "hop", "session") for suffix in ("", "_start", "_end", "_rowtime")
}
_IN_FROM = "Write FROM TUMBLE(TABLE t, DESCRIPTOR(ts), size), and GROUP BY window_start, window_end."
# What can stand only above grouped rows.
_OF_GROUPS = (exp.Window,)


class ExpressionBinder:
    """Binds the expressions of one query block."""

    def __init__(self, scope: Scope, catalog: Catalog, judge: Judge, ranks: Ranks | None = None):
        self.scope, self.catalog, self.judge = scope, catalog, judge
        # Takes ranking calls where the block can have them.
        self.ranks = ranks
        # The aliases whose expressions are being bound: they may not name themselves.
        self._aliases: list[str] = []

    def bind(self, node: exp.Expr) -> Expression:
        """Return an expression over the block's input, with its type."""
        return self.typed(self.rewrite(node), node)

    def typed(self, bound: exp.Expr, node: exp.Expr) -> Expression:
        kind = self.judge.type(self.scope.schema, bound, self.scope.source)
        return Expression(to_duckdb(bound), kind, self.span(node), self.is_volatile(bound))

    def is_volatile(self, bound: exp.Expr) -> bool:
        """Tell whether an expression may give another result when its batch is repeated."""
        for call in bound.find_all(exp.Anonymous):
            function = self.catalog.function(call.name)
            if call.name.lower() in _RANDOM or (function is not None and not function.deterministic):
                return True
        return False

    def span(self, node: exp.Expr) -> Span:
        return span_of(node, self.scope.source)

    def rewrite(self, node: exp.Expr) -> exp.Expr:
        """Return a bound copy of an expression."""
        return self._rewrite(node.copy())

    def _rewrite(self, node: exp.Expr) -> exp.Expr:
        replaced = self.replacement(node)
        if replaced is not None:
            return replaced
        match node:
            case exp.Column():
                bound = self.scope.resolve(node)
                return bound if bound is not None else self._alias(node)
            case exp.Dot() if isinstance(node.expression, exp.Identifier):
                field = exp.Literal.string(node.expression.name)
                inner = self._rewrite(node.this)
                return _like(node, exp.Anonymous(this="struct_extract", expressions=[inner, field]))
            case exp.Anonymous():
                self._check_call(node)
                if clock := _CLOCKS.get(node.name.lower()):
                    return _like(node, _parsed(clock))
            case exp.Query() | exp.Subquery() | exp.Exists():
                raise self.unsupported("a subquery in an expression", node, "Only FROM takes a subquery.")
            case exp.In() if node.args.get("query") is not None:
                raise self.unsupported("IN (SELECT ..)", node, "List the values, or filter with a column of the input.")
            case exp.Window() if self.ranks is not None:
                return _like(node, column_reference(self.ranks.column(node, self.rewrite, self.span(node))))
            case exp.Window():
                raise self.unsupported("OVER here", node, "Write it in a select list or in QUALIFY.")
            case exp.Star():
                raise self.error('"*" is not allowed here', node, "Name the columns.")
            case exp.Comprehension():
                hint = "Write list_transform(list, x -> ..), and list_filter."
                raise self.unsupported("a list comprehension", node, hint)
            case exp.SessionUser() | exp.CurrentUser() | exp.CurrentRole() | exp.CurrentCatalog():
                raise self.unsupported(to_duckdb(node).lower(), node, None)
            case exp.Placeholder() | exp.Parameter():
                raise self.unsupported("a parameter", node, "Write the value.")
            case _ if type(node) in _CLOCK_NODES:
                return _like(node, _parsed(_CLOCKS[_CLOCK_NODES[type(node)]]))
        for child in list(node.iter_expressions()):
            bound = self._rewrite(child)
            if bound is not child:
                child.replace(bound)
        return node

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        """Return what stands for a node as a whole; a plain block refuses aggregates here."""
        if self.is_aggregate(node):
            raise self.error("an aggregate is not allowed here", node)
        return None

    def refuse_aggregates(self, node: exp.Expr, where: str) -> None:
        """Raise when there is an aggregate call in an expression; `where` says which one that is."""
        # What is in a subquery is no aggregate of this block.
        found = node.walk(prune=lambda n: isinstance(n, exp.Query))
        if (call := next((n for n in found if self.is_aggregate(n)), None)) is not None:
            raise self.error(f"an aggregate is not allowed {where}", call)

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Tell whether a node is an aggregate call, with its FILTER or WITHIN GROUP."""
        if isinstance(node, exp.Filter | exp.WithinGroup):
            return True
        return isinstance(node, exp.Anonymous) and self._is_aggregate_name(node.name)

    def _is_aggregate_name(self, name: str) -> bool:
        return name.lower() in self.judge.aggregates and self.catalog.function(name) is None

    def _alias(self, node: exp.Column) -> exp.Expr:
        name = node.name.lower()
        if name in self._aliases:
            raise self.scope.missing(node)
        self._aliases.append(name)
        bound = self._rewrite(self.scope.select_aliases[name].copy())
        self._aliases.pop()
        return _like(node, exp.Paren(this=bound))

    def _check_call(self, node: exp.Anonymous) -> None:
        name = node.name.lower()
        if name in _OF_A_CONNECTION:
            raise self.unsupported(f"function {name}", node, None)
        if name in _GROUP_WINDOWS and self.catalog.function(name) is None:
            raise self.unsupported(f"{name.upper()} here", node, _IN_FROM)
        if name in _INSTEAD and self.catalog.function(name) is None:
            raise self.unsupported(f"function {name.upper()}", node, _INSTEAD[name])

    def unsupported(self, what: str, node: exp.Expr, hint: str | None) -> UnsupportedError:
        return UnsupportedError(what, self.span(node), hint=hint)

    def error(self, message: str, node: exp.Expr, hint: str | None = None) -> BindError:
        return BindError(message, self.span(node), hint=hint)


class GroupedBinder(ExpressionBinder):
    """Binds expressions above an aggregation: over its keys and the results of its aggregate calls."""

    def __init__(
        self,
        scope: Scope,
        catalog: Catalog,
        judge: Judge,
        keys: dict[str, str],
        aggregate: Callable[[exp.Expr], str],
        grouping: Callable[[exp.Anonymous], exp.Expr],
        ranks: Ranks,
    ):
        super().__init__(scope, catalog, judge, ranks)
        self.keys = keys
        self.aggregate = aggregate
        self.grouping = grouping
        self.below = ExpressionBinder(scope, catalog, judge)

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        """Stand the key or the aggregate's result in for an expression that is one."""
        if self.is_aggregate(node):
            return _like(node, column_reference(self.aggregate(node)))
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
            return _like(node, self.grouping(node))
        if isinstance(node, exp.Literal | exp.Identifier) or not isinstance(node, exp.Condition):
            return None
        if any(self.is_aggregate(n) or self._is_alias(n) or isinstance(n, _OF_GROUPS) for n in node.walk()):
            return None
        found = self.keys.get(to_duckdb(self.below.rewrite(node)))
        if found is not None:
            return _like(node, column_reference(found))
        if isinstance(node, exp.Column):
            self._check_function_around(node)
            raise self.error(
                f'column "{node.name}" must be in GROUP BY or inside an aggregate',
                node,
                hint=f"Add {node.name} to GROUP BY, or write any_value({node.name}).",
            )
        return None

    def _is_alias(self, node: exp.Expr) -> bool:
        return (
            isinstance(node, exp.Column)
            and not node.table
            and node.name.lower() in self.scope.select_aliases
            and self.scope.find(node.name) is None
        )

    def _check_function_around(self, node: exp.Column) -> None:
        """Raise when a column stands in a call of a function that does not exist: it may be meant for an aggregate."""
        call = node.find_ancestor(exp.Anonymous)
        if call is not None and self.catalog.function(call.name) is None and not self.judge.knows(call.name):
            raise self.judge.no_function(call.name, self.span(call))


def _like(old: exp.Expr, new: exp.Expr) -> exp.Expr:
    """Give a node the place in the text of the one that it stands for."""
    new.meta.update(old.meta)
    return new


def _parsed(sql: str) -> exp.Expr:
    return parse_one(sql, dialect="duckdb")
