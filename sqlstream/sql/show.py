"""SHOW, DESCRIBE and RESET."""

from __future__ import annotations

from typing import cast

from sqlglot.tokenizer_core import TokenType

from sqlstream.sql.migrations import MigrationParser
from sqlstream.sql.nodes import Describe, DescribeState, Show, ShowKind

_NOT_DESCRIBED = ("CATALOG", "CONNECTION", "DATABASE", "JOB", "MODEL")
_LISTS = ("TABLES", "VIEWS", "FUNCTIONS", "JOBS", "SAVEPOINTS", "CATALOGS", "DATABASES", "MODULES", "JARS")
# Lists without a pattern.
_WHOLE = ("JOBS", "SAVEPOINTS", "CATALOGS", "DATABASES", "MODULES", "JARS")


class ShowParser(MigrationParser):
    """Reads SHOW and DESCRIBE."""

    def _parse_show_what(self) -> Show:
        start = self._curr
        self._need("SHOW")
        if self._next and self._next.text.upper() == "MODULES":
            self._match_text_seq("FULL")
        if self._match_texts(_LISTS):
            kind = cast(ShowKind, self._prev.text.upper())
            like = self._parse_pattern() if kind not in _WHOLE else None
            return Show(self._span_from(start), kind, None, like)
        if self._match_text_seq("CURRENT"):
            if not self._match_texts(("CATALOG", "DATABASE")):
                raise self._expected("CATALOG or DATABASE")
            return Show(self._span_from(start), cast(ShowKind, f"CURRENT {self._prev.text.upper()}"))
        if self._match_text_seq("STATE", "CHECKS"):
            return Show(self._span_from(start), "STATE CHECKS")
        if self._match_texts(("COLUMNS",)):
            if not self._match(TokenType.FROM):
                self._need("IN")
            name = self._relation_name("the name of a table")
            like = self._parse_pattern()
            return Show(self._span_from(start), "COLUMNS", name, like)
        if self._match_text_seq("CREATE"):
            if not self._match_texts(("TABLE", "VIEW")):
                raise self._expected("TABLE or VIEW")
            what = self._prev.text.upper()
            name = self._relation_name(f"the name of a {what.lower()}")
            return Show(self._span_from(start), cast(ShowKind, f"CREATE {what}"), name)
        raise self._expected(
            f"one of {', '.join(_LISTS)}, STATE CHECKS, COLUMNS FROM, CREATE TABLE and CREATE VIEW",
            "State and results are listed by SHOW ALL TABLES in the command `sqlstream query`.",
        )

    def _parse_pattern(self) -> str | None:
        return self._string("a pattern in quotes").text if self._match(TokenType.LIKE) else None

    def _parse_describe_table(self) -> Describe | DescribeState:
        start = self._curr
        self._match_texts(("DESCRIBE", "DESC"))
        # A table may have this name; then nothing follows it.
        if self._curr and self._next and self._match_texts(("STATE",)):
            return self._parse_described_state(start)
        if self._curr and self._next and self._match_texts(("FUNCTION",)):
            name = self._name("the name of a function")
            return Describe(self._span_from(start), name, function=True)
        if self._curr and self._next and self._match_texts(_NOT_DESCRIBED):
            span = self._span_from(start)
            hint = (
                "Use the command `sqlstream jobs`." if span.text.upper().endswith("JOB") else "DESCRIBE takes a table."
            )
            raise self._refused(span.text.upper(), span, hint)
        name = self._relation_name("the name of a table")
        return Describe(self._span_from(start), name)
