"""Queries to a syntax tree: Flink's streaming syntax over DuckDB's.

sqlglot knows most of the grammar. The changes here keep a query's meaning and its position in the text: functions keep their
names (sqlglot would rename and rearrange them), and nodes are marked with the text that they were read from. `grammar` rejects
what sqlglot reads too leniently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

from sqlstream.sql.expressions import ExpressionParser, spanned
from sqlstream.sql.hints import JOIN_HINTS, OptionsHint, select_hints, table_options
from sqlstream.sql.spans import add_span, span_of

_SYSTEM_TIME = re.compile(r"FOR\s+SYSTEM_TIME\b", re.IGNORECASE)


class StreamingParser(ExpressionParser):
    """The parser of the dialect StreamingSQL."""

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

    _parse_table_alias = spanned(ExpressionParser._parse_table_alias)
    _parse_with = spanned(ExpressionParser._parse_with)
    _parse_cte = spanned(ExpressionParser._parse_cte)
    _parse_where = spanned(ExpressionParser._parse_where)
    _parse_group = spanned(ExpressionParser._parse_group)
    _parse_having = spanned(ExpressionParser._parse_having)
    _parse_qualify = spanned(ExpressionParser._parse_qualify)
    _parse_order = spanned(ExpressionParser._parse_order)
    _parse_limit = spanned(ExpressionParser._parse_limit)
    _parse_offset = spanned(ExpressionParser._parse_offset)
    _parse_table_sample = spanned(ExpressionParser._parse_table_sample)

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot asks for a statement after WITH and inside a CTE.
        if self._curr.token_type == TokenType.INSERT:
            hint = "Write INSERT INTO t WITH ... SELECT ...."
            raise self._refused("WITH before INSERT", self._token_span(self._curr), hint)
        return self._parse_query()

    @spanned
    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        return _with_own_joins(super()._parse_select_query(nested, table, parse_subquery_alias, parse_set_operation))

    @spanned
    def _parse_ordered(self, parse_method: Callable[[], exp.Expr | None] | None = None) -> exp.Ordered | None:
        start, parsed = self._curr, list[exp.Expr | None]()

        def parse() -> exp.Expr | None:
            parsed.append(parse_method() if parse_method else self._parse_disjunction())
            return parsed[0]

        ordered = super()._parse_ordered(parse)
        if ordered is not None and isinstance(ordered.this, exp.Var):
            # sqlglot takes "all", t.all and 'all' for the word ALL, too.
            if start.token_type == TokenType.ALL and isinstance(parsed[0], exp.Column) and not parsed[0].table:
                add_span(ordered.this, start.start, start.end)
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
            # No node of the tree: the position of the table ends with its name.
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

    @spanned
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
            add_span(join, start.start, self._prev.end)
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
            add_span(version, start.start, self._prev.end)
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
