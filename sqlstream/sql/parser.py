"""Queries and expressions to a syntax tree: Flink's streaming syntax over DuckDB's expressions.

sqlglot knows most of the grammar. The changes here keep a query's meaning and its place in the text: functions keep their names
(sqlglot would rename and rearrange them), and nodes are marked with the text that they were read from. `grammar` rejects what
sqlglot reads too leniently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

from sqlglot import exp
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.sql.compound_intervals import compound_interval
from sqlstream.sql.hints import JOIN_HINTS, OptionsHint, select_hints, table_options
from sqlstream.sql.spans import mark, marks, name_span, span_of
from sqlstream.sql.standard_calls import StandardCallParser
from sqlstream.sql.windows import WindowParser

T = TypeVar("T")
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
_SYSTEM_TIME = re.compile(r"FOR\s+SYSTEM_TIME\b", re.IGNORECASE)
_CODE_POINT = re.compile(r"\\(?:(\\)|\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4}))")


def _literal(make: Callable[[], exp.Expr]) -> Callable[[DuckDBParser, Token], exp.Expr]:
    return lambda self, token: self.expression(make(), token)


def _quoted_digits(parse: Callable[[Any, Token], exp.Expr]) -> Callable[[Any, Token], exp.Expr]:
    def parser(self: WindowParser, token: Token) -> exp.Expr:
        # x'ff' is a blob; sqlglot takes 0xff for one too.
        if self.source.text[token.start : token.start + 1] == "0":
            raise self._refused("a number that is not decimal", self._token_span(token), "Write it in decimal.")
        return parse(self, token)

    return parser


def placed(parse: F) -> F:
    """Let a parser method mark the node that it returns with the text that it was read from."""

    @wraps(parse)
    def wrapper(self: DuckDBParser, *args: Any, **kwargs: Any) -> Any:
        start, index = self._curr, self._index
        node = parse(self, *args, **kwargs)
        if isinstance(node, exp.Expr) and self._index > index:
            mark(node, start.start, self._prev.end)
        return node

    return cast(F, wrapper)


class StreamingParser(StandardCallParser):
    """The parser of the dialect StreamingSQL."""

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
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **{
            token: DuckDBParser.QUERY_MODIFIER_PARSERS[token]
            for token in (
                *(TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.WINDOW),
                *(TokenType.ORDER_BY, TokenType.LIMIT, TokenType.FETCH, TokenType.OFFSET),
                *(TokenType.TABLE_SAMPLE, TokenType.USING),
            )
        },
        TokenType.MATCH_RECOGNIZE: lambda self: self._refuse_match_recognize(),
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)

    _parse_unary = placed(WindowParser._parse_unary)
    _parse_range = placed(WindowParser._parse_range)
    _parse_table_alias = placed(WindowParser._parse_table_alias)
    _parse_lambda = placed(WindowParser._parse_lambda)
    _parse_with = placed(WindowParser._parse_with)
    _parse_cte = placed(WindowParser._parse_cte)
    _parse_where = placed(WindowParser._parse_where)
    _parse_group = placed(WindowParser._parse_group)
    _parse_having = placed(WindowParser._parse_having)
    _parse_qualify = placed(WindowParser._parse_qualify)
    _parse_order = placed(WindowParser._parse_order)
    _parse_limit = placed(WindowParser._parse_limit)
    _parse_offset = placed(WindowParser._parse_offset)
    _parse_table_sample = placed(WindowParser._parse_table_sample)

    # -- queries

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot asks for a statement after WITH and inside a CTE.
        if self._curr.token_type == TokenType.INSERT:
            hint = "Write INSERT INTO t WITH ... SELECT ...."
            raise self._refused("WITH before INSERT", self._token_span(self._curr), hint)
        return self._parse_query()

    @placed
    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        return _with_own_joins(super()._parse_select_query(nested, table, parse_subquery_alias, parse_set_operation))

    @placed
    def _parse_ordered(self, parse_method: Callable[[], exp.Expr | None] | None = None) -> exp.Ordered | None:
        start, parsed = self._curr, list[exp.Expr | None]()

        def parse() -> exp.Expr | None:
            parsed.append(parse_method() if parse_method else self._parse_disjunction())
            return parsed[0]

        ordered = super()._parse_ordered(parse)
        if ordered is not None and isinstance(ordered.this, exp.Var):
            # sqlglot takes "all", t.all and 'all' for the word ALL, too.
            if start.token_type == TokenType.ALL and isinstance(parsed[0], exp.Column) and not parsed[0].table:
                mark(ordered.this, start.start, start.end)
            else:
                ordered.set("this", parsed[0])
        return ordered

    def _parse_hint(self) -> exp.Hint | None:
        if self._prev.token_type != TokenType.SELECT or (hint := select_hints(self.source, self._prev)) is None:
            return None
        for call in (call for call in hint.expressions if call.this in JOIN_HINTS):
            why = "rows of a join go to the tasks of their keys, and results are the same"
            self._notice(f"the hint {call.this}", why, span_of(call, self.source))
        calls = [call for call in hint.expressions if call.this not in JOIN_HINTS]
        return exp.Hint(expressions=calls) if calls else None

    def _parse_table_parts(
        self, schema: bool = False, is_db_reference: bool = False, wildcard: bool = False, fast: bool = False
    ) -> exp.Table | exp.Dot | None:
        table = super()._parse_table_parts(schema, is_db_reference, wildcard, fast)
        if isinstance(table, exp.Table) and (options := self._table_options()):
            # No node of the tree: the place of the table ends with its name.
            table.set("table_options", options)
        return table

    def _table_options(self) -> OptionsHint | None:
        """Return the hint OPTIONS behind the name of a table, which is the last token that was read."""
        hint = table_options(self.source, self._prev)
        if hint is not None:
            self.hints_read.add(hint.start)
        return hint

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        return super()._parse_set_operations(_with_own_joins(this))

    @placed
    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr | None:
        if not self._at_window() and not self._at_process():
            self._refuse_table_function()
            table = super()._parse_table(
                schema, joins, alias_tokens, parse_bracket, is_db_reference, parse_partition, consume_pipe
            )
            if isinstance(table, exp.Subquery) and not table.alias and (version := self._parse_version()):
                table.set("version", version)
                table.set("alias", self._parse_table_alias(alias_tokens or self.TABLE_ALIAS_TOKENS))
            return table
        window = self._parse_window_table() if self._at_window() else self._parse_process_call()
        if alias := self._parse_table_alias(alias_tokens or self.TABLE_ALIAS_TOKENS):
            window.set("alias", alias)
        if joins:
            for join in self._parse_joins(alias_tokens=alias_tokens):
                window.append("joins", join)
        return window

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        start = self._curr
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join and start.token_type != TokenType.COMMA:
            if not _has_condition(join):
                raise self._expected("ON or USING")
            mark(join, start.start, self._prev.end)
        return join

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # Only the bare word ARRAY begins a list: "array"[1] and t.array[1] are elements of a column.
        if this is not None and self._curr.token_type == TokenType.L_BRACKET and self._follows_array():
            this = None
        return super()._parse_bracket(this)

    def _follows_array(self) -> bool:
        word, before = self._prev, self._tokens[self._index - 2] if self._index > 1 else None
        is_word = word.text.upper() == "ARRAY" and word.token_type != TokenType.IDENTIFIER
        return is_word and (before is None or before.token_type != TokenType.DOT)

    def _parse_lateral(self) -> exp.Lateral | None:
        if self._curr.token_type != TokenType.LATERAL or not self._is_call(self._index + 1, ("TABLE",)):
            return super()._parse_lateral()
        self._advance()
        opening = self._curr
        self._advance(2)
        self._replace(opening, "")
        call = self._parse_unnest(with_alias=False) or self._parse_function()
        if not isinstance(call, exp.Unnest | exp.Anonymous):
            raise self._expected("a call of a table function")
        closing = self._need_token(TokenType.R_PAREN, '")"')
        self._replace(closing, "")
        numbered = self._match_pair(TokenType.WITH, TokenType.ORDINALITY)
        return self.expression(exp.Lateral(this=call, alias=self._parse_table_alias(), ordinality=bool(numbered)))

    def _refuse_table_function(self) -> None:
        if self._is_call(self._index, ("TABLE",)):
            self._advance(2)
            name = self._token_span(self._curr or self._prev)
            hint = f"Write FROM t CROSS JOIN LATERAL TABLE({name.text}(..)) AS x, for rows that are made of a row of t."
            raise self._refused(f"the table function {name.text}", name, hint)

    def _refuse_match_recognize(self) -> tuple[str, None]:
        hint = (
            "A process function finds such an order of rows; see sqlstream docs python/process-patterns: "
            "an order of events, with a deadline."
        )
        raise self._refused("MATCH_RECOGNIZE", self._token_span(self._curr), hint)

    def _parse_version(self) -> exp.Version | None:
        start = self._curr
        if version := super()._parse_version():
            if not _SYSTEM_TIME.match(self.source.text, start.start) or version.args["kind"] != "AS OF":
                hint = "A query of state reads old versions: sqlstream query with AT (VERSION => 12)."
                raise self._refused("time travel in a streaming query", self._span_from(start), hint)
            mark(version, start.start, self._prev.end)
        return version

    def _parse_limit_options(self) -> exp.LimitOptions | None:
        options = super()._parse_limit_options()
        if options is not None and options.args.get("with_ties"):
            # DuckDB has no word for it.
            self._replace(self._tokens[self._index - 2], "ONLY" if options.args.get("rows") else "")
        return options

    def _parse_function_parameter(self) -> exp.Expr | None:
        # Only table aliases can have parameters here, and those are names.
        return self._parse_id_var(any_token=False)

    def _parse_into(self) -> exp.Into | None:
        return None

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query | None:
        raise self._expected(None)

    # -- expressions

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
            mark(number, start.start, self._prev.end)
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
        mark(to_map, start, self._prev.end)
        return to_map

    @placed
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
            mark(unit, self._prev.start, self._prev.end)
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

    @placed
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
        if this and not alias and marks(this) and self._prev.token_type == TokenType.R_PAREN:
            mark(this, self._prev.start, self._prev.end)
        start, index = self._curr, self._index
        window = super()._parse_window(this, alias)
        order = window.args.get("order") if isinstance(window, exp.Window) else None
        if order is not None and isinstance(order.expressions[0].this, exp.Var):
            raise self._refused("ORDER BY ALL here", span_of(order, self.source), "Name the columns.")
        if window and self._index > index:
            mark(window, start.start, self._prev.end)
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


def _has_condition(join: exp.Join) -> bool:
    """Return whether a join has a condition, or needs none."""
    condition = join.args.get("on") or join.args.get("using") or join.args.get("nearest")
    return bool(condition) or join.method in ("NATURAL", "POSITIONAL") or join.kind == "CROSS"


def _with_own_joins(query: exp.Expr | None) -> exp.Expr | None:
    """Move the joins of `FROM a JOIN b .. SELECT ..` to the query; sqlglot attaches them to the first table."""
    source = query.args.get("from_") if isinstance(query, exp.Select) else None
    if query and source and (joins := source.this.args.get("joins")):
        source.this.set("joins", None)
        query.set("joins", [*joins, *(query.args.get("joins") or [])])
    return query


def _decoded(text: str) -> str:
    """Return the characters that a U&'..' string denotes.

    >>> _decoded(r"caf\\00e9")
    'caf\xe9'
    """
    return _CODE_POINT.sub(lambda m: m[1] or chr(int(m[2] or m[3], 16)), text)
