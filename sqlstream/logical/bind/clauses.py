"""Clauses of queries and tables that are not supported: each is refused, with a hint that says what to write instead."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

from sqlstream.errors import SourceText, UnsupportedError
from sqlstream.sql.spans import operator_span, span_of

Q = TypeVar("Q", bound=exp.Expr)

# The name and the hint of a clause in errors, by sqlglot's key.
CLAUSES = {
    "joins": ("a join in parentheses", "Write it as a subquery: FROM (SELECT .. FROM a JOIN b ON ..) AS ab."),
    "laterals": ("LATERAL here", "Write FROM t CROSS JOIN LATERAL (SELECT ..) AS x."),
    "order": (
        "ORDER BY without LIMIT",
        "Add LIMIT for the first rows, or sort when you read the result: sqlstream query 'SELECT .. ORDER BY ..'.",
    ),
    "offset": ("OFFSET without LIMIT", "Add LIMIT: the rows that come first, or the first ones of ORDER BY."),
    "sample": ("a sample", "Choose rows by a value of theirs: WHERE hash(id) % 100 = 0."),
    "limit": ("LIMIT without ORDER BY", "Say which rows: add ORDER BY."),
    "fetch": ("FETCH in a stream", None),
    "into": ("SELECT .. INTO", "Write INSERT INTO t SELECT ..."),
    "pivots": ("PIVOT", "Aggregate what each column has: SUM(price) FILTER (WHERE auction = 1) AS auction_1."),
    "when": (
        "time travel in a streaming query",
        "A query of state reads old versions: sqlstream query with AT (VERSION => 12).",
    ),
    "version": ("time travel in a streaming query", "Behind JOIN, AS OF takes a time of the tables before it."),
    "by_name": ("UNION ALL BY NAME", "Write UNION ALL, and the columns in the same order."),
}
# The parts of a query or a table that are bound.
_BOUND = {"this", "expressions", "expression", "alias", "db", "catalog", "with_", "from_", "where", "group", "having"}
_BOUND |= {"qualify", "hint", "windows", "table_options"}


def refuse_clauses(query: exp.Expr, source: SourceText) -> None:
    """Raise UnsupportedError for any clause of a query or a table that binding would ignore."""
    for key, value in query.args.items():
        if value and key not in _BOUND:
            at = value[0] if isinstance(value, list) else value
            united = isinstance(query, exp.SetOperation) and key == "by_name"
            whole = operator_span(query, source) if united else span_of(query, source)
            has_span = isinstance(at, exp.Expr) and key != "when"  # of AT only the version has a position
            span = span_of(at, source, whole) if has_span else whole
            what, hint = CLAUSES.get(key, (key.strip("_").replace("_", " ").upper(), None))
            raise UnsupportedError(what, span, hint=hint)


def without(query: Q, *clauses: str) -> Q:
    """Return a copy of a query without some clauses, by sqlglot's keys."""
    rest = query.copy()
    for clause in clauses:
        rest.set(clause, None)
    return rest
