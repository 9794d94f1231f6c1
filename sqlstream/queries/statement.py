"""The text of a state query: whether it may run, the relations that it names, and its time travels.

DuckDB tokenizes and parses it, so nothing here can understand a statement differently from what runs. The kind of a statement
is not enough: `WITH x AS (COPY .. TO 'file') ..` is a SELECT to DuckDB, and writes the file. Hence the whole syntax tree is
checked against a list of what it may contain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb

from sqlstream.duck.errors import translate
from sqlstream.duck.numbers import GREATEST, TOO_LARGE, is_too_large
from sqlstream.errors import QueryError, SourceText, Span, missing

ALLOWED = "Write one SELECT, WITH, VALUES, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement."

# How numbers begin.
_DIGITS = tuple(".0123456789")
_QUERY_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}

# Table functions that only read. Functions that run SQL from a string are missing, because the relations and effects of that SQL
# are hidden here; and functions that change the database or its settings, or take a pointer.
_TABLE_FUNCTIONS = {
    *("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "test_all_types"),
    *("glob", "sniff_csv", "read_text", "read_blob", "read_csv", "read_csv_auto", "read_parquet", "parquet_scan"),
    *("read_json", "read_json_auto", "read_json_objects", "read_json_objects_auto"),
    *("read_ndjson", "read_ndjson_auto", "read_ndjson_objects", "read_ndjson_objects_auto"),
    *("parquet_metadata", "parquet_file_metadata", "parquet_full_metadata", "parquet_kv_metadata", "parquet_schema"),
    *("duckdb_columns", "duckdb_databases", "duckdb_functions", "duckdb_keywords", "duckdb_memory", "duckdb_schemas"),
    *("duckdb_settings", "duckdb_tables", "duckdb_types", "duckdb_views", "pg_timezone_names", "pragma_version"),
}

# The schema of the system tables and of the table functions about jobs and state; and the names of these functions.
SCHEMA = "sqlstream"
CALLS = ("diff", "ttl", "verify", "why")

# Words before a relation's name. The last name before AT is an alias if any other word comes before it; that word ends the
# name of the relation.
_BEFORE_RELATION = {"FROM", "JOIN", "TABLE", "DESCRIBE", "DESC", "SHOW", "SUMMARIZE", "LATERAL"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement; comments are no tokens. `start` and `end` are offsets in characters."""

    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The text in upper case."""
        return self.text.upper()

    @property
    def is_name(self) -> bool:
        """Whether the token can be an identifier, quoted or not, or is a keyword."""
        return self.text[0] == '"' or self.text[0] == "_" or (self.text[0].isalpha() and self.text[-1] != "'")

    @property
    def name(self) -> str:
        """The identifier that the token spells."""
        return self.text[1:-1].replace('""', '"') if self.text[0] == '"' else self.text


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """A relation at an older version: `path AT (VERSION => expression)`, or TIMESTAMP or SAVEPOINT as the `unit`.

    `value` is a SELECT of the expression, padded so that the expression is at the same position as in the statement.
    """

    path: tuple[str, ...]
    unit: str
    value: str
    relation: Span
    clause: Span


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call; `value` is a SELECT of it, padded so that it is at the same position as in the statement."""

    name: str | None
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class StateCall:
    """A call of a table function, `sqlstream.<function>(..)`; `function` is in lower case."""

    function: str
    arguments: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that may run.

    `relations` are the paths that it names, with CTEs, except the paths of `travels`. With `shows_tables` it is SHOW TABLES
    or the like; with `lists_relations` it is or contains such a statement, and so depends on all relations.
    """

    source: SourceText
    relations: tuple[tuple[str, ...], ...]
    travels: tuple[TimeTravel, ...]
    shows_tables: bool
    lists_relations: bool
    calls: tuple[StateCall, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The last parts of all paths that the statement names, in lower case."""
        return frozenset(path[-1].lower() for path in (*self.relations, *(t.path for t in self.travels)))

    def rewritten(self, targets: Sequence[str], call_targets: Sequence[str] = ()) -> str:
        """Return the text with each time travel replaced by a relation of `targets`, and each call by one of `call_targets`.

        Blanks fill the gaps and lines stay lines, so that positions in DuckDB's errors are positions in the user's text.
        """
        text = self.source.text
        pieces = [(t.relation, t.clause, target) for t, target in zip(self.travels, targets, strict=True)]
        pieces += [(_name_of(c), _behind_name(c), target) for c, target in zip(self.calls, call_targets, strict=True)]
        for relation, clause, target in sorted(pieces, key=lambda piece: -piece[0].start):
            between = text[relation.end : clause.start]
            room = clause.end - relation.start - len(target) - len(between)
            blank = _blank(clause.text)
            while len(blank) > room and " " in blank:
                blank = blank.replace(" ", "", 1)
            text = text[: relation.start] + target + between + blank + text[clause.end :]
        return text


