"""ALTER TABLE, read word by word so that errors are exact."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.sql.ddl import DefinitionParser, TableBody
from sqlstream.sql.nodes import (
    AddParts,
    AlterTable,
    DropColumns,
    DropPart,
    ModifyParts,
    Name,
    RenameColumn,
    RenameTable,
    ResetTableOptions,
    SetTableOptions,
    TableChange,
    TableParts,
)

_PARTITIONS = "Leave it out: a folder of a partition is one as soon as files are in it."


class AlterationParser(DefinitionParser):
    """Reads ALTER TABLE."""

    def _parse_alter_table(self) -> AlterTable | None:
        """Read ALTER TABLE; return None for one about the distribution, of which there is only a notice."""
        start = self._curr
        self._need("ALTER")
        self._need_token(TokenType.TABLE, "TABLE")
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._relation_name("the name of a table")
        change = self._parse_table_change(start)
        return None if change is None else AlterTable(self._span_from(start), name, change, if_exists)

    def _parse_table_change(self, start: Token) -> TableChange | None:
        if self._match_texts(("ADD", "MODIFY")):
            adds = self._prev.text.upper() == "ADD"
            self._refuse_partition()
            if self._match_text_seq("DISTRIBUTION"):
                self._skip_new_distribution(start)
                return None
            parts = self._parse_parts()
            return AddParts(parts) if adds else ModifyParts(parts)
        if self._match_text_seq("DROP"):
            return self._parse_dropped_part(start)
        if self._match_text_seq("RENAME"):
            if self._match_text_seq("TO"):
                return RenameTable(self._new_relation("a table"))
            column = self._name("TO, or the name of a column")
            self._need("TO")
            return RenameColumn(column, self._name("the new name of the column"))
        if self._match(TokenType.SET):
            return SetTableOptions(self._options())
        if self._match_text_seq("RESET"):
            return ResetTableOptions(self._option_names())
        raise self._expected("ADD, MODIFY, DROP, RENAME, SET or RESET")

    def _parse_parts(self) -> TableParts:
        """Read columns with their positions, a watermark and a primary key: one of them, or several in parentheses."""
        body, positions = TableBody(), dict[str, Name | None]()
        several = self._match(TokenType.L_PAREN)
        while True:
            count = len(body.columns)
            self._parse_body_part(body)
            for column in body.columns[count:]:
                if self._match_text_seq("FIRST"):
                    positions[column.name.text] = None
                elif self._match_text_seq("AFTER"):
                    positions[column.name.text] = self._name("the name of a column")
            if not (several and self._match(TokenType.COMMA)):
                break
        if several:
            self._need_token(TokenType.R_PAREN, '"," or ")"')
        return TableParts(tuple(body.columns), body.watermark, body.primary_key, positions)

    def _parse_dropped_part(self, start: Token) -> TableChange | None:
        first = self._curr
        self._refuse_partition()
        if self._match_text_seq("DISTRIBUTION"):
            self._skip_new_distribution(start)
            return None
        if self._match(TokenType.PRIMARY_KEY):
            return DropPart("PRIMARY KEY", self._span_from(first))
        if self._match(TokenType.CONSTRAINT):
            self._name("the name of a constraint")
            # A table has no other constraint.
            return DropPart("PRIMARY KEY", self._span_from(first))
        if self._match_text_seq("WATERMARK"):
            return DropPart("WATERMARK", self._span_from(first))
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            return DropColumns(self._names())
        return DropColumns((self._name("PRIMARY KEY, WATERMARK, or the name of a column"),))

    def _option_names(self) -> tuple[Name, ...]:
        self._need_token(TokenType.L_PAREN, '"("')
        names = [self._string("an option in quotes")]
        while self._match(TokenType.COMMA):
            names.append(self._string("an option in quotes"))
        self._need_token(TokenType.R_PAREN, '"," or ")"')
        return tuple(names)

    def _skip_new_distribution(self, start: Token) -> None:
        """Skip what follows DISTRIBUTION, which says how a store spreads rows."""
        while self._curr:
            self._advance()
        self._notice("DISTRIBUTION", "rows are spread over buckets by their keys", self._span_from(start))

    def _refuse_partition(self) -> None:
        tokens = self._tokens[self._index : self._index + 5]
        words = [token.text.upper() for token in tokens]
        for phrase in (
            ["PARTITION", "("],
            ["IF", "EXISTS", "PARTITION", "("],
            ["IF", "NOT", "EXISTS", "PARTITION", "("],
        ):
            if words[: len(phrase)] == phrase:
                span = self._token_span(tokens[0]).to(self._token_span(tokens[len(phrase) - 2]))
                raise self._refused("PARTITION in ALTER TABLE", span, _PARTITIONS)
