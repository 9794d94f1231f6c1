"""Flink's window table functions in FROM, such as `TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)`."""

from __future__ import annotations

from collections.abc import Container
from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import missing
from sqlstream.sql.required_tokens import Failure
from sqlstream.sql.spans import add_span
from sqlstream.sql.types import TypeParser

_INTERVALS = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "CUMULATE": ("STEP", "SIZE"), "SESSION": ("GAP",)}
_ROWS = {"TUMBLE_ROWS": ("SIZE",), "HOP_ROWS": ("SLIDE", "SIZE")}
_LENGTHS = {**_INTERVALS, **_ROWS}
_USAGE = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "TUMBLE_ROWS": "TUMBLE_ROWS(TABLE t PARTITION BY k, DESCRIPTOR(ts), 100)",
    "HOP_ROWS": "HOP_ROWS(TABLE t PARTITION BY k, DESCRIPTOR(ts), 10, 100)",
}


class WindowTVF(exp.Expression, exp.UDTF):
    """A window table function in FROM.

    `this` is an exp.Table or exp.Subquery, `kind` the function's name in capitals, `time_column` the exp.Column in
    DESCRIPTOR; `intervals` are in positional order: TUMBLE size; HOP slide, size; CUMULATE step, size; SESSION gap;
    windows by rows have numbers instead. `end` is the offset behind the call, before its alias.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "kind": True,
        "time_column": True,
        "intervals": True,
        "offset": False,
        "partition_by": False,
        "alias": False,
        "joins": False,
        "end": False,
    }


class WindowParser(TypeParser):
    """Reads window table functions, positional or named, with or without `TABLE( )` around them."""

    def _at_window(self) -> bool:
        return self._is_call(self._index, _LENGTHS) or (
            self._is_call(self._index, ("TABLE",)) and self._is_call(self._index + 2, _LENGTHS)
        )

    def _is_call(self, index: int, names: Container[str]) -> bool:
        name, paren = (self._tokens[i] if i < self._tokens_size else None for i in (index, index + 1))
        if not name or not paren or name.token_type == TokenType.IDENTIFIER:
            return False
        return name.text.upper() in names and paren.token_type == TokenType.L_PAREN

    def _parse_window_table(self) -> WindowTVF:
        start = self._curr
        wrapped = self._match(TokenType.TABLE)
        if wrapped:
            self._match_l_paren()
        name = self._curr
        self._advance(2)
        window = self._window_of(name, self._window_arguments(name.text.upper()))
        if wrapped:
            self._need_token(TokenType.R_PAREN, '")"')
        window.set("end", self._prev.end + 1)
        add_span(window, start.start, self._prev.end)
        return window

    def _window_arguments(self, kind: str) -> dict[str, exp.Expr | list[exp.Expr]]:
        """Read the arguments up to the closing parenthesis, by name; the keys of PARTITION BY are the argument KEYS."""
        offset = () if kind == "SESSION" or kind in _ROWS else ("OFFSET",)
        parameters = ("DATA", "TIMECOL", *_LENGTHS[kind], *offset)
        arguments: dict[str, exp.Expr | list[exp.Expr]] = {}
        named = False
        while not arguments or self._match(TokenType.COMMA):
            start = self._curr
            name = self._argument_name(kind, parameters)
            if name is None and named:
                raise self._expected("a named argument", f"Existing arguments: {', '.join(parameters)}.")
            named = name is not None
            position = len(arguments.keys() - {"KEYS"})
            if not named and position == len(parameters):
                raise self._misused(kind, f"{kind} takes at most {position} arguments", start)
            parameter = name or parameters[position]
            if parameter in arguments:
                raise self._misused(kind, f"the argument {parameter} is given twice", start)
            arguments[parameter] = self._window_argument(kind, parameter)
            if parameter == "DATA" and self._match(TokenType.PARTITION_BY):
                arguments["KEYS"] = self._window_keys(kind)
        closing = self._need_token(TokenType.R_PAREN, '")"')
        for parameter in parameters:
            if parameter not in arguments and parameter != "OFFSET":
                raise self._misused(kind, f"{kind} needs the argument {parameter}", closing)
        return arguments

    def _argument_name(self, kind: str, parameters: tuple[str, ...]) -> str | None:
        if self._next.token_type != TokenType.FARROW:
            return None
        token = self._curr
        self._advance(2)
        name = token.text.upper()
        if name not in parameters:
            hint = missing("argument", name, parameters)
            raise self._wrong(f"{kind} has no argument {name}", self._token_span(token), hint)
        return name

    def _window_argument(self, kind: str, parameter: str) -> exp.Expr:
        match parameter:
            case "DATA":
                return self._window_data(kind)
            case "TIMECOL":
                if not self._match_text_seq("DESCRIPTOR", "("):
                    raise self._expected("DESCRIPTOR(time column)", f"Write {_USAGE[kind]}.")
                column = self._parse_column()
                if not isinstance(column, exp.Column):
                    raise self._expected("a column")
                self._need_token(TokenType.R_PAREN, '")"')
                return column
            case _ if kind in _ROWS:
                number = self._curr
                if number.token_type != TokenType.NUMBER or not number.text.isdigit() or int(number.text) == 0:
                    raise self._expected(f"a number of rows for {parameter}", f"Write {_USAGE[kind]}.")
                self._advance()
                literal = exp.Literal.number(number.text)
                add_span(literal, number.start, number.end)
                return literal
            case _:
                index = self._index
                value = self._parse_disjunction()
                # The gap of a session may be a column.
                kinds = (exp.Interval, exp.Cast, *([exp.Column] if parameter == "GAP" else []))
                if value is None or not value.find(*kinds):
                    self._retreat(index)
                    raise self._expected(f"an INTERVAL for {parameter}", f"Write {_USAGE[kind]}.")
                return value

    def _window_data(self, kind: str) -> exp.Expr:
        keyword = self._match(TokenType.TABLE)
        if self._curr.token_type == TokenType.L_PAREN:
            start = self._curr
            query = self._parse_wrapped(self._parse_query)
            subquery = exp.Subquery(this=query)
            add_span(subquery, start.start, self._prev.end)
            return subquery
        table = self._parse_table_parts() if keyword else None
        if not isinstance(table, exp.Table):
            raise self._expected("TABLE and the name of a table", f"Write {_USAGE[kind]}.")
        return table

    def _window_keys(self, kind: str) -> list[exp.Expr]:
        if kind != "SESSION" and kind not in _ROWS:
            raise self._refused(f"PARTITION BY in {kind}", self._token_span(self._prev), "Put the keys into GROUP BY.")
        if self._curr.token_type == TokenType.L_PAREN:
            return self._parse_wrapped_csv(self._parse_column)
        column = self._parse_column()
        if column is None:
            raise self._expected("a column")
        return [column]

    def _window_of(self, name: Token, arguments: dict[str, exp.Expr | list[exp.Expr]]) -> WindowTVF:
        kind = name.text.upper()
        return self.expression(
            WindowTVF(
                this=arguments["DATA"],
                kind=kind,
                time_column=arguments["TIMECOL"],
                intervals=[arguments[parameter] for parameter in _LENGTHS[kind]],
                offset=arguments.get("OFFSET"),
                partition_by=arguments.get("KEYS", []),
            )
        )

    def _parse_query(self) -> exp.Query:
        """Parse a SELECT, or what may stand for one: WITH, FROM first, parentheses, set operations."""
        first = self._parse_select(nested=True, parse_subquery_alias=False)
        if isinstance(first, exp.Values):
            first = exp.select("*").from_(first)
        query = self._parse_query_modifiers(self._parse_set_operations(first))
        if not isinstance(query, exp.Query):
            raise self._expected("a query")
        return query

    def _misused(self, kind: str, message: str, token: Token) -> Failure:
        return self._wrong(message, self._token_span(token), f"Write {_USAGE[kind]}.")
