"""Calls and predicates whose arguments Flink separates by words: FLOOR(ts TO HOUR), JSON_VALUE(.. RETURNING ..), IS JSON."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.sql.nodes import NULL_TREATING
from sqlstream.sql.process_calls import ProcessCallParser
from sqlstream.sql.spans import add_span

# The units of FLOOR, CEIL, TIMESTAMPADD and TIMESTAMPDIFF; Flink's SQL_TSI_HOUR is HOUR.
UNITS = {
    *("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"),
    *("DECADE", "CENTURY", "MILLENNIUM"),
}
# The words that say what a call gives where a text of JSON has no value, or is none.
_JSON_WORDS = {
    "json_value": ("NULL", "ERROR", "DEFAULT"),
    "json_query": ("NULL", "ERROR", "EMPTY"),
    "json_exists": ("TRUE", "FALSE", "UNKNOWN", "ERROR"),
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
        add_span(unit, self._prev.start, self._prev.end)
        return unit

    def _parse_json_call(self, name: str) -> exp.Expr:
        """Read JSON_VALUE, JSON_QUERY and JSON_EXISTS; clauses but for the defaults become arguments, see `json_functions`."""
        arguments = self._parse_csv(self._parse_lambda)
        start = self._curr
        kind: exp.Expr | None = None
        if start and self._match_text_seq("RETURNING") and (kind := self._parse_types()) is None:
            raise self._expected("a type")
        wrapper = self._parse_wrapper() if name == "json_query" else "WITHOUT"
        default = "FALSE" if name == "json_exists" else "NULL"
        behaviours = {"EMPTY": default, "ERROR": default}
        defaults = self._parse_json_behaviours(behaviours, _JSON_WORDS[name])
        if start and self._curr is not start:
            self._replace(start, "")
        is_default = wrapper == "WITHOUT" and set(behaviours.values()) == {default} and not defaults
        if name == "json_exists":
            arguments += [] if is_default else [exp.Var(this=behaviours["ERROR"])]
        elif not is_default or (kind is not None and name == "json_query"):
            clauses = ([wrapper] if name == "json_query" else []) + [behaviours["EMPTY"], behaviours["ERROR"]]
            arguments += [kind or exp.Var(this="NONE"), *(exp.Var(this=clause) for clause in clauses), *defaults]
        elif kind is not None:
            arguments.append(kind)
        return self._call(name, *arguments)

    def _parse_wrapper(self) -> str:
        """Read how JSON_QUERY puts a value into an array; without a word it does not."""
        wrapper = "WITHOUT"
        if self._match_text_seq("WITH"):
            wrapper = "CONDITIONAL" if self._match_text_seq("CONDITIONAL") else "UNCONDITIONAL"
            self._match_text_seq("UNCONDITIONAL")
        elif not self._match_text_seq("WITHOUT"):
            return wrapper
        self._match_text_seq("ARRAY")
        self._need("WRAPPER")
        return wrapper

    def _parse_json_behaviours(self, behaviours: dict[str, str], words: tuple[str, ...]) -> list[exp.Expr]:
        """Read what a call gives ON EMPTY and ON ERROR into `behaviours`; return the values of DEFAULT in that order."""
        defaults: dict[str, exp.Expr] = {}
        while self._curr and self._curr.token_type != TokenType.R_PAREN:
            value: exp.Expr | None = None
            word = self._curr.text.upper()
            if word not in words:
                raise self._expected(f"one of {', '.join(words)}")
            self._advance()
            if word == "DEFAULT":
                value = self._parse_bitwise()
            elif word == "EMPTY":
                word = "EMPTY OBJECT" if self._match_text_seq("OBJECT") else "EMPTY ARRAY"
                self._match_text_seq("ARRAY")
            self._need("ON")
            if not self._match_texts(("ERROR",) if words is _JSON_WORDS["json_exists"] else ("EMPTY", "ERROR")):
                raise self._expected("EMPTY or ERROR")
            moment = self._prev.text.upper()
            behaviours[moment] = word
            if value is not None:
                defaults[moment] = value
        return [defaults[moment] for moment in behaviours if moment in defaults]

    def _parse_json_array_call(self) -> exp.Expr:
        """Read JSON_ARRAY(x, y NULL ON NULL) as a call that has NULLs; without these words, or with ABSENT, it has none."""
        empty = self._curr is None or self._curr.token_type == TokenType.R_PAREN
        arguments = [] if empty else self._parse_csv(self._parse_lambda)
        start = self._curr
        keeps = self._match_text_seq("NULL", "ON", "NULL")
        if keeps or self._match_text_seq("ABSENT", "ON", "NULL"):
            self._replace(start, "")
        if not keeps:
            return self._call("json_array", *arguments)
        return self._call("to_json", self._call("list_value", *(self._call("to_json", one) for one in arguments)))

    def _parse_json_array_aggregate(self) -> exp.Expr:
        """Read JSON_ARRAYAGG(x NULL ON NULL), which has NULLs if its last argument is the exp.Var NULL."""
        return self._json_aggregate("json_arrayagg", self._parse_csv(self._parse_lambda), self._curr, "ABSENT")

    def _parse_json_object_aggregate(self) -> exp.Expr:
        """Read JSON_OBJECTAGG(KEY k VALUE v ABSENT ON NULL); KEY can be left out, and VALUE can be a comma."""
        start = self._curr
        if start and start.text.upper() == "KEY" and self._next and self._next.text.upper() not in ("VALUE", ","):
            self._match_text_seq("KEY")
        key = self._parse_bitwise()
        if not self._match_text_seq("VALUE"):
            self._need_token(TokenType.COMMA, '"VALUE"')
        return self._json_aggregate("json_objectagg", [key, self._parse_lambda()], start, "NULL")

    def _json_aggregate(
        self, name: str, arguments: list[exp.Expr | None], start: Token | None, on_null: str
    ) -> exp.Expr:
        if self._match_texts(("NULL", "ABSENT")):
            on_null = self._prev.text.upper()
            self._need("ON")
            self._need("NULL")
        if start is not None and self._prev is not start and start.token_type != TokenType.R_PAREN:
            self._replace(start, "")
        return self._call(name, *arguments, exp.Var(this="NULL") if on_null == "NULL" else None)

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
            add_span(predicate, first.start, self._prev.end)
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

    def _parse_overlaps(self, this: exp.Expr | None) -> exp.Expr:
        """Read `(a, b) OVERLAPS (c, d)` behind its first period as a condition on both. Periods that touch overlap."""
        word = self._prev
        self._replace(word, "=")
        periods = [self._period(this), self._period(self._parse_bitwise())]
        (one, one_end), (two, two_end) = periods
        first, second = (exp.GTE(this=end, expression=start) for end, start in ((one_end, two), (two_end, one)))
        return self.expression(exp.Paren(this=exp.And(this=first, expression=second)))

    def _period(self, node: exp.Expr | None) -> tuple[exp.Expr, exp.Expr]:
        """Return the start and the end of a period, which is written as two times, in any order, or a time and an interval."""
        if not isinstance(node, exp.Tuple) or len(node.expressions) != 2:
            raise self._expected("a period, such as (a, b) or (a, INTERVAL '1' HOUR)")
        one, two = node.expressions
        length = two.unnest()
        if isinstance(length, exp.Interval) or (isinstance(length, exp.Neg) and isinstance(length.this, exp.Interval)):
            two = exp.Add(this=one.copy(), expression=two)
        later = exp.LTE(this=one.copy(), expression=two.copy())

        def chosen(if_later: exp.Expr, otherwise: exp.Expr) -> exp.Expr:
            return exp.Case(ifs=[exp.If(this=later.copy(), true=if_later.copy())], default=otherwise.copy())

        return chosen(one, two), chosen(two, one)

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
