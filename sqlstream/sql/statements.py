"""Parses text to statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from sqlstream.errors import ParseError, SourceText, Span, StatementWarning, UnsupportedError
from sqlstream.secrets import remember_script
from sqlstream.sql.dialect import StreamingSQL, to_duckdb
from sqlstream.sql.lexing import refuse_unread, tokenize
from sqlstream.sql.nodes import (
    ColumnDef,
    CreateFunction,
    CreateSavepoint,
    CreateStateCheck,
    CreateTable,
    CreateTableAs,
    CreateView,
    Describe,
    DescribeState,
    Drop,
    DropFunction,
    DropSavepoint,
    DropStateCheck,
    Explain,
    Insert,
    MigrateState,
    Name,
    OptionValue,
    PartitionValue,
    Reset,
    Select,
    SetOption,
    Show,
    Statement,
    StatementSet,
    WatermarkDef,
)
from sqlstream.sql.required_tokens import Failure
from sqlstream.sql.show import ShowParser
from sqlstream.sql.unsupported import DIRECTORY, STATEMENTS, UPSERT
from sqlstream.sql.variables import with_variables

__all__ = [
    "ColumnDef",
    "CreateFunction",
    "CreateSavepoint",
    "CreateStateCheck",
    "CreateTable",
    "CreateView",
    "Describe",
    "DescribeState",
    "Drop",
    "DropFunction",
    "DropSavepoint",
    "DropStateCheck",
    "Explain",
    "Insert",
    "MigrateState",
    "Name",
    "OptionValue",
    "Reset",
    "Select",
    "SetOption",
    "Show",
    "Statement",
    "StatementSet",
    "WatermarkDef",
    "parse_expression",
    "parse_script",
    "to_duckdb",
]
T = TypeVar("T")
_DIALECT = StreamingSQL()
_QUERY_STARTS = {
    *(TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN, TokenType.TABLE),
    TokenType.VALUES,
}
_DETAILS = ("CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
_STAGES = ("AST", "LOGICAL", "OPTIMIZED", "PHYSICAL", "STATE")
# The beginnings of a statement set; END ends it.
_SETS = (("EXECUTE", "STATEMENT", "SET", "BEGIN"), ("BEGIN", "STATEMENT", "SET"))
_OPTION_KEY = re.compile(r"[\w.-]+")


def parse_script(source: SourceText, notices: list[StatementWarning] | None = None) -> list[Statement]:
    """Return the statements of a text, after its variables of the environment are replaced.

    Notices about words of Flink without an effect are added to `notices`; ADD JAR and LOAD MODULE are nothing but notices.
    Raises ParseError, BindError for a variable that is not set, or UnsupportedError for SQL that we do not run.
    """
    remember_script(source.text)
    source = with_variables(source)
    remember_script(source.text)
    pieces: list[list[Token]] = [[]]
    for token in tokenize(source, _DIALECT):
        if token.token_type == TokenType.SEMICOLON:
            pieces.append([])
        else:
            pieces[-1].append(token)
    waiting = iter([piece for piece in pieces if piece])
    reading = _ScriptReader(source, [] if notices is None else notices)
    statements = [reading.statement_set(piece, waiting) or reading.statement(piece) for piece in waiting]
    refuse_unread(source, reading.hints_read)
    return [statement for statement in statements if statement is not None]


class _ScriptReader:
    """Reads the statements of a script, one after the other."""

    def __init__(self, source: SourceText, notices: list[StatementWarning]):
        self.source, self.notices = source, notices
        # The offsets of the hints OPTIONS that were read.
        self.hints_read = set[int]()

    def statement(self, tokens: list[Token]) -> Statement | None:
        """Return the statement of some tokens; None for one that is nothing but a notice."""
        parser = _StatementParser(self.source, tokens)
        parser.hints_read, parser.notices = self.hints_read, self.notices
        return parser.run(parser.script_statement)

    def statement_set(self, first: list[Token], rest: Iterator[list[Token]]) -> StatementSet | None:
        """Return the statement set that begins with `first`, and take its statements from `rest`; None if none begins."""
        words = [token.text.upper() for token in first[:4] if token.token_type != TokenType.STRING]
        head = next((h for h in _SETS if words[: len(h)] == list(h)), None)
        if head is None:
            return None
        opening = Span(self.source, first[0].start, first[len(head) - 1].end + 1)
        inserts: list[Insert] = []
        pieces = chain([first[len(head) :]] if first[len(head) :] else [], rest)
        for piece in pieces:
            if piece[0].text.upper() == "END":
                if len(piece) > 1:
                    raise ParseError('";" is missing after END', Span(self.source, piece[1].start, piece[1].end + 1))
                if not inserts:
                    raise ParseError("a statement set without INSERT", opening)
                return StatementSet(Span(self.source, first[0].start, piece[0].end + 1), tuple(inserts))
            statement = self.statement(piece)
            if not isinstance(statement, Insert):
                span = Span(self.source, piece[0].start, piece[-1].end + 1)
                raise ParseError("a statement set holds INSERT statements only", span)
            inserts.append(statement)
        raise ParseError("a statement set without END", opening, hint="Write END; after its last INSERT.")


def describes_state(source: SourceText) -> bool:
    """Return whether a text, which may be any DuckDB SQL, begins with DESCRIBE STATE and a name, also behind a comment.

    >>> [describes_state(SourceText("a", sql)) for sql in ("-- what?\\nDESC STATE a.b", "DESCRIBE state; SELECT 1")]
    [True, False]
    """
    words = _first_words(source)
    return len(words) == 3 and words[0] in ("DESC", "DESCRIBE") and words[1] == "STATE"


def shows_what_scripts_show(source: SourceText) -> bool:
    """Return whether a text begins with a SHOW that only scripts have. For DuckDB the next word would be a table.

    >>> [shows_what_scripts_show(SourceText("a", sql)) for sql in ("SHOW state checks", "SHOW CREATE TABLE t", "SHOW checks")]
    [True, True, False]
    """
    match _first_words(source):
        case ["SHOW", "SAVEPOINTS"] | ["SHOW", "STATE", "CHECKS"] | ["SHOW", "CREATE", _]:
            return True
    return False


def _first_words(source: SourceText) -> list[str]:
    """Return the first words of a text, at most three, in upper case; none if the text cannot be tokenized."""
    try:
        tokens = tokenize(source, _DIALECT)[:3]
    except (ParseError, UnsupportedError):
        return []
    return [token.text.upper() for token in tokens if token.token_type != TokenType.SEMICOLON]


def parse_expression(source: SourceText) -> exp.Expression:
    """Return the tree of a text that is one scalar expression. Raises ParseError or UnsupportedError."""
    parser = _StatementParser(source, tokenize(source, _DIALECT))
    return parser.run(parser._scalar)


class _StatementParser(ShowParser):
    """Reads one statement from its tokens."""

    def __init__(self, source: SourceText, tokens: list[Token]):
        super().__init__(dialect=_DIALECT)
        self.source = source
        self.sql = source.text
        self.hints_read = set()
        self.notices = []
        self._chunks = [tokens]
        self._advance_chunk()

    def run(self, parse: Callable[[], T]) -> T:
        """Call a parser method, which must read all tokens. Raises ParseError instead of sqlglot's errors."""
        try:
            result = parse()
            if self._curr:
                raise self._expected(None)
        except Failure as failure:
            furthest = self.furthest if self.furthest and self.furthest.start > failure.start else failure
            raise furthest.error from None
        except (SqlglotError, AttributeError, TypeError, ValueError):
            # Some text makes sqlglot fail with other errors, such as the struct {: 1}.
            raise self._expected(None).error from None
        except RecursionError:
            raise ParseError("the statement is nested too deeply", self._token_span(self._prev)) from None
        return result

    def script_statement(self) -> Statement | None:
        """Read a statement; return None for one of which there is only a notice, such as ADD JAR."""
        start = self._curr
        if self._alters_table():
            return self._parse_alter_table()
        if self._match_text_seq("ADD", "JAR"):
            self._string("a path in quotes")
            why = "connectors are built in, and functions are in Python, under udfs/"
            self._notice("ADD JAR", why, self._span_from(start))
            return None
        if self._at_modules():
            self._parse_modules(start)
            return None
        return self.statement()

    def _at_modules(self) -> bool:
        words = [token.text.upper() for token in self._tokens[self._index : self._index + 2]]
        return words in (["LOAD", "MODULE"], ["UNLOAD", "MODULE"], ["USE", "MODULES"])

    def _parse_modules(self, start: Token) -> None:
        """Read LOAD MODULE, UNLOAD MODULE or USE MODULES: all functions are in the module core, whose functions come first."""
        self._advance()
        what = f"{start.text.upper()} {self._curr.text.upper()}"
        self._advance()
        names = [self._name("the name of a module")]
        while what == "USE MODULES" and self._match(TokenType.COMMA):
            names.append(self._name("the name of a module"))
        if what == "LOAD MODULE" and self._match(TokenType.WITH):
            self._options()
        core_first = names[0].text.lower() == "core"
        if core_first if what == "UNLOAD MODULE" else what == "USE MODULES" and not core_first:
            hint = "Leave it out: the functions of the module core are always there, and come first."
            raise self._refused(f"{what} {names[0].text}", self._span_from(start), hint)
        why = "all functions are in the module core; a query that calls one of another module is refused"
        self._notice(what, why, self._span_from(start))

    def _alters_table(self) -> bool:
        words = [token.text.upper() for token in self._tokens[self._index : self._index + 2]]
        return words == ["ALTER", "TABLE"]

    def statement(self) -> Statement:
        self._refuse_statement()
        match self._curr.text.upper() if self._curr.token_type != TokenType.STRING else "":
            case "CREATE" if self._is_state_check():
                return self._parse_create_state_check()
            case "DROP" if self._is_state_check():
                return self._parse_drop_state_check()
            case "CREATE" if self._is_materialized():
                return self._parse_create_materialized()
            case "DROP" if self._is_materialized():
                return self._parse_drop_materialized()
            case "CREATE":
                return self._parse_definition()
            case "DROP":
                return self._parse_drop_relation()
            case "MIGRATE":
                return self._parse_migrate_state()
            case "SET":
                return self._parse_set_option()
            case "RESET":
                return self._parse_reset_option()
            case "SHOW":
                return self._parse_show_what()
            case "DESCRIBE" | "DESC":
                return self._parse_describe_table()
            case "EXPLAIN":
                return self._parse_explain_statement()
            case "EXECUTE" if self._next and self._next.text.upper() == "INSERT":
                self._need("EXECUTE")
                return self._parse_insert_into()
            case "INSERT":
                return self._parse_insert_into()
            case "USE":
                return self._parse_use_database()
            case _ if self._curr.token_type in _QUERY_STARTS:
                start = self._curr
                query = self._query()
                return Select(self._span_from(start), query)
        raise self._expected("a statement")

    def _refuse_statement(self) -> None:
        first = self._index
        tokens = self._tokens[first : first + 4]
        words = [token.text.upper() for token in tokens if token.token_type != TokenType.STRING]
        if words[:2] == ["CREATE", "TEMP"]:
            words[1] = "TEMPORARY"
        for count in range(len(words), 0, -1):
            phrase = " ".join(words[:count])
            if phrase in STATEMENTS:
                span = self._token_span(tokens[0]).to(self._token_span(tokens[count - 1]))
                raise self._refused(phrase, span, STATEMENTS[phrase])

    def _parse_set_option(self) -> SetOption | Show:
        start = self._curr
        self._need("SET")
        if not self._curr:
            return Show(self._span_from(start), "OPTIONS")
        key = self._parse_setting("an option")
        if not _OPTION_KEY.fullmatch(key.text):
            raise self._wrong("the name of an option has letters, digits, dots and dashes", key.span)
        self._need_token(TokenType.EQ, '"="')
        value = self._parse_setting("a value")
        return SetOption(self._span_from(start), key, OptionValue(value.text, value.span, key.span))

    def _parse_reset_option(self) -> Reset:
        start = self._curr
        self._need("RESET")
        key = self._parse_setting("an option") if self._curr else None
        return Reset(key.span if key else self._span_from(start), key)

    def _parse_explain_statement(self) -> Explain:
        start = self._curr
        self._need("EXPLAIN")
        stage = "PLAN"
        if self._match_texts(_STAGES):
            stage = self._prev.text.upper()
        elif self._match_text_seq("PLAN"):
            self._need("FOR")
        else:
            self._skip_details()
        if not self._curr:
            raise self._expected("an INSERT or a query")
        at = self._curr
        statement = self.statement()
        if not isinstance(statement, Insert | Select | CreateTableAs):
            hint = "EXPLAIN takes an INSERT, a query, or CREATE TABLE .. AS."
            raise self._wrong(f"{at.text.upper()} has no plan", self._token_span(at), hint)
        return Explain(self._span_from(start), stage.lower(), statement)

    def _skip_details(self) -> None:
        """Skip what EXPLAIN is asked to add in Flink."""
        while self._match_texts(_DETAILS):
            detail = self._token_span(self._prev)
            self._notice(f"the detail {detail.text.upper()}", "EXPLAIN says all that it knows", detail)
            if not self._match(TokenType.COMMA):
                return

    def _parse_setting(self, what: str) -> Name:
        """Read one side of SET: a string, or bare text, such as `1 min` or `pipeline.name`."""
        if self._match(TokenType.STRING):
            return Name(self._prev.text, self._token_span(self._prev))
        first = self._curr
        while self._curr and self._curr.token_type != TokenType.EQ:
            self._advance()
        if self._curr is first:
            raise self._expected(what)
        span = self._span_from(first)
        return Name(span.text, span)

    def _parse_insert_into(self) -> Insert:
        start = self._curr
        self._need("INSERT")
        overwrites = bool(self._match_text_seq("OVERWRITE"))
        if not overwrites:
            self._need("INTO")
        elif self._curr and self._next and self._next.token_type == TokenType.STRING:
            raise self._refused("INSERT OVERWRITE of a folder", self._token_span(self._curr), DIRECTORY)
        elif self._curr and self._next and self._next.token_type == TokenType.VAR:
            # Hive's spelling.
            self._match(TokenType.TABLE)
        target = self._relation_name("the name of a table")
        options = self._table_options()
        partition = self._parse_partition_values() if self._match_text_seq("PARTITION") else ()
        columns = None
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type not in _QUERY_STARTS:
            columns = self._names()
        values = self._curr.token_type == TokenType.VALUES
        query = self._query()
        clause = self._curr
        if self._match_text_seq("ON", "CONFLICT") or self._match_text_seq("ON", "DUPLICATE", "KEY"):
            span = self._span_from(clause)
            raise self._refused(span.text.upper(), span, UPSERT)
        appends = values and isinstance(query, exp.Select) and not overwrites
        return Insert(self._span_from(start), target, columns, query, appends, options, partition, overwrites)

    def _parse_partition_values(self) -> tuple[PartitionValue, ...]:
        self._need_token(TokenType.L_PAREN, '"("')
        values: list[PartitionValue] = []
        while not values or self._match(TokenType.COMMA):
            column = self._name("the name of a column")
            self._refuse_twice(column, [value.column for value in values], "column")
            if self._match(TokenType.EQ):
                values.append(PartitionValue(column, self._scalar()))
            else:
                hint = "Leave it out of PARTITION, and select the value as a column."
                raise self._refused("a partition without a value", column.span, hint)
        self._need_token(TokenType.R_PAREN, '"," or ")"')
        return tuple(values)
