"""Calls and predicates whose arguments Flink separates by words: FLOOR(ts TO HOUR), JSON_VALUE(.. RETURNING ..), IS JSON."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.sql.nodes import NULL_TREATING
from sqlstream.sql.process_calls import ProcessCallParser
from sqlstream.sql.spans import mark

# The units of FLOOR, CEIL, TIMESTAMPADD and TIMESTAMPDIFF; Flink's SQL_TSI_HOUR is HOUR.
UNITS = {
    *("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"),
    *("DECADE", "CENTURY", "MILLENNIUM"),
}


class FlinkCallParser(ProcessCallParser):
    """Reads Flink's calls with words as plain calls: a unit is an exp.Var, a type an exp.DataType."""

    def __init__(self, *arguments: object, **options: object):
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        # Text that DuckDB's grammar rejects, by its first offset: (the offset behind it, what DuckDB reads instead).
        self.beyond: dict[int, tuple[int, str]] = {}

    def _parse_floor_call(self, name: str) -> exp.Expr:
        value = self._parse_lambda()
        if not self._match_text_seq("TO"):
            return self._rest_of_call(name, value)
        start = self._prev
        unit = self._parse_unit()
        self._replace(start, ", 0")
        return self._call(name, value, unit)

    def _parse_timestamp_call(self, name: str) -> exp.Expr:
        unit = self._parse_unit()
        self._need_token(TokenType.COMMA, '","')
        return self._rest_of_call(name, unit, *self._parse_csv(self._parse_lambda))

    def _parse_unit(self) -> exp.Var:
        word = self._curr.text.upper().removeprefix("SQL_TSI_") if self._curr else ""
        if word not in UNITS or self._curr.token_type == TokenType.STRING:
            raise self._expected("a unit such as HOUR")
        self._advance()
        unit = exp.Var(this=word)
        mark(unit, self._prev.start, self._prev.end)
        return unit

    def _parse_json_call(self, name: str) -> exp.Expr:
        """Read JSON_VALUE, JSON_QUERY and JSON_EXISTS. Of their ON and WRAPPER clauses only the defaults are allowed."""
        arguments = self._parse_csv(self._parse_lambda)
        start = self._curr
        if start and self._match_text_seq("RETURNING"):
            kind = self._parse_types()
            if kind is None:
                raise self._expected("a type")
            arguments.append(kind)
        default = "FALSE" if name == "json_exists" else "NULL"
        if name == "json_query" and self._match_text_seq("WITHOUT"):
            self._match_text_seq("ARRAY")
            self._need("WRAPPER")
        while self._match_text_seq(default, "ON"):
            if not self._match_texts(("EMPTY", "ERROR")):
                raise self._expected("EMPTY or ERROR")
        if self._curr and self._curr.token_type != TokenType.R_PAREN:
            hint = f"It gives {default} where there is no such value; write COALESCE around it for another one."
            wrapped = self._curr.text.upper() == "WITH"
            raise self._refused(
                f"{self._curr.text.upper()} in {name.upper()}",
                self._token_span(self._curr),
                "It gives objects and arrays; put another value into a list yourself." if wrapped else hint,
            )
        if start and self._curr is not start:
            self._replace(start, "")
        return self._call(name, *arguments)

    def _parse_json_object_call(self) -> exp.Expr:
        """Read JSON_OBJECT(KEY k VALUE v, .. ABSENT ON NULL) as json_object(k, v, ..); a plain list of arguments stays."""
        start, arguments = self._curr, list[exp.Expr | None]()
        while self._curr and self._curr.token_type != TokenType.R_PAREN:
            if self._curr.text.upper() == "KEY" and self._next and self._next.text.upper() != "VALUE":
                self._match_text_seq("KEY")
            key = self._parse_bitwise()
            if not self._match_text_seq("VALUE"):
                if arguments:
                    raise self._expected("VALUE")
                return self._rest_of_call("json_object", key)
            arguments += [key, self._parse_lambda()]
            if not self._match(TokenType.COMMA):
                break
        absent = self._match_text_seq("ABSENT", "ON", "NULL")
        if not absent:
            self._match_text_seq("NULL", "ON", "NULL")
        if arguments and start:
            self._replace(start, "")
        document = self._call("json_object", *arguments)
        return self._call("json_merge_patch", exp.Literal.string("{}"), document) if absent else document

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        start = self._curr
        result = super()._parse_is(this)
        predicate = result.find(exp.JSON) if result is not None and start else None
        if predicate is not None and start and not predicate.meta_get("start"):
            first = self._tokens[self._tokens.index(start) + (start.token_type == TokenType.NOT)]
            mark(predicate, first.start, self._prev.end)
            self._replace(first, "NULL")
        return result

    def _parse_between(self, this: exp.Expr | None) -> exp.Expr:  # type: ignore[override]
        """Read BETWEEN. BETWEEN SYMMETRIC becomes an OR of two BETWEENs, with the bounds in both orders."""
        if not self._match_text_seq("SYMMETRIC"):
            return super()._parse_between(this)
        self._replace(self._prev, "")
        one: exp.Between = super()._parse_between(this)
        low, high = one.args["low"].copy(), one.args["high"].copy()
        other = exp.Between(this=one.this.copy(), low=high, high=low)
        return self.expression(exp.Paren(this=exp.Or(this=one, expression=other)))

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """Read what follows a call. IGNORE NULLS right behind a call is read as if it stood behind the last argument."""
        call = this if isinstance(this, exp.Anonymous) and this.expressions and not alias else None
        if call is not None:
            *others, last = call.expressions
            start = self._curr
            treated = self._parse_respect_or_ignore_nulls(last)
            if treated is not last:
                self._replace(start, "")
                call.set("expressions", [*others, treated])
        window = super()._parse_window(this, alias)
        if call is not None and not isinstance(window, exp.Window):
            self._hide_null_treatment(call)
        return window

    def _hide_null_treatment(self, call: exp.Anonymous) -> None:
        """Hide IGNORE NULLS of a call without OVER from DuckDB's grammar, which knows these words only before OVER."""
        words = call.expressions[-1].meta_get("words")
        if words is not None and call.name.lower() in NULL_TREATING:
            start, end = words
            self.beyond[start] = end, ""

    def _parse_respect_or_ignore_nulls(self, this: exp.Expr | None) -> exp.Expr | None:
        start = self._curr
        treated = super()._parse_respect_or_ignore_nulls(this)
        if treated is not None and treated is not this:
            treated.meta["words"] = (start.start, self._prev.end + 1)
        return treated

    def _replace(self, start: Token, text: str) -> None:
        """Let DuckDB's grammar read `text` instead of the text from a token to the one read last."""
        self.beyond[start.start] = self._prev.end + 1, text

    def _rest_of_call(self, name: str, first: exp.Expr | None, *more: exp.Expr | None) -> exp.Expr:
        rest = self._parse_csv(self._parse_lambda) if self._match(TokenType.COMMA) else []
        return self._call(name, first, *more, *rest)

    def _call(self, name: str, *arguments: exp.Expr | None) -> exp.Expr:
        expressions = [argument for argument in arguments if argument is not None]
        return self.expression(exp.Anonymous(this=name, expressions=expressions))
