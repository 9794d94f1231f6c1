"""Expressions to a syntax tree: operators, literals, intervals, lambdas and calls.

DuckDB's grammar with Flink's additions; each node is marked with the text that it was read from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

from sqlglot import exp
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.sql.compound_intervals import compound_interval
from sqlstream.sql.spans import add_span, name_span, own_span, span_of
from sqlstream.sql.standard_calls import StandardCallParser

F = TypeVar("F", bound=Callable[..., Any])

# Functions that take a lambda; in the arguments of all others `->` is the arrow of JSON.
_HIGHER_ORDER = {
    *("list_transform", "array_transform", "list_apply", "array_apply", "apply"),
    *("list_filter", "array_filter", "filter", "list_reduce", "array_reduce", "reduce", "invoke"),
}
_UNITS = {
    *("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE"),
    *("MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "QUARTERS", "YEARS"),
    *("DECADES", "CENTURY", "CENTURIES", "MILLENNIUM", "MILLENNIA"),
}
# A chain of ANDs or ORs with more conditions becomes a balanced tree.
_CHAIN = 50
_CODE_POINT = re.compile(r"\\(?:(\\)|\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4}))")


def _literal(make: Callable[[], exp.Expr]) -> Callable[[DuckDBParser, Token], exp.Expr]:
    return lambda self, token: self.expression(make(), token)


def _quoted_digits(parse: Callable[[Any, Token], exp.Expr]) -> Callable[[Any, Token], exp.Expr]:
    def parser(self: ExpressionParser, token: Token) -> exp.Expr:
        # x'ff' is a blob; sqlglot takes 0xff for one too.
        if self.source.text[token.start : token.start + 1] == "0":
            raise self._refused("a number that is not decimal", self._token_span(token), "Write it in decimal.")
        return parse(self, token)

    return parser


def spanned(parse: F) -> F:
    """Let a parser method mark the node that it returns with the text that it was read from."""

    @wraps(parse)
    def wrapper(self: DuckDBParser, *args: Any, **kwargs: Any) -> Any:
        start, index = self._curr, self._index
        node = parse(self, *args, **kwargs)
        if isinstance(node, exp.Expr) and self._index > index:
            add_span(node, start.start, self._prev.end)
        return node

    return cast(F, wrapper)


class ExpressionParser(StandardCallParser):
    """The part of the parser that reads expressions."""

    # Every function is an exp.Anonymous of its own name, except functions whose arguments are no plain list.
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_cast_call(exp.Cast),
        "TRY_CAST": lambda self: self._parse_cast_call(exp.TryCast),
        "EXTRACT": lambda self: self._parse_extract_call(),
        "POSITION": lambda self: self._parse_position_call(),
        "SUBSTRING": lambda self: self._parse_substring_call(),
        "TRIM": lambda self: self._parse_trim_call(),
        "OVERLAY": lambda self: self._parse_overlay_call(),
        "FLOOR": lambda self: self._parse_floor_call("floor"),
        "CEIL": lambda self: self._parse_floor_call("ceil"),
        "CEILING": lambda self: self._parse_floor_call("ceiling"),
        "TIMESTAMPADD": lambda self: self._parse_timestamp_call("timestampadd"),
        "TIMESTAMPDIFF": lambda self: self._parse_timestamp_call("timestampdiff"),
        "JSON_ARRAY": lambda self: self._parse_json_array_call(),
        "JSON_ARRAYAGG": lambda self: self._parse_json_array_aggregate(),
        "JSON_OBJECTAGG": lambda self: self._parse_json_object_aggregate(),
        "JSON_OBJECT": lambda self: self._parse_json_object_call(),
        "JSON_VALUE": lambda self: self._parse_json_call("json_value"),
        "JSON_QUERY": lambda self: self._parse_json_call("json_query"),
        "JSON_EXISTS": lambda self: self._parse_json_call("json_exists"),
    }
    FUNC_TOKENS: ClassVar[set[TokenType]] = {*DuckDBParser.FUNC_TOKENS, TokenType.APPLY, TokenType.SESSION}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{word: DuckDBParser.NO_PAREN_FUNCTION_PARSERS[word] for word in ("ANY", "CASE")},
        "MAP": lambda self: self._parse_map_call(),
    }
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {TokenType.FARROW: DuckDBParser.LAMBDAS[TokenType.FARROW]}
    # sqlglot would read a column, or a call, of these names before a bracket as a constructor.
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}
    # A script has no parameters; @x and :x would hide a column.
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Any]] = {}
    RANGE_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **DuckDBParser.RANGE_PARSERS,
        TokenType.OVERLAPS: lambda self, this: self._parse_overlaps(this),
    }
    JSON_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        TokenType.ARROW: lambda self, this, path: self.expression(exp.JSONExtract(this=this, expression=path)),
        TokenType.DARROW: lambda self, this, path: self.expression(exp.JSONExtractScalar(this=this, expression=path)),
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **DuckDBParser.PRIMARY_PARSERS,
        TokenType.NULL: _literal(exp.Null),
        TokenType.TRUE: _literal(exp.true),
        TokenType.FALSE: _literal(exp.false),
        TokenType.HEX_STRING: _quoted_digits(DuckDBParser.PRIMARY_PARSERS[TokenType.HEX_STRING]),
        TokenType.BIT_STRING: _quoted_digits(DuckDBParser.PRIMARY_PARSERS[TokenType.BIT_STRING]),
        TokenType.UNICODE_STRING: lambda self, token: self.expression(exp.Literal.string(_decoded(token.text)), token),
    }

    _parse_unary = spanned(StandardCallParser._parse_unary)
    _parse_range = spanned(StandardCallParser._parse_range)
    _parse_lambda = spanned(StandardCallParser._parse_lambda)

    def _parse_conjunction(self) -> exp.Expr | None:
        return _balanced(super()._parse_conjunction(), exp.And)

    def _parse_disjunction(self) -> exp.Expr | None:
        return _balanced(super()._parse_disjunction(), exp.Or)

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        if literal := self._parse_typed_literal():
            return self._parse_column_ops(literal)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        result = super()._parse_column_ops(this)
        # sqlglot makes bare names of the columns before such a call, which nothing would resolve.
        for dot in result.find_all(exp.Dot) if result and result is not this else ():
            if isinstance(call := dot.expression, exp.Anonymous):
                raise self._refused("a call behind a dot", name_span(call, self.source), f"Write {call.name}(..).")
        return result

    def _parse_is_rhs(self, distinct: bool = False) -> exp.Expr | None:
        # In `x IS TRUE::VARCHAR` the cast applies to the predicate.
        boolean = None if distinct else self._parse_boolean()
        return boolean or super()._parse_is_rhs(distinct)

    def _parse_paren(self) -> exp.Expr | None:
        this = super()._parse_paren()
        if (
            isinstance(this, exp.Tuple)
            and len(this.expressions) == 1
            and not isinstance(this.expressions[0], exp.Query)
        ):
            # sqlglot writes (x,) as (x).
            return self.expression(exp.Anonymous(this="row", expressions=this.expressions))
        return this

    def _parse_primary(self) -> exp.Expr | None:
        start = self._curr
        if self._match_pair(TokenType.DOT, TokenType.NUMBER):
            number = exp.Literal.number(f".{self._prev.text}")
            add_span(number, start.start, self._prev.end)
            return number
        return super()._parse_primary()

    def _parse_map_call(self) -> exp.Expr:
        word = self._prev
        if self._match(TokenType.L_BRACE, advance=False):
            return self.expression(exp.ToMap(this=self._parse_bracket()))
        if self._match(TokenType.L_PAREN):
            call = self._call("map", *self._parse_csv(self._parse_lambda))
            self._match_r_paren()
            return call
        index = self._index
        if not self._match(TokenType.L_BRACKET):
            return self.expression(exp.Identifier(this=word.text), word)
        # Flink's MAP['a', 1, 'b', 2]
        start = word.start
        items = self._parse_csv(self._parse_disjunction)
        if len(items) == 1:
            # A column of that name: map['a'], map[1:2]
            self._retreat(index)
            return self.expression(exp.Identifier(this=word.text), word)
        if len(items) % 2:
            raise self._expected("a value for the last key")
        self._need_token(TokenType.R_BRACKET, '"]"')
        pairs = [exp.PropertyEQ(this=k, expression=v) for k, v in zip(items[::2], items[1::2], strict=True)]
        to_map = self.expression(exp.ToMap(this=exp.Struct(expressions=pairs)))
        # The text that follows, such as a subscript, is not part of it.
        add_span(to_map, start, self._prev.end)
        return to_map

    @spanned
    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        index, start = self._index, self._curr
        if not self._match(TokenType.INTERVAL):
            return None
        if self._curr.token_type not in (TokenType.STRING, TokenType.NUMBER, TokenType.L_PAREN):
            self._retreat(index)  # a column of that name
            return None
        # DuckDB reads '1.5' SECOND and '1.5 seconds' differently, so the text stays as it is.
        value = self._parse_primary()
        unit = None
        if self._match_texts(_UNITS):
            unit = exp.Var(this=self._prev.text.upper())
            add_span(unit, self._prev.start, self._prev.end)
            precise = self._skip_precision()
            if self._match_text_seq("TO"):
                if not self._match_texts(_UNITS):
                    raise self._expected("a unit such as SECOND")
                last = self._prev.text
                self._skip_precision()
                return self._compound_interval(value, unit.name, last, start)
            if precise:
                self._replace(self._tokens[self._index - precise], "")
        elif not (isinstance(value, exp.Literal) and value.is_string):
            raise self._expected("a unit such as SECOND")
        return self.expression(exp.Interval(this=value, unit=unit))

    def _skip_precision(self) -> int:
        """Skip the precision of an interval's unit, as in SECOND(3): DuckDB keeps microseconds. Return how many tokens it had."""
        first = self._index
        if self._match(TokenType.L_PAREN):
            self._parse_csv(self._parse_number)
            self._need_token(TokenType.R_PAREN, '")"')
        return self._index - first

    def _compound_interval(self, value: exp.Expr | None, first: str, last: str, start: Token) -> exp.Interval:
        """Return an interval of several units, such as '1 02:03:04' DAY TO SECOND, with its text as DuckDB reads it."""
        text = (
            compound_interval(value.name, first, last) if isinstance(value, exp.Literal) and value.is_string else None
        )
        if text is None:
            hint = (
                "Write all of its units, such as INTERVAL '1 02:03:04' DAY TO SECOND, or INTERVAL '1-02' YEAR TO MONTH."
            )
            raise self._wrong(f"this is no interval {first} TO {last.upper()}", self._span_from(start), hint)
        self._replace(start, "INTERVAL '1' DAY")
        return self.expression(exp.Interval(this=exp.Literal.string(text)))

    # -- functions

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        name = self._tokens[self._index - 2].text.lower()

        def argument() -> exp.Expr | None:
            arrow = self._parse_arrow_lambda() if name in _HIGHER_ORDER else None
            if not arrow and self._curr and self._curr.token_type == TokenType.ORDER_BY:
                raise self._expected("an argument", f"Write {name.upper()}(x ORDER BY y).")
            return arrow or self._parse_lambda(alias=alias)

        return self._parse_csv(argument)

    @spanned
    def _parse_arrow_lambda(self) -> exp.Expr | None:
        """Parse `x -> ..` and `(x, i) -> ..`; DuckDB's own `lambda x: ..` is read by sqlglot."""
        index = self._index
        if self._match(TokenType.L_PAREN):
            parameters = self._parse_csv(self._parse_lambda_arg)
            closed = self._match(TokenType.R_PAREN)
        else:
            parameter = self._parse_lambda_arg()
            parameters, closed = ([parameter] if parameter else []), True
        if not parameters or not closed or not self._match(TokenType.ARROW):
            self._retreat(index)
            return None
        body = self._replace_lambda(self._parse_disjunction(), parameters)
        return self.expression(exp.Lambda(this=body, expressions=parameters))

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        # Called right after the closing parenthesis of a function.
        if this and not alias and own_span(this) and self._prev.token_type == TokenType.R_PAREN:
            add_span(this, self._prev.start, self._prev.end)
        start, index = self._curr, self._index
        window = super()._parse_window(this, alias)
        order = window.args.get("order") if isinstance(window, exp.Window) else None
        if order is not None and isinstance(order.expressions[0].this, exp.Var):
            raise self._refused("ORDER BY ALL here", span_of(order, self.source), "Name the columns.")
        if window and self._index > index:
            add_span(window, start.start, self._prev.end)
        return window


def _balanced(condition: exp.Expr | None, kind: type[exp.And] | type[exp.Or]) -> exp.Expr | None:
    """Return a long chain of ANDs or ORs as a balanced tree, whose depth does not exhaust the stack."""
    if not isinstance(condition, kind) or not isinstance(condition.this, kind):
        return condition
    level: list[exp.Expr] = []
    rest: exp.Expr = condition
    while isinstance(rest, kind):
        level.append(rest.expression)
        rest = rest.this
    level = [rest, *reversed(level)]
    if len(level) <= _CHAIN:
        return condition
    while len(level) > 1:
        pairs = [kind(this=a, expression=b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = [*pairs, *([level[-1]] if len(level) % 2 else [])]
    return level[0]


def _decoded(text: str) -> str:
    """Return the characters that a U&'..' string denotes.

    >>> _decoded(r"caf\\00e9")
    'caf\xe9'
    """
    return _CODE_POINT.sub(lambda m: m[1] or chr(int(m[2] or m[3], 16)), text)
