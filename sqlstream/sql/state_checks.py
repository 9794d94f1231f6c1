"""CREATE STATE CHECK and DROP STATE CHECK: conditions on the state of jobs."""

from __future__ import annotations

from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import Span
from sqlstream.sql.materialized_tables import MaterializedTableParser
from sqlstream.sql.nodes import CreateStateCheck, DropStateCheck, Name, OptionValue

# The options of a check, with their defaults.
EVERY, ACTION = "every", "action"
STATE_CHECK_OPTIONS: Final = {EVERY: "1 batch", ACTION: "stop"}


class StateCheckParser(MaterializedTableParser):
    """Reads statements about state checks."""

    def _is_state_check(self) -> bool:
        """Return whether [OR REPLACE] STATE CHECK follows the current token, the first word of a statement."""
        words = [token.text.upper() for token in self._tokens[self._index + 1 : self._index + 5]]
        return words[:2] == ["STATE", "CHECK"] or words == ["OR", "REPLACE", "STATE", "CHECK"]

    def _parse_create_state_check(self) -> CreateStateCheck:
        start = self._curr
        self._need("CREATE")
        replace = bool(self._match_text_seq("OR", "REPLACE"))
        self._need("STATE", "CHECK")
        if_not_exists = self._if_not_exists(replace)
        name = self._new_name("a state check")
        self._need("ON")
        job, operator = self._parse_checked()
        options = self._options() if self._match(TokenType.WITH) else {}
        self._need("AS")
        query = self._parse_raw_query()
        return CreateStateCheck(self._span_from(start), name, job, operator, query, options, if_not_exists, replace)

    def _parse_drop_state_check(self) -> DropStateCheck:
        start = self._curr
        self._need("DROP")
        self._need("STATE", "CHECK")
        if_exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self._name("the name of a state check")
        return DropStateCheck(self._span_from(start), name, if_exists)

    def _parse_checked(self) -> tuple[Name, Name | None]:
        """Read `job`, or `job.operator`."""
        job = self._parse_name_part("the name of a job")
        return job, self._parse_name_part("the name of an operator") if self._match(TokenType.DOT) else None

    def _parse_name_part(self, what: str) -> Name:
        token = self._curr
        identifier = self._parse_id_var(any_token=False)
        if identifier is None:
            raise self._expected(what)
        return Name(identifier.name, self._token_span(token))

    def _parse_raw_query(self) -> Span:
        """Read a query in parentheses and return its position. It is DuckDB SQL, like a state query."""
        opening = self._need_token(TokenType.L_PAREN, '"("')
        first: Token | None = self._curr
        depth = 1
        while self._curr:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            if not depth:
                break
            self._advance()
        if depth:
            raise self._wrong('this "(" is not closed', self._token_span(opening))
        if self._curr is first:
            raise self._expected("a SELECT whose rows break the check")
        self._advance()
        return Span(self.source, opening.end + 1, self._prev.start)


def option_of(options: dict[str, OptionValue], name: str) -> str:
    """Return the value of an option of a check, or its default."""
    return options[name].value if name in options else STATE_CHECK_OPTIONS[name]