def parse_statement(
    source: SourceText, connection: duckdb.DuckDBPyConnection, table_functions: Iterable[str] = ()
) -> Statement:
    """Parse a statement, without running it. Raises QueryError unless it is one query that only reads.

    `table_functions` are functions of the user that may stand in FROM, besides those of DuckDB that only read.
    """
    own = frozenset(name.lower() for name in table_functions)
    tokens = tokenize(source.text)
    for token in tokens:
        if token.text[:1] in _DIGITS and is_too_large(token.text):
            raise QueryError(TOO_LARGE, Span(source, token.start, token.end), hint=GREATEST)
    calls = tuple(_calls(source, tokens))
    travels = tuple(_time_travels(source, tokens))
    text = source.text
    for travel in travels:
        text = text[: travel.clause.start] + _blank(travel.clause.text) + text[travel.clause.end :]
    nodes = list(_nodes(_syntax_tree(source, text, tokens, connection)))
    for node in nodes:
        _check(node, source, tokens, own)
    if len(calls) != sum(_is_call(node) for node in nodes):
        message = f"{SCHEMA}.{calls[0].function} is a table function"
        raise QueryError(message, calls[0].span, hint="Write it behind FROM.")
    paths = [tuple(n["qualified_name"]["path"]) for n in nodes if n.get("type") in ("BASE_TABLE", "SHOW_REF")]
    relations = [path for path in paths if path]
    for travel in travels:
        # The statement may name a relation with and without AT: remove one mention for each AT.
        if travel.path not in relations:
            raise QueryError("AT must follow the name of a table or view", travel.clause)
        relations.remove(travel.path)
    words = [t.word for t in tokens if t.text != ";"]
    shows_tables = words in (["SHOW", "TABLES"], ["SHOW", "ALL", "TABLES"], ["DESCRIBE"])
    lists = any(n.get("show_type") in ("SHOW_SPECIAL", "SHOW_FROM") for n in nodes)
    return Statement(source, tuple(relations), travels, shows_tables, shows_tables or lists, calls)


def tokenize(text: str) -> list[Token]:
    """Split a text into DuckDB's tokens, without comments."""
    data = text.encode()
    boundaries = duckdb.tokenize(text)
    ends = [*(start for start, _ in boundaries[1:]), len(data)][: len(boundaries)]
    tokens = []
    # The characters before a byte offset are counted from token to token: a statement may have very many tokens.
    first = at = 0
    for (start, kind), end in zip(boundaries, ends, strict=True):
        first, at = first + len(data[at:start].decode()), start
        if kind != duckdb.token_type.comment:
            spelled = data[start:end].decode().rstrip()
            tokens.append(Token(spelled, first, first + len(spelled)))
    return tokens


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _time_travels(source: SourceText, tokens: list[Token]) -> Iterator[TimeTravel]:
    for i, token in enumerate(tokens):
        words = [t.word for t in tokens[i : i + 4]]
        if words[:2] != ["AT", "("] or words[3:] != ["=>"] or words[2] not in ("VERSION", "TIMESTAMP", "SAVEPOINT"):
            continue
        close = _closing(tokens, i + 1)
        first, last = _relation_before(tokens, i)
        clause = Span(source, token.start, tokens[close].end if close else token.end)
        if close is None or close == i + 4:
            raise QueryError("this AT clause is not complete", clause, hint=f"Write AT ({words[2]} => ..).")
        if first is None:
            raise QueryError("AT must follow the name of a table or view", clause)
        relation = Span(source, tokens[first].start, tokens[last].end)
        path = tuple(t.name for t in tokens[first : last + 1 : 2])
        unit, expression = tokens[i + 2].start, tokens[i + 4].start
        select = "SELECT" + _blank(source.text[unit + len("SELECT") : expression])
        value = _blank(source.text[:unit]) + select + source.text[expression : tokens[close].start]
        yield TimeTravel(path, words[2], value, relation, clause)


