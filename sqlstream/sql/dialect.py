"""The dialect: Flink's streaming syntax over DuckDB's expressions, types and functions."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.tokenizer_core import TokenType

from sqlstream.sql.parser import StreamingParser
from sqlstream.sql.process_calls import ArgumentSQL, DescriptorSQL, ProcessCall, TableArgumentSQL
from sqlstream.sql.windows import WindowTVF

__all__ = ["StreamingSQL", "WindowTVF", "to_duckdb"]


class StreamingGenerator(DuckDBGenerator):
    """Writes a tree as it was read, where sqlglot would rewrite the SQL."""

    MULTI_ARG_DISTINCT = True
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **DuckDBGenerator.TRANSFORMS,
        exp.Array: lambda self, e: f"[{self.expressions(e, flat=True)}]",
        exp.JSONExtract: lambda self, e: self.binary(e, "->"),
        exp.JSONExtractScalar: lambda self, e: self.binary(e, "->>"),
        exp.Pow: lambda self, e: self.binary(e, "**"),
        exp.Neg: lambda self, e: _prefix("-", self.sql(e, "this")),
        exp.BitwiseNot: lambda self, e: _prefix("~", self.sql(e, "this")),
        exp.HexString: lambda self, e: f"x'{e.this}'",
        exp.BitString: lambda self, e: f"b'{e.this}'",
        exp.IgnoreNulls: lambda self, e: f"{self.sql(e, 'this')} IGNORE NULLS",
        exp.RespectNulls: lambda self, e: f"{self.sql(e, 'this')} RESPECT NULLS",
        exp.WithinGroup: lambda self, e: f"{self.sql(e, 'this')} WITHIN GROUP ({self.sql(e, 'expression').strip()})",
        WindowTVF: lambda self, e: _window_sql(self, e),
        ProcessCall: lambda self, e: _process_sql(self, e),
        ArgumentSQL: lambda self, e: (
            (f"{self.sql(e, 'name')} => " if e.args.get("name") else "") + self.sql(e, "value")
        ),
        DescriptorSQL: lambda self, e: f"DESCRIPTOR({self.expressions(e, flat=True)})",
        TableArgumentSQL: lambda self, e: _table_argument_sql(self, e),
    }

    def interval_sql(self, expression: exp.Interval) -> str:
        unit = self.sql(expression, "unit")
        return f"INTERVAL {self.sql(expression, 'this')}{' ' if unit else ''}{unit}"

    def extract_sql(self, expression: exp.Extract) -> str:
        return f"EXTRACT({self.sql(expression, 'this')} FROM {self.sql(expression, 'expression')})"


def _prefix(operator: str, operand: str) -> str:
    # DuckDB would read -~ and -- as other operators.
    return f"{operator}{' ' if operand[0] in '-~+' else ''}{operand}"


def _window_sql(self: StreamingGenerator, window: WindowTVF) -> str:
    data = self.sql(window, "this")
    if isinstance(window.this, exp.Table):
        data = f"TABLE {data}"
    if keys := self.expressions(window, key="partition_by", flat=True):
        data += f" PARTITION BY ({keys})"
    intervals = self.expressions(window, key="intervals", flat=True)
    offset = self.sql(window, "offset")
    alias = self.sql(window, "alias")
    arguments = f"{data}, DESCRIPTOR({self.sql(window, 'time_column')}), {intervals}"
    call = f"{window.args['kind']}({arguments}{', ' if offset else ''}{offset})"
    return call + (f" AS {alias}" if alias else "")


def _process_sql(self: StreamingGenerator, call: ProcessCall) -> str:
    alias = self.sql(call, "alias")
    written = f"{self.sql(call, 'this')}({self.expressions(call, flat=True)})"
    return written + (f" AS {alias}" if alias else "")


def _table_argument_sql(self: StreamingGenerator, argument: TableArgumentSQL) -> str:
    keys = self.expressions(argument, key="partition_by", flat=True)
    order = self.expressions(argument, key="order_by", flat=True)
    written = f"TABLE {self.sql(argument, 'this')}"
    written += f" PARTITION BY ({keys})" if keys else ""
    written += f" ORDER BY ({order})" if order else ""
    return written + (" BROADCAST" if argument.args.get("broadcast") else "")


class StreamingSQL(DuckDB):
    """Flink's streaming syntax over DuckDB's expressions."""

    class Tokenizer(DuckDB.Tokenizer):
        """DuckDB's tokens, with Flink's quotes for names and literals."""

        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
        BIT_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("b'", "'"), ("B'", "'")]
        UNICODE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("u&'", "'"), ("U&'", "'")]
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **DuckDB.Tokenizer.KEYWORDS,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
        }
        # None of them swallows the rest of its statement.
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = StreamingParser
    Generator = StreamingGenerator


def to_duckdb(node: exp.Expr) -> str:
    """Return a bound expression or query as DuckDB SQL."""
    return node.sql(dialect=StreamingSQL, comments=False, unsupported_level=ErrorLevel.IGNORE)
