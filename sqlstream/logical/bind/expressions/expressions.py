"""Binding of scalar expressions: resolves names, replaces the clock by the batch's, and refuses what cannot run."""

from __future__ import annotations

from contextlib import nullcontext

from sqlglot import exp

from sqlstream.catalog import Catalog
from sqlstream.duck.clock_calls import CLOCK_NODES
from sqlstream.duck.time_variables import CLOCKS
from sqlstream.duck.types import has_elements, kind_of
from sqlstream.errors import BindError, Span, SqlStreamError, UnsupportedError
from sqlstream.logical.bind.expressions import flink_functions, flink_values
from sqlstream.logical.bind.expressions.aggregate_names import OTHER_AGGREGATES
from sqlstream.logical.bind.expressions.arguments import order_arguments
from sqlstream.logical.bind.expressions.decimals import average_type, decimal_of, quotient
from sqlstream.logical.bind.expressions.flink_call import FlinkCall, WrongArgument
from sqlstream.logical.bind.expressions.flink_functions import FLINKS_TYPES, INSTEAD, REWRITTEN
from sqlstream.logical.bind.expressions.forms import filled, like
from sqlstream.logical.bind.expressions.implicit_casts import (
    ImplicitCast,
    UnfitValues,
    implicit_casts,
    is_lazy,
    numbers_beside_texts,
)
from sqlstream.logical.bind.expressions.type_checker import NULL_TYPE, TypeChecker
from sqlstream.logical.bind.over.ranking import Ranks
from sqlstream.logical.bind.scope import Scope, column_reference
from sqlstream.logical.plan.expressions import UNNESTS, Expression, Schema, makes_rows
from sqlstream.logical.plan.random_values import RANDOM
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import span_of

# What to write instead of OVER where it cannot stand.
OVER_ELSEWHERE = "Write it in a select list or in QUALIFY."
_UNNEST = "Write it into the select list of a subquery in FROM, and use its column here."
# Functions that read or change a connection; users must not depend on the connections of workers.
_OF_A_CONNECTION = {
    *("current_database", "current_schema", "current_schemas", "current_setting", "getvariable", "in_search_path"),
    *("txid_current", "current_connection_id", "current_query", "current_query_id", "current_transaction_id"),
    *("currval", "nextval", "setseed", "setval", "sleep_ms", "stats", "vector_type", "write_log", "set_config"),
}


# Flink's group windows, which only GROUP BY and the clauses above it can name.
_GROUP_WINDOWS = {
    f"{kind}{suffix}" for kind in ("tumble", "hop", "session") for suffix in ("", "_start", "_end", "_rowtime")
}
_IN_FROM = "Write FROM TUMBLE(TABLE t, DESCRIPTOR(ts), size), and GROUP BY window_start, window_end."


