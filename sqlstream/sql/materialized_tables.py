"""CREATE MATERIALIZED TABLE and DROP MATERIALIZED TABLE."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from sqlstream.sql.alterations import AlterationParser
from sqlstream.sql.nodes import CreateTable, CreateTableAs, Drop, Freshness
from sqlstream.units import parse_duration

_UNITS = ("SECOND", "SECONDS", "MINUTE", "MINUTES", "HOUR", "HOURS", "DAY", "DAYS")


class MaterializedTableParser(AlterationParser):
    """Reads statements about materialized tables: tables with the job of a query."""

    def _is_materialized(self) -> bool:
        """Return whether a statement creates or drops a materialized table."""
        words = [token.text.upper() for token in self._tokens[self._index + 1 : self._index + 4]]
        return words[:1] == ["MATERIALIZED"] or words == ["OR", "ALTER", "MATERIALIZED"]

    def _parse_create_materialized(self) -> CreateTableAs:
        start = self._curr
        self._need("CREATE")
        alters = bool(self._match_text_seq("OR", "ALTER"))
        self._need("MATERIALIZED")
        self._need_token(TokenType.TABLE, "TABLE")
        table = self._parse_create_table(start, temporary=False, replace=alters)
        if not isinstance(table, CreateTable):
            # The table has read the query, too.
            return table
        freshness = self._parse_freshness()
        self._skip_modes()
        if not self._match(TokenType.ALIAS):
            raise self._expected("FRESHNESS, REFRESH_MODE, or AS and a query")
        first = self._curr
        query = self._query()
        return CreateTableAs(self._span_from(start), table, query, self._span_from(first), freshness)

    def _parse_freshness(self) -> Freshness | None:
        start = self._curr
        if not self._match_text_seq("FRESHNESS"):
            return None
        self._need_token(TokenType.EQ, '"="')
        self._need("INTERVAL")
        if not (self._match(TokenType.STRING) or self._match(TokenType.NUMBER)):
            raise self._expected("a number")
        number = self._prev
        if not number.text.strip().isdecimal() or not int(number.text):
            raise self._wrong("a freshness is a whole number from 1 on", self._token_span(number))
        if not self._match_texts(_UNITS):
            raise self._expected("SECOND, MINUTE, HOUR or DAY")
        duration = parse_duration(f"{int(number.text)} {self._prev.text.lower().removesuffix('s')}")
        span = self._span_from(start)
        why = "the rows are those of the newest batch; SET 'execution.checkpointing.interval' makes batches rarer"
        self._notice("FRESHNESS", why, span)
        return Freshness(duration, span)

    def _skip_modes(self) -> None:
        """Skip REFRESH_MODE and START_MODE, of which a job has but one."""
        if self._match_text_seq("REFRESH_MODE"):
            self._need_token(TokenType.EQ, '"="')
            if not self._match_texts(("CONTINUOUS", "FULL")):
                raise self._expected("CONTINUOUS or FULL")
            mode = self._prev
            if mode.text.upper() == "FULL":
                why = "a job computes the same rows from what is new"
                self._notice("REFRESH_MODE", why, self._token_span(mode))
        if self._match_text_seq("START_MODE"):
            self._need_token(TokenType.EQ, '"="')
            first = self._curr
            if not self._match_texts(("FROM_BEGINNING", "RESUME_OR_FROM_BEGINNING")):
                while self._curr and self._curr.token_type != TokenType.ALIAS:
                    self._advance()
                hint = "Leave it out, and set 'scan.startup.mode' of the table that the query reads."
                raise self._refused("START_MODE", self._span_from(first), hint)

    def _parse_drop_materialized(self) -> Drop:
        start = self._curr
        self._need("DROP")
        self._need("MATERIALIZED")
        self._need_token(TokenType.TABLE, "TABLE")
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._relation_name("the name of a table")
        why = "its job, and the rows that this wrote, stay until the command sqlstream drop"
        self._notice("MATERIALIZED", why, self._span_from(start))
        return Drop(self._span_from(start), "TABLE", name, if_exists, temporary=False)