def _calls(source: SourceText, tokens: list[Token]) -> Iterator[StateCall]:
    """Yield the calls of `sqlstream.<function>`, whatever the function is."""
    for i, schema in enumerate(tokens[:-3]):
        dot, name, opening = tokens[i + 1 : i + 4]
        if not schema.is_name or schema.name.lower() != SCHEMA or dot.text != "." or opening.text != "(":
            continue
        close = _closing(tokens, i + 3)
        if close is not None and name.is_name:
            arguments = tuple(_arguments(source, tokens[i + 4 : close]))
            yield StateCall(name.name.lower(), arguments, Span(source, schema.start, tokens[close].end))


def _arguments(source: SourceText, tokens: list[Token]) -> Iterator[Argument]:
    depth, first = 0, 0
    for i, token in enumerate([*tokens, Token(",", 0, 0)]):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
        if token.text != "," or depth or i == first:
            continue
        named = i > first + 2 and tokens[first].is_name and tokens[first + 1].text in (":=", "=>")
        name = tokens[first].name if named else None
        start, end = tokens[first + 2 * named].start, tokens[i - 1].end
        # A call begins with more characters than SELECT has.
        before = _blank(source.text[: start - len("SELECT ")])
        value = f"{before}SELECT {source.text[start:end]}"
        yield Argument(name, value, Span(source, tokens[first].start, end))
        first = i + 1


def _name_of(call: StateCall) -> Span:
    return Span(call.span.source, call.span.start, call.span.start + len(SCHEMA))


def _behind_name(call: StateCall) -> Span:
    return Span(call.span.source, call.span.start + len(SCHEMA), call.span.end)


def _closing(tokens: list[Token], opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[i].text, 0)
        if depth == 0:
            return i
    return None


def _relation_before(tokens: list[Token], at: int) -> tuple[int | None, int]:
    """Return the positions of the first and the last token of the relation before an AT clause; None if there is no relation.

    The form is `path [[AS] alias [(columns)]] AT (..)`.
    """
    last = at - 1
    if last >= 0 and tokens[last].text == ")":
        while last >= 0 and tokens[last].text != "(":
            last -= 1
        last -= 1
        if not (last > 0 and tokens[last].is_name and (tokens[last - 1].is_name or tokens[last - 1].word == "AS")):
            return None, last
    if last > 0 and tokens[last].is_name and tokens[last - 1].word == "AS":
        last -= 2
    elif last > 0 and tokens[last].is_name and tokens[last - 1].is_name:
        last -= tokens[last - 1].word not in _BEFORE_RELATION
    first = last
    while first > 1 and tokens[first - 1].text == "." and tokens[first - 2].is_name:
        first -= 2
    return (first if last >= 0 and tokens[last].is_name else None), last


def _syntax_tree(source: SourceText, text: str, tokens: list[Token], connection: duckdb.DuckDBPyConnection) -> Any:
    """Return DuckDB's syntax tree of a text: the source's with parts blanked out. Raises QueryError unless it is one query."""
    _check_not_ours(source, tokens)
    kind = _statement_kind(source, text, tokens, connection)
    first = next(t for t in tokens if t.text not in (";", "("))
    span = Span(source, first.start, first.end)
    if kind == duckdb.StatementType.EXPLAIN:
        return _syntax_tree(source, *_explained(text, tokens), connection)
    if kind == duckdb.StatementType.MULTI and (pivot := next((t for t in tokens if t.word == "PIVOT"), None)):
        hint = "Write PIVOT t ON c IN (value, ..) USING .."
        raise QueryError("PIVOT must list its values here", Span(source, pivot.start, pivot.end), hint=hint)
    if kind != duckdb.StatementType.SELECT:
        raise QueryError(f"{first.word} is not a query", span, hint=ALLOWED)
    [(serialized,)] = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    try:
        tree = json.loads(serialized)
    except RecursionError:
        raise QueryError("the query is nested too deeply", span) from None
    if tree["error"]:
        raise QueryError(f"this {first.word} cannot be checked and is not run", span, hint=ALLOWED)
    return tree


