"""MIGRATE STATE and DESCRIBE STATE: the state tables of an operator, and queries that make them for an upgraded job."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import ParseError, SourceText, Span
from sqlstream.sql.nodes import DescribeState, MigrateState, Statement, head
from sqlstream.sql.state_checks import StateCheckParser

_USAGE = "Write MIGRATE STATE job.operator AS SELECT .."


class MigrationParser(StateCheckParser):
    """Reads statements about the state tables of operators."""

    def _parse_migrate_state(self) -> MigrateState:
        start = self._curr
        self._need("MIGRATE")
        self._need("STATE")
        job = self._parse_name_part("the name of a job")
        if not self._match(TokenType.DOT):
            raise self._expected('"." and the name of an operator', _USAGE)
        operator = self._parse_name_part("the name of an operator")
        table = self._parse_name_part("the name of a state table") if self._match(TokenType.DOT) else None
        if not self._match_text_seq("AS"):
            raise self._expected("AS", _USAGE)
        if not self._curr:
            raise self._expected("a SELECT over the state that there is")
        first = self._curr
        while self._curr:
            self._advance()
        return MigrateState(self._span_from(start), job, operator, table, self._span_from(first))

    def _parse_described_state(self, start: Token) -> DescribeState:
        """Read what follows DESCRIBE STATE."""
        job, operator = self._parse_checked()
        return DescribeState(self._span_from(start), job, operator)


def only_migrations(source: SourceText, statements: Sequence[Statement]) -> tuple[MigrateState, ...]:
    """Return the statements of a migration file. Raises ParseError if it has others, or none."""
    for statement in statements:
        if not isinstance(statement, MigrateState):
            raise ParseError("a file of migrations has MIGRATE STATE statements only", head(statement), hint=_USAGE)
    if not statements:
        raise ParseError("there is no MIGRATE STATE statement", Span(source, 0, 0), hint=_USAGE)
    return tuple(s for s in statements if isinstance(s, MigrateState))