class ExpressionBinder:
    """Binds the expressions of one query block.

    A bound expression is a sqlglot tree of DuckDB SQL over the columns of the scope's schema. Methods raise BindError for an
    expression that is wrong, UnsupportedError for one that cannot run.
    """

    def __init__(self, scope: Scope, catalog: Catalog, checker: TypeChecker, ranks: Ranks | None = None):
        self.scope, self.catalog, self.checker = scope, catalog, checker
        # Collects calls with OVER; None: the block cannot have any here.
        self.ranks = ranks
        # The aliases whose expressions are being bound, which they may not name.
        self._aliases: list[str] = []
        # Whether the expression being bound may contain UNNEST.
        self.unnests = False
        # What is known of texts in rows that are read as numbers.
        self.unfit = UnfitValues()

    def bind(self, node: exp.Expr) -> Expression:
        """Return the bound expression of a parsed one, with its type."""
        return self.typed(self.rewrite(node), node)

    def typed(self, bound: exp.Expr, node: exp.Expr) -> Expression:
        """Return a bound tree as an expression with its type; the parsed `node` has the position in the text."""
        kind = self.checker.type(self.scope.rows, bound, self.scope.source)
        return Expression.of(bound, kind, self.span(node), self.is_volatile(bound))

    def is_volatile(self, bound: exp.Expr) -> bool:
        """Return whether a bound expression may have another value when its batch runs again, as random() has."""
        for call in bound.find_all(exp.Anonymous):
            function = self.catalog.function(call.name)
            if call.name.lower() in RANDOM or (function is not None and not function.deterministic):
                return True
        return False

    def span(self, node: exp.Expr) -> Span:
        """Return the position of a parsed node in the text."""
        return span_of(node, self.scope.source)

    def rewrite(self, node: exp.Expr) -> exp.Expr:
        """Return a bound copy of an expression."""
        return self._rewrite(node.copy())

    def rewrite_item(self, node: exp.Expr) -> exp.Expr:
        """Return a bound copy of an item of the select list, which may contain UNNEST."""
        self.unnests = True
        try:
            return self.rewrite(node)
        finally:
            self.unnests = False

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
                return like(node, exp.Anonymous(this="struct_extract", expressions=[inner, field]))
            case exp.Anonymous():
                self._check_call(node)
                if (function := self.catalog.function(node.name)) is not None:
                    order_arguments(node, function, self.scope.source)
                if clock := CLOCKS.get(node.name.lower()):
                    return filled(clock, node)
                if (written := self._flink_call(node)) is not None:
                    return written
            case exp.Is() if isinstance(node.expression, exp.JSON):
                if node.expression.args.get("unique") or node.expression.args.get("with_") is not None:
                    raise self.unsupported("IS JSON with UNIQUE KEYS", node, "Leave out UNIQUE KEYS.")
                predicate = flink_functions.json_predicate(node.expression.args.get("this"))
                return filled(predicate, node, lambda _: self._rewrite(node.this))
            case exp.Query() | exp.Subquery() | exp.Exists():
                hint = "FROM takes a subquery; IN (SELECT ..) and EXISTS can be conditions of WHERE, joined by AND."
                raise self.unsupported("a subquery here", node, hint)
            case exp.In() if node.args.get("query") is not None:
                hint = "It can be a condition of WHERE, joined to others by AND."
                raise self.unsupported("IN (SELECT ..) here", node, hint)
            case exp.Window() if self.ranks is not None:
                if (average := self.decimal_average(node, self)) is not None:
                    return average
                return like(node, column_reference(self.ranks.column(node, self)))
            case exp.Window():
                raise self.unsupported("OVER here", node, OVER_ELSEWHERE)
            case exp.Star():
                raise self.error('"*" is not allowed here', node, "Name the columns.")
            case exp.Var() if node.name == "ALL":
                raise self.unsupported("ORDER BY ALL here", node, "Name the columns.")
            case exp.Comprehension():
                hint = "Write list_transform(list, x -> ..), and list_filter."
                raise self.unsupported("a list comprehension", node, hint)
            case exp.SessionUser() | exp.CurrentUser() | exp.CurrentRole() | exp.CurrentCatalog():
                raise self.unsupported(to_duckdb(node).lower(), node, None)
            case exp.Placeholder() | exp.Parameter():
                raise self.unsupported("a parameter", node, "Write the value.")
            case _ if type(node) in CLOCK_NODES:
                return filled(CLOCKS[CLOCK_NODES[type(node)]], node)
        with self.unfit.ignored() if is_lazy(node) else nullcontext():
            for child in list(node.iter_expressions()):
                bound = self._rewrite(child)
                if bound is not child:
                    child.replace(bound)
        return self._with_values(node)

    def _with_values(self, node: exp.Expr) -> exp.Expr:
        """Return a node, whose parts are bound, with Flink's value where DuckDB has another one; see `Meaning`."""
        meaning = self.checker.meaning
        if not meaning.is_flinks:
            return node
        for cast in implicit_casts(node, self.type_of):
            self._cast_operand(cast)
        for number in numbers_beside_texts(node, self.type_of):
            meaning.differs = True
            number.replace(self._text_of(number))
        if isinstance(node, exp.Div) and flink_values.divides_integers(node, self.type_of):
            meaning.differs = True
            if not meaning.divides_whole:
                return node
            meaning.notice_division(self.span(node))
            return like(node, exp.IntDiv(this=node.this, expression=node.expression))
        written = flink_values.rewritten(node, self.type_of)
        if written is None:
            return node
        form, operands = written
        if any(flink_functions.repeated(form, n) and self.is_volatile(one) for n, one in enumerate(operands)):
            return node
        meaning.differs = True
        return filled(form, node, lambda number: operands[number])

    def _text_of(self, number: exp.Expr) -> exp.Expr:
        value = number.copy()
        return filled(flink_values.as_text(value, self.type_of), number, lambda _: value)

    def _cast_operand(self, cast: ImplicitCast) -> None:
        """Replace a text beside a number by the number. Raises BindError for a literal that is none."""
        operand, meaning = cast.operand, self.checker.meaning
        if self.is_volatile(operand) and flink_functions.repeated(cast.form, 0):
            return
        value = operand.copy()
        number = filled(cast.form, operand, lambda _: value)
        meaning.differs = True
        operand.replace(number)
        if not cast.is_literal:
            meaning.notice_number(self.span(operand).text, FLINKS_TYPES.get(cast.type, cast.type), self.span(operand))
            self.unfit.add(filled(f"_0 IS NOT NULL AND ({cast.form}) IS NULL", operand, lambda _: value))
        elif self.checker.constant(number) is None:
            message = f"{to_duckdb(value)} is no {FLINKS_TYPES.get(cast.type, cast.type)}, which the number beside it asks for"
            raise self.error(message, operand, "Write a number, or cast the other side to STRING.")

    def decimal_average(self, node: exp.Expr, below: ExpressionBinder) -> exp.Expr | None:
        """Return AVG of a DECIMAL as the quotient of SUM and COUNT, which is a DECIMAL; None for any other call.

        `below` binds the argument. DuckDB's AVG is a DOUBLE.
        """
        call = node
        while isinstance(call, exp.Window | exp.Filter):
            call = call.this
        is_average = isinstance(call, exp.Anonymous) and call.name.lower() == "avg" and len(call.expressions) == 1
        if not is_average or not self.checker.meaning.is_flinks:
            return None
        argument = call.expressions[0]
        argument = argument.expressions[0] if isinstance(argument, exp.Distinct) else argument
        if isinstance(argument, exp.Star) or (self.is_aggregate(argument) and below is not self):
            return None
        kind = below.type_of(below.rewrite(argument)) or ""
        decimal = decimal_of(kind) if kind.startswith("DECIMAL") else None
        if decimal is None:
            return None
        form = quotient("_0", (38, decimal[1]), "_1", (19, 0), average_type(decimal[1]))
        if form is None:
            return None
        self.checker.meaning.differs = True
        return filled(form, node, lambda number: self._rewrite(_renamed(node, ("sum", "count")[number])))

    def replacement(self, node: exp.Expr) -> exp.Expr | None:
        """Return the bound form of a node as a whole, None to bind its parts; a subclass overrides it for aggregates.

        Raises BindError for an aggregate call, which a block without groups cannot have.
        """
        if self.is_aggregate(node):
            raise self.error("an aggregate is not allowed here", node)
        return None

    def refuse_aggregates(self, node: exp.Expr, where: str) -> None:
        """Raise BindError for an aggregate call in an expression; `where` ends the message, such as "in WHERE"."""
        # Aggregates in a subquery belong to the subquery.
        found = node.walk(prune=lambda n: isinstance(n, exp.Query))
        if (call := next((n for n in found if self.is_aggregate(n)), None)) is not None:
            raise self.error(f"an aggregate is not allowed {where}", call)

    def has_aggregates(self, node: exp.Expr) -> bool:
        """Return whether an expression contains an aggregate call of this block."""
        # SUM(x) OVER (..) and (SELECT SUM(x) ..) do not aggregate the block.
        return any(self.is_aggregate(n) for n in node.walk(prune=lambda n: isinstance(n, exp.Window | exp.Query)))

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Return whether a node is an aggregate call, or the FILTER or WITHIN GROUP around one."""
        if isinstance(node, exp.Filter | exp.WithinGroup):
            return True
        return isinstance(node, exp.Anonymous) and self._is_aggregate_name(node.name)

    def _is_aggregate_name(self, name: str) -> bool:
        if self.catalog.aggregate_function(name) is not None:
            return True
        is_built_in = name.lower() in self.checker.aggregates or name.lower() in OTHER_AGGREGATES
        return is_built_in and self.catalog.function(name) is None

    def _alias(self, node: exp.Column) -> exp.Expr:
        name = node.name.lower()
        if name in self._aliases:
            raise self.scope.missing(node)
        self._aliases.append(name)
        bound = self._rewrite(self.scope.select_aliases[name].copy())
        self._aliases.pop()
        return like(node, exp.Paren(this=bound))

    def _check_call(self, node: exp.Anonymous) -> None:
        name = node.name.lower()
        if name in _OF_A_CONNECTION:
            raise self.unsupported(f"function {name}", node, None)
        if name in _GROUP_WINDOWS and self.catalog.function(name) is None:
            raise self.unsupported(f"{name.upper()} here", node, _IN_FROM)
        if name in UNNESTS:
            self._check_unnest(node)
        if (function := self.catalog.function(name)) is not None and function.kind == "table":
            hint = f"Call it in FROM: FROM t CROSS JOIN LATERAL {node.name}(..) AS x."
            raise self.error(f'"{node.name}" is a table function: it returns rows, not a value', node, hint)
        if name == "columns":
            raise self.unsupported("function COLUMNS", node, "Name the columns.")
        if name in INSTEAD and self.catalog.function(name) is None:
            raise self.unsupported(f"function {name.upper()}", node, INSTEAD[name])

    def _check_unnest(self, node: exp.Anonymous) -> None:
        if not self.unnests:
            raise self.unsupported(f"{node.name.upper()} outside the select list", node, _UNNEST)
        if len(node.expressions) != 1:
            raise self.unsupported(f"{node.name.upper()} with options", node, "It takes one list.")
        if makes_rows(node.expressions[0]):
            raise self.unsupported("UNNEST inside UNNEST", node, "Write the inner one into a subquery in FROM.")
        kind = self.type_of(self.rewrite(node.expressions[0]))
        if kind is not None and not has_elements(kind) and kind != NULL_TYPE:
            hints = {"map": "Write UNNEST(map_entries(m)).", "struct": "Name its fields one by one."}
            hint = hints.get(kind_of(kind))
            raise self.error(f"{node.name.upper()} takes a list, not {kind}", node, hint)

    def _flink_call(self, node: exp.Anonymous) -> exp.Expr | None:
        """Return a call of a Flink function as DuckDB SQL, None if DuckDB runs the call as it is."""
        name = node.name.lower()
        if name not in REWRITTEN or self.catalog.function(name) is not None:
            return None
        arguments = node.expressions
        bound: dict[int, exp.Expr] = {}

        def argument(number: int) -> exp.Expr:
            if number not in bound:
                bound[number] = self._rewrite(arguments[number].copy())
            return bound[number]

        call = FlinkCall(name.upper(), tuple(arguments), lambda number: self.type_of(argument(number)))
        meaning = self.checker.meaning
        try:
            form = flink_functions.form(call, meaning.semantics)
            before = flink_functions.form(call, "duckdb") if name in flink_functions.IN_DUCKDBS_VALUES else form
        except WrongArgument as error:
            raise self.error(error.message, arguments[error.number], error.hint) from error
        if form != before:
            twice = [
                n
                for n in range(len(arguments))
                if flink_functions.repeated(form or "", n) and self.is_volatile(argument(n))
            ]
            form = before if twice else form
            meaning.differs = True
        if form is not None:
            for number, operand in enumerate(arguments):
                if flink_functions.repeated(form, number) and self.is_volatile(argument(number)):
                    hint = "Compute it in a subquery in FROM, and use its column here."
                    raise self.unsupported(f"a random argument of {name.upper()}", operand, hint)
            return filled(form, node, argument)
        if not self.checker.knows(name):
            counted = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
            raise self.error(f"function {name} takes {flink_functions.arities(name)}, not {counted}", node)
        return None

    @property
    def rows(self) -> Schema:
        """The columns that bound expressions can read."""
        return self.scope.rows

    def type_of(self, bound: exp.Expr) -> str | None:
        """Return the type of a bound expression, None if DuckDB cannot tell, as for a parameter of a lambda."""
        inner = bound.unnest()
        if isinstance(inner, exp.Literal) and inner.is_string:
            return "VARCHAR"
        if isinstance(inner, exp.Column) and (kind := next((f.type for f in self.rows if f.name == inner.name), None)):
            return kind
        try:
            return self.checker.type(self.rows, bound, self.scope.source)
        except SqlStreamError:
            return None

    def unsupported(self, what: str, node: exp.Expr, hint: str | None) -> UnsupportedError:
        """Return the error for SQL that cannot run, at the position of a node."""
        return UnsupportedError(what, self.span(node), hint=hint)

    def error(self, message: str, node: exp.Expr, hint: str | None = None) -> BindError:
        """Return the error for SQL that is wrong, at the position of a node."""
        return BindError(message, self.span(node), hint=hint)


def name_of(node: exp.Expr) -> str:
    """Return the output name of a select item without an alias: the column's name, or the SQL in lower case."""
    match node:
        case exp.Column() | exp.Dot():
            return node.name or to_duckdb(node)
        case _:
            return to_duckdb(node).lower()


def _renamed(node: exp.Expr, name: str) -> exp.Expr:
    """Return a copy of an aggregate call, with its FILTER and OVER, that calls another function; it has no output name."""
    copy = node.copy()
    inner = copy
    while isinstance(inner, exp.Window | exp.Filter):
        inner = inner.this
    inner.set("this", name)
    copy.meta["part"] = True
    return copy