def _check_not_ours(source: SourceText, tokens: list[Token]) -> None:
    """Raise QueryError for a statement of sqlstream about jobs, which DuckDB would report as a syntax error."""
    words = [t for t in tokens if t.text != ";"][:4]
    if not re.match(r"(CREATE|DROP|MIGRATE) (OR REPLACE )?(SAVEPOINT|STATE)\b", " ".join(t.word for t in words)):
        return
    first = words[0]
    hint = "Run it with sqlstream run -e, or with Session.sql in Python."
    if first.word == "MIGRATE":
        hint = "Write it into a file for sqlstream run --migrate."
    raise QueryError(f"{first.word} is not a query", Span(source, first.start, first.end), hint=hint)


def _statement_kind(
    source: SourceText, text: str, tokens: list[Token], connection: duckdb.DuckDBPyConnection
) -> duckdb.StatementType | None:
    """Return the kind of the one statement in a text, None when the Python client has no name for it."""
    try:
        kinds = [statement.type for statement in connection.extract_statements(text)]
    except duckdb.Error as error:
        raise translate(error, source) from error
    except ValueError:
        return None
    if not kinds:
        raise QueryError("there is no query", hint=ALLOWED)
    if len(kinds) > 1:
        semicolon = next(i for i, t in enumerate(tokens) if t.text == ";" and i > 0)
        second = next(t for t in tokens[semicolon:] if t.text != ";")
        raise QueryError("only one statement can run at a time", Span(source, second.start, second.end), hint=ALLOWED)
    return kinds[0]


def _explained(text: str, tokens: list[Token]) -> tuple[str, list[Token]]:
    """Return the text and the tokens without EXPLAIN, its ANALYZE and its options, which are blank in the text."""
    start = 1 + (tokens[1].word == "ANALYZE")
    if tokens[start].text == "(" and tokens[start + 1].word in ("ANALYZE", "FORMAT"):
        start = (_closing(tokens, start) or start) + 1
    end = tokens[start].start
    return _blank(text[:end]) + text[end:], tokens[start:]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    pending = [tree]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(reversed(value.values()))
        elif isinstance(value, list):
            pending.extend(reversed(value))


def _check(node: dict[str, Any], source: SourceText, tokens: list[Token], own: frozenset[str]) -> None:
    """Raise QueryError when a node of the syntax tree may do more than read data."""
    kind = str(node.get("type", ""))
    if (kind.endswith("_NODE") or "cte_map" in node) and kind not in _QUERY_NODES:
        verb = kind.split("_")[0]
        token = next((after for before, after in pairwise(tokens) if before.text == "(" and after.word == verb), None)
        raise QueryError(f"a query cannot contain {verb}", _span(source, token), hint=ALLOWED)
    if kind != "TABLE_FUNCTION":
        return
    if _is_call(node):
        _check_call(node["function"]["function_name"], source, tokens)
    elif (name := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS | own:
        token = next((t for t, after in pairwise(tokens) if t.name.lower() == name and after.text == "("), None)
        hint = "Write the query itself." if name in ("query", "query_table") else None
        raise QueryError(f'the table function "{name}" is not available in queries', _span(source, token), hint=hint)


def _is_call(node: dict[str, Any]) -> bool:
    return node.get("type") == "TABLE_FUNCTION" and str(node["function"]["schema"]).lower() == SCHEMA


def _check_call(name: str, source: SourceText, tokens: list[Token]) -> None:
    if name.lower() not in CALLS:
        token = next((t for t, after in pairwise(tokens) if t.name == name and after.text == "("), None)
        hint = missing("function", f"{SCHEMA}.{name}", [f"{SCHEMA}.{call}" for call in CALLS])
        raise QueryError(f'function "{SCHEMA}.{name}" does not exist', _span(source, token), hint=hint)


def _span(source: SourceText, token: Token | None) -> Span | None:
    return Span(source, token.start, token.end) if token else None
