"""Decides where a statement runs: in the session, as a stream of changes, or in DuckDB."""

from __future__ import annotations

import re
from enum import Enum, auto

from sqlstream.catalog import View
from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import QueryError, SourceText, SqlStreamError
from sqlstream.queries.statement import Token, parse_statement, tokenize

_QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
_ONLY_QUERIES = ("SUMMARIZE", "PIVOT", "UNPIVOT")
_STAGES = ("AST", "LOGICAL", "OPTIMIZED", "PHYSICAL", "STATE", "PLAN", "FOR", "ANALYZE")
# Schemas that only state queries can read.
_OURS = ("state", "sqlstream", "savepoint")


class Route(Enum):
    """Where a statement runs."""

    # In the session: it changes the session, starts a job, or shows what the session knows.
    SESSION = auto()
    # As a stream: a SELECT over sources, whose changes are shown as they come.
    CHANGES = auto()
    # In DuckDB, which answers at once: a query over state, results and system tables.
    QUERY = auto()


def route(source: SourceText, compiler: Compiler) -> Route:
    """Return where a statement runs.

    A query runs in DuckDB if it names state or system tables, or only tables of the warehouse. With a table that has a connector,
    or with a view, it is a stream.
    """
    tokens = tokenize(source.text)
    words = [token.word for token in tokens[:4]]
    match words[:1]:
        case [word] if word in _ONLY_QUERIES:
            return Route.QUERY
        case ["SHOW"]:
            return (
                Route.QUERY if words[:3] in (["SHOW", "ALL", "TABLES"], ["SHOW", "TABLES", "FROM"]) else Route.SESSION
            )
        case ["DESCRIBE" | "DESC"]:
            return _described(tokens, compiler)
        case ["EXPLAIN"]:
            rest = next((t.start for t in tokens[1:] if t.word not in _STAGES), len(source.text))
            return Route.QUERY if _is_query(_from(source, rest), compiler) else Route.SESSION
        case [word] if word in _QUERY_STARTS:
            return Route.QUERY if _is_query(source, compiler) else Route.CHANGES
        case _:
            return Route.SESSION


def _described(tokens: list[Token], compiler: Compiler) -> Route:
    """Return where DESCRIBE runs: in DuckDB for state, for tables that are written but not declared, and for queries."""
    names = [t for t in tokens[1:] if t.text != ";"]
    if len(names) == 1 and names[0].is_name:
        name = names[0].name
        written = {table.lower() for table in compiler.catalog.written_tables()}
        return Route.QUERY if compiler.catalog.declared(name) is None and name.lower() in written else Route.SESSION
    if names and (names[0].word in _QUERY_STARTS or any(t.text == "." for t in names[:2])):
        return Route.QUERY
    return Route.SESSION


def _from(source: SourceText, start: int) -> SourceText:
    return SourceText(source.name, re.sub(r"[^\n]", " ", source.text[:start]) + source.text[start:])


def _is_query(source: SourceText, compiler: Compiler) -> bool:
    if not source.text.strip():
        return False
    functions = [f.name for f in compiler.catalog.functions.values() if f.kind == "table"]
    try:
        with compiler.connection() as connection:
            statement = parse_statement(source, connection, functions)
    except QueryError:
        # DuckDB does not parse it: a window, say. If it names state, DuckDB's error is the right one.
        return _names_state(tokenize(source.text))
    except SqlStreamError:
        return False
    if statement.travels or statement.calls or any(path[0].lower() in _OURS for path in statement.relations):
        return True
    declared = [compiler.catalog.declared(path[-1]) for path in statement.relations]
    if any(isinstance(one, View) or (one is not None and one.connector is not None) for one in declared):
        return False
    if not statement.relations or any(one is not None for one in declared):
        return True
    written = {name.lower() for name in compiler.catalog.written_tables()}
    return any(path[-1].lower() in written for path in statement.relations)


def _names_state(tokens: list[Token]) -> bool:
    return any(
        token.name.lower() in _OURS and tokens[i + 1].text == "." and tokens[i - 1].word in ("FROM", "JOIN", ",")
        for i, token in enumerate(tokens[1:-1], 1)
        if token.is_name
    )
