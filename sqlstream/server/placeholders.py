"""Parameters of prepared statements: their values replace `$1` or `?` in the statement, as SQL.

The result is one text, which is checked like any other statement. Errors show the position in the client's own text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import duckdb

from sqlstream.duck.sql import quote_name
from sqlstream.errors import QueryError, Replacement, SourceText
from sqlstream.server.query_processes.protocol import MOST_CHARACTERS, MOST_TOKENS

_SCHEMA = re.compile(r'"((?:state|savepoint)\.(?:[^"]|"")+)"', re.IGNORECASE)
# The largest number that a message of PostgreSQL's protocol can have.
_MOST = 65_535
# A value may be in a statement many times.
_MOST_CHARACTERS = 64 << 20


def check_text(sql: str) -> None:
    """Raise QueryError if a client's text is too long to compile. The values of its parameters do not count."""
    if len(sql) > MOST_CHARACTERS:
        raise QueryError(
            f"a statement has {MOST_CHARACTERS:,} characters at most", hint="Give long values as parameters."
        )
    if len(sql) > MOST_TOKENS and (count := len(duckdb.tokenize(sql))) > MOST_TOKENS:
        hint = "Join a table instead of writing its rows."
        raise QueryError(f"a statement has {MOST_TOKENS:,} words and signs at most, and this one {count:,}", hint=hint)


def parameter_count(sql: str) -> int:
    """Return the highest number of a parameter; 0 without parameters.

    >>> parameter_count("SELECT $2, '$7' -- $9"), parameter_count("SELECT ?, ?"), parameter_count("SELECT 1")
    (2, 2, 0)

    Raises QueryError for a number that is too high.
    """
    highest = max((number for number, _, _ in _parameters(sql)), default=0)
    if highest > _MOST:
        raise _no_parameter(highest)
    return highest


def filled(sql: str, literals: Sequence[str]) -> SourceText:
    """Return a statement with literals in the place of its parameters. Raises QueryError.

    Clients write names of two parts, which are rewritten: `"state.hourly"."counts"` becomes `state.hourly.counts`.

    >>> filled('SELECT $1 FROM "state.hourly"."by $1"', ["7"]).text
    'SELECT 7 FROM "state"."hourly"."by $1"'
    """
    pieces = [(start, end, _literal(literals, number)) for number, start, end in _parameters(sql)]
    pieces += [
        (start, end, ".".join(quote_name(part.replace('""', '"')) for part in schema[1].split(".", 1)))
        for start, end in _tokens(sql)
        if (schema := _SCHEMA.match(sql, start, end)) and sql[schema.end() :].lstrip().startswith(".")
    ]
    if sum(len(new) for _, _, new in pieces) > _MOST_CHARACTERS:
        raise QueryError(f"parameters have {_MOST_CHARACTERS:,} characters at most where they stand in the statement")
    text, at, replacements = "", 0, []
    for start, end, new in sorted(pieces):
        text += sql[at:start]
        replacements.append(Replacement(len(text), len(text) + len(new), start, end))
        text += new
        at = end
    return SourceText("query", text + sql[at:], sql, tuple(replacements))


def _literal(literals: Sequence[str], number: int) -> str:
    if not 0 < number <= len(literals):
        raise _no_parameter(number)
    return literals[number - 1]


def _no_parameter(number: int) -> QueryError:
    return QueryError(f"there is no parameter ${number}")


def _parameters(sql: str) -> list[tuple[int, int, int]]:
    """Return (number, start, end) of each parameter in a statement; each `?` has the next number."""
    if "$" not in sql and "?" not in sql:
        return []
    parameters, count = [], 0
    for start, end in _tokens(sql):
        number = re.compile(r"\d+").match(sql, start, end)
        if number and start > 0 and sql[start - 1] == "$":
            parameters.append((int(number[0]), start - 1, number.end()))
        elif sql[start:end].strip() == "?":
            count += 1
            parameters.append((count, start, start + 1))
    return parameters


def _tokens(sql: str) -> list[tuple[int, int]]:
    """Return (start, start of the next) of each of DuckDB's tokens, in characters."""
    data = sql.encode()
    starts = [start for start, _ in duckdb.tokenize(sql)]
    if len(data) != len(sql):
        parts = (data[start:end].decode(errors="ignore") for start, end in pairwise([0, *starts]))
        starts = list(accumulate(map(len, parts)))
    return list(pairwise([*starts, len(sql)]))
