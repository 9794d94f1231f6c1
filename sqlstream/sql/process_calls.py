"""Calls of process functions in FROM, as Flink writes them: `f(TABLE t PARTITION BY k, threshold => 5)`."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.sql.spans import add_span
from sqlstream.sql.windows import WindowParser

_USAGE = "Write f(TABLE t PARTITION BY k, threshold => 5)."
_COLUMNS = (
    "ORDER BY takes columns, PARTITION BY expressions, too: several in parentheses. "
    "A constant behind them that begins with a name needs its own: threshold => .."
)


class TableArgumentSQL(exp.Expression):
    """`TABLE t [PARTITION BY ..] [ORDER BY ..] [BROADCAST]`; `this` is an exp.Table or an exp.Subquery.

    Keys are None without PARTITION BY. They are expressions; one with a name is an exp.Alias. The items of the order are columns.
    `end` is the offset behind all of it.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition_by": False,
        "order_by": False,
        "broadcast": False,
        "end": True,
    }


class DescriptorSQL(exp.Expression):
    """`DESCRIPTOR(ts, ..)`: columns."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class ArgumentSQL(exp.Expression):
    """An argument of a call: its `value`, and the `name` before it, an exp.Identifier, if it is named."""

    arg_types: ClassVar[dict[str, bool]] = {"name": False, "value": True}


class ProcessCall(exp.Expression, exp.UDTF):
    """A call of a process function in FROM: `this` is its name, `expressions` are its arguments.

    With TABLE( ) around the call, `inner` has the start and the end of the call, and the offset behind TABLE( )'s parenthesis.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": True,
        "alias": False,
        "joins": False,
        "inner": False,
    }


