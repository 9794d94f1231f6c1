"""Reads type names in Flink's and in DuckDB's spelling, and writes DuckDB's.

A type in the tree is `exp.DataType(USERDEFINED, kind=<DuckDB text>)`: sqlglot prints the text unchanged. DuckDB checks the
type.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import UnsupportedError
from sqlstream.sql.required_tokens import Reader
from sqlstream.sql.spans import add_span

# Names whose parameters DuckDB ignores.
_PLAIN = {
    **dict.fromkeys(("STRING", "VARCHAR", "CHAR", "CHARACTER", "CHAR VARYING", "CHARACTER VARYING"), "VARCHAR"),
    **dict.fromkeys(("TEXT", "BPCHAR", "NVARCHAR"), "VARCHAR"),
    **dict.fromkeys(("BYTES", "BINARY", "VARBINARY"), "BLOB"),
    "INT": "INTEGER",
    "BOOL": "BOOLEAN",
    "DOUBLE PRECISION": "DOUBLE",
}
# Texts of a fixed length.
_PADDED = {"CHAR", "CHARACTER"}
_DECIMAL = {"DECIMAL", "NUMERIC", "DEC"}
_TIMES = {"TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMPTZ", "TIMETZ", "DATETIME"}
_ZONED = {"TIMESTAMP_LTZ", "TIMESTAMPTZ", "TIMETZ"}
_FIELDS = {"ROW": "STRUCT", "STRUCT": "STRUCT", "UNION": "UNION"}
_ITEMS = {"MAP": "MAP", "TUPLE": "TUPLE"}
_UNSUPPORTED = {
    "RAW": "Write BYTES.",
    "LEGACY": "Write the type in SQL.",
}


class TypeParser(Reader):
    """Reads types wherever sqlglot reads one: in casts, before literals, in column definitions."""

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        # sqlglot asks with check_func whether a value starts with a type; _parse_typed_literal has looked before.
        if check_func or self._curr.token_type not in {*self.TYPE_TOKENS, TokenType.VAR, TokenType.IDENTIFIER}:
            return None
        start = self._curr
        self.declared: dict[str, object] = {}
        kind = self._type_text()
        data_type = exp.DataType(this=exp.DType.USERDEFINED, kind=kind)
        if kind == "VARCHAR" or (kind.startswith("TIMESTAMP") and "[" not in kind):
            data_type.meta.update(self.declared)
        add_span(data_type, start.start, self._prev.end)
        return data_type

    def _parse_typed_literal(self) -> exp.Expr | None:
        """Parse a literal such as `DATE '2024-01-01'` as a cast."""
        if self._curr.token_type not in self.TYPE_TOKENS or self._curr.token_type == TokenType.INTERVAL:
            return None
        index, start, furthest = self._index, self._curr, self.furthest
        try:
            data_type = self._try_parse(self._parse_types)
        except UnsupportedError:
            data_type = None
        self.furthest = furthest
        if not data_type or not self._match(TokenType.STRING, advance=False):
            self._retreat(index)
            return None
        text = self._parse_string()
        if text is not None:
            # The digits of a literal are those of its type.
            digits = len(text.name.partition(".")[2])
            data_type.meta["precision"] = min(digits, 6) if text.name[:1].isdigit() else None
        cast = exp.Cast(this=text, to=data_type)
        add_span(cast, start.start, self._prev.end)
        return cast

    def _type_text(self, nested: bool = False) -> str:
        """Read a type and return it in DuckDB's spelling."""
        if self._match(TokenType.IDENTIFIER):
            text = exp.to_identifier(self._prev.text, quoted=True).sql("duckdb")
        else:
            if not self._match_set(self.TYPE_TOKENS) and not self._match(TokenType.VAR):
                raise self._expected("a type")
            text = self._named_type(self._prev)
        while True:
            if self._match(TokenType.ARRAY):
                text += "[]"
            elif self._match_text_seq("MULTISET"):
                text = _multiset(text)
            elif self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET):
                text += "[]"
            elif self._curr.token_type == TokenType.L_BRACKET and self._next.token_type == TokenType.NUMBER:
                self._advance()
                text += f"[{self._type_number()}]"
                self._need_token(TokenType.R_BRACKET, '"]"')
            else:
                break
        if nested and not self._match_text_seq("NOT", "NULL"):
            self._match(TokenType.NULL)
        return text

    def _named_type(self, name: Token) -> str:
        upper = name.text.upper()
        if upper in _UNSUPPORTED:
            raise self._refused(f"the type {upper}", self._span_from(name), _UNSUPPORTED[upper])
        if upper in _TIMES:
            return self._time_type(name)
        if upper in _FIELDS:
            return self._wrapped_type(_FIELDS[upper], self._type_field)
        if upper in _ITEMS:
            return self._wrapped_type(_ITEMS[upper], lambda: self._type_text(nested=True))
        if upper in ("ARRAY", "MULTISET"):
            self._need_token(TokenType.LT, '"<"')
            element = self._type_text(nested=True)
            self._need_token(TokenType.GT, '">"')
            return f"{element}[]" if upper == "ARRAY" else _multiset(element)
        if upper == "INTERVAL":
            return self._interval_type(name)
        if upper in _DECIMAL:
            return f"DECIMAL{self._type_parameters()}"
        if upper in _PLAIN:
            varying = self._match_text_seq("VARYING")
            parameters = self._type_parameters()
            if parameters and _PLAIN[upper] == "VARCHAR":
                self.declared = {"length": int(parameters[1:-1]), "padded": upper in _PADDED and not varying}
            return _PLAIN[upper]
        return name.text + self._type_parameters()

    def _time_type(self, name: Token) -> str:
        if self._match(TokenType.L_PAREN):
            digits = self._curr
            number = int(self._type_number())
            self.declared = {"precision": min(number, 6)}
            if number > 9:
                hint = "Times are kept in microseconds: write a precision of 6 or less."
                raise self._refused(f"{name.text.upper()} with more than 9 digits", self._span_from(digits), hint)
            if number > 6:
                why = "times are kept in microseconds, 6 digits of a second"
                self._notice(f"the precision {number}", why, self._token_span(digits))
            self._match_r_paren()
        base = "TIME" if name.text.upper().startswith("TIME") and "STAMP" not in name.text.upper() else "TIMESTAMP"
        zoned = name.text.upper() in _ZONED
        if self._match_text_seq("WITH"):
            self._match_text_seq("LOCAL")
            self._need("TIME", "ZONE")
            zoned = True
        elif self._match_text_seq("WITHOUT"):
            self._need("TIME", "ZONE")
        return f"{base} WITH TIME ZONE" if zoned else base

    def _interval_type(self, name: Token) -> str:
        if self._curr and self._curr.text.upper() in self.dialect.VALID_INTERVAL_UNITS:
            while self._match_texts((*self.dialect.VALID_INTERVAL_UNITS, "TO")):
                self._type_parameters()
            raise self._refused("an interval type with units", self._span_from(name), "Write INTERVAL.")
        return "INTERVAL"

    def _wrapped_type(self, name: str, item: Callable[[], str]) -> str:
        bracketed = self._match(TokenType.LT)
        if not bracketed:
            self._need_token(TokenType.L_PAREN, '"<" or "("')
        items = [item()]
        while self._match(TokenType.COMMA):
            items.append(item())
        self._need_token(*(TokenType.GT, '">"') if bracketed else (TokenType.R_PAREN, '")"'))
        return f"{name}({', '.join(items)})"

    def _type_field(self) -> str:
        # A field may have any name, even the name of a type.
        name = self._parse_id_var(any_token=True)
        if not isinstance(name, exp.Identifier):
            raise self._expected("a field name")
        text = f"{name.sql('duckdb')} {self._type_text(nested=True)}"
        self._match(TokenType.STRING)  # Flink's comment on a field
        return text

    def _type_parameters(self) -> str:
        """Read the parentheses behind a type name: numbers, or the strings of an ENUM."""
        if not self._match(TokenType.L_PAREN):
            return ""
        parameters: list[str] = []
        while not parameters or self._match(TokenType.COMMA):
            if self._match(TokenType.STRING):
                parameters.append(exp.Literal.string(self._prev.text).sql("duckdb"))
            else:
                parameters.append(self._type_number())
        self._match_r_paren()
        return f"({', '.join(parameters)})"

    def _type_number(self) -> str:
        if not self._curr.text.isdigit():
            raise self._expected("a number")
        return self._need_token(TokenType.NUMBER, "a number").text


def _multiset(element: str) -> str:
    """Return the type of a MULTISET: from each value to how often it occurs."""
    return f"MAP({element}, INTEGER)"
