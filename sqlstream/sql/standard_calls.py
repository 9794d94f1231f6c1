"""Calls whose arguments standard SQL separates by words: CAST(x AS t), EXTRACT(YEAR FROM ts), SUBSTRING(s FROM 2 FOR 3)."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from sqlstream.sql.flink_calls import FlinkCallParser


class StandardCallParser(FlinkCallParser):
    """Reads standard SQL's calls with words as calls of DuckDB's functions with lists of arguments."""

    def _parse_cast_call(self, kind: type[exp.Cast] | type[exp.TryCast]) -> exp.Expr:
        value = self._parse_assignment()
        self._need("AS")
        to = self._parse_types()
        if to is None:
            raise self._expected("a type")
        return self.expression(kind(this=value, to=to))

    def _parse_extract_call(self) -> exp.Expr:
        part = self._parse_var_or_string(upper=True)
        self._need("FROM")
        return self.expression(exp.Extract(this=part, expression=self._parse_bitwise()))

    def _parse_position_call(self) -> exp.Expr:
        needle = self._parse_bitwise()
        if not self._match(TokenType.IN):
            return self._rest_of_call("position", needle)
        return self._call("strpos", self._parse_bitwise(), needle)

    def _parse_substring_call(self) -> exp.Expr:
        text = self._parse_bitwise()
        if not self._match(TokenType.FROM):
            return self._rest_of_call("substring", text)
        start = self._parse_bitwise()
        return self._call("substring", text, start, *([self._parse_bitwise()] if self._match(TokenType.FOR) else []))

    def _parse_trim_call(self) -> exp.Expr:
        name = "trim"
        side = self._match_texts(("BOTH", "LEADING", "TRAILING"))
        if side:
            name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[self._prev.text.upper()]
        what = self._parse_bitwise()
        if self._match(TokenType.FROM):
            return self._call(name, self._parse_bitwise(), *([what] if what else []))
        return self._rest_of_call(name, what)

    def _parse_overlay_call(self) -> exp.Expr:
        text = self._parse_bitwise()
        if not self._match_text_seq("PLACING"):
            return self._rest_of_call("overlay", text)
        replacement = self._parse_bitwise()
        self._need("FROM")
        start = self._parse_bitwise()
        length = [self._parse_bitwise()] if self._match(TokenType.FOR) else []
        return self._call("overlay", text, replacement, start, *length)