class ProcessCallParser(WindowParser):
    """Reads calls with a table among their arguments."""

    def _at_process(self) -> bool:
        wrapped = self._is_call(self._index, ("TABLE",))
        return self._takes_table(self._index + 2 if wrapped else self._index)

    def _takes_table(self, index: int) -> bool:
        """Return whether a call with an argument that begins with TABLE starts at the token with this index."""
        name, paren = (self._tokens[i] if i < self._tokens_size else None for i in (index, index + 1))
        if not name or not paren or paren.token_type != TokenType.L_PAREN:
            return False
        if name.token_type in (TokenType.TABLE, TokenType.L_PAREN) or not name.text.replace("_", "a").isalnum():
            return False
        depth, before = 0, paren
        for token in self._tokens[index + 1 :]:
            if token.token_type == TokenType.TABLE and depth == 1:
                return before.token_type in (TokenType.L_PAREN, TokenType.COMMA, TokenType.FARROW)
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0 or token.token_type == TokenType.SEMICOLON:
                return False
            before = token
        return False

    def _parse_process_call(self) -> ProcessCall:
        start = self._curr
        wrapped = self._match(TokenType.TABLE)
        if wrapped:
            self._match_l_paren()
        name = self._curr
        self._advance(2)
        arguments = [self._parse_argument()]
        while self._match(TokenType.COMMA):
            arguments.append(self._parse_argument())
        if not self._match(TokenType.R_PAREN):
            columns = {"partition_by", "order_by"} & {*arguments[-1].args["value"].args}
            raise self._expected('")"', _COLUMNS if columns else None)
        call = ProcessCall(this=self._named(name), expressions=arguments)
        if wrapped:
            call.set("inner", (name.start, self._prev.end + 1))
            self._need_token(TokenType.R_PAREN, '")"')
            call.set("inner", (*call.args["inner"], self._prev.end + 1))
        add_span(call, start.start, self._prev.end)
        return call

    def _named(self, token: Token) -> exp.Identifier:
        name = exp.Identifier(this=token.text)
        add_span(name, token.start, token.end)
        return name

    def _parse_argument(self) -> ArgumentSQL:
        start, name = self._curr, None
        if self._next and self._next.token_type == TokenType.FARROW:
            name = self._named(self._curr)
            self._advance(2)
        argument = ArgumentSQL(name=name, value=self._parse_argument_value())
        add_span(argument, start.start, self._prev.end)
        return argument

    def _parse_argument_value(self) -> exp.Expr:
        if self._curr and self._curr.token_type == TokenType.TABLE:
            return self._parse_table_argument()
        start = self._curr
        if self._match_text_seq("DESCRIPTOR", "("):
            descriptor = DescriptorSQL(expressions=self._parse_csv(self._column))
            self._need_token(TokenType.R_PAREN, '")"')
            add_span(descriptor, start.start, self._prev.end)
            return descriptor
        value = self._parse_disjunction()
        if value is None:
            raise self._expected("an argument", _USAGE)
        return value

    def _parse_table_argument(self) -> TableArgumentSQL:
        start = self._curr
        self._advance()
        argument = TableArgumentSQL(this=self._parse_argument_table())
        while True:
            if self._match(TokenType.PARTITION_BY):
                argument.set("partition_by", self._parse_columns(self._key))
            elif self._match(TokenType.ORDER_BY):
                argument.set("order_by", self._parse_columns(self._parse_ordered))
            elif self._match_text_seq("BROADCAST"):
                argument.set("broadcast", True)
            else:
                break
        argument.set("end", self._prev.end + 1)
        add_span(argument, start.start, self._prev.end)
        return argument

    def _parse_argument_table(self) -> exp.Expr:
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            start = self._curr
            subquery = exp.Subquery(this=self._parse_wrapped(self._parse_query))
            add_span(subquery, start.start, self._prev.end)
            return subquery
        start = self._curr
        table = self._parse_table_parts()
        if not isinstance(table, exp.Table):
            raise self._expected("the name of a table", _USAGE)
        add_span(table, start.start, self._prev.end)
        return table

    def _parse_columns(self, parse: object) -> list[exp.Expr]:
        """Read columns, in parentheses or not; after a comma, anything but a bare column begins the next argument."""
        assert callable(parse)
        if self._curr and self._curr.token_type == TokenType.L_PAREN and self._is_list():
            columns: list[exp.Expr] = self._parse_wrapped_csv(parse)
            return columns
        items: list[exp.Expr] = [parse()]
        while self._curr and self._curr.token_type == TokenType.COMMA and self._column_follows():
            self._advance()
            items.append(parse())
        return items

    def _is_list(self) -> bool:
        """Return whether the parentheses that begin here contain the whole list: no operator follows them."""
        depth, index = 0, self._index
        while index < self._tokens_size:
            kind = self._tokens[index].token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            index += 1
            if depth == 0:
                break
        after = self._tokens[index] if index < self._tokens_size else None
        ends = (TokenType.COMMA, TokenType.R_PAREN, TokenType.ORDER_BY, TokenType.PARTITION_BY)
        return after is None or after.token_type in ends or after.text.upper() == "BROADCAST"

    def _key(self) -> exp.Expr:
        start = self._curr
        value = self._parse_disjunction()
        if value is None:
            raise self._expected("a column, or an expression", _USAGE)
        if not self._match(TokenType.ALIAS):
            return value
        name = self._parse_id_var(any_token=False)
        if name is None:
            raise self._expected("a name", "Write f(TABLE t PARTITION BY upper(k) AS key).")
        key = exp.Alias(this=value, alias=name)
        add_span(key, start.start, self._prev.end)
        return key

    def _column_follows(self) -> bool:
        column = self._next
        after = self._tokens[self._index + 2] if self._index + 2 < self._tokens_size else None
        if not column or column.token_type not in (TokenType.VAR, TokenType.IDENTIFIER) or not after:
            return False
        return after.token_type not in (TokenType.FARROW, TokenType.L_PAREN)

    def _column(self) -> exp.Expr:
        column = self._parse_column()
        if not isinstance(column, exp.Column):
            raise self._expected("a column", _USAGE)
        return column
