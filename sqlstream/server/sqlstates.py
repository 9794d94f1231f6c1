"""The SQLSTATE of an error, from its message."""

from __future__ import annotations

import re

from sqlstream.errors import DamageError, SqlStreamError

READ_ONLY = "25006"
FORBIDDEN = "42501"
DAMAGE = "XX001"

# The first pattern that matches a message determines its SQLSTATE.
_STATES: tuple[tuple[str, str], ...] = (
    (r'^table ".*" does not exist|^savepoint ".*" does not exist|there is no warehouse', "42P01"),
    (r'^column ".*" does not exist', "42703"),
    (r"^a statement has .* at most", "54001"),
    (r"ambiguous reference|ambiguous column", "42702"),
    (r'^function ".*" does not exist|no function matches|the table function ".*" is not available', "42883"),
    (r"outside of what a query may read", FORBIDDEN),
    (r"syntax error|unterminated|there is no query|is not complete|only one statement|is not a query", "42601"),
    (r"must appear in the GROUP BY|cannot contain aggregates", "42803"),
    (r"^there is no parameter", "42P02"),
    (r"does not have \"|no version|version that old", "42704"),
    (r"out of memory|failed to allocate", "53200"),
    (r"is damaged|state changed", "40001"),
    (r"division by zero", "22012"),
    (r"out of range|overflow", "22003"),
    (r"could not convert|cannot be cast|can't be cast|conversion|invalid input|malformed", "22P02"),
    (r"cannot compare|cannot mix|type mismatch|could not choose", "42804"),
)
_WRITES = {
    *("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "COPY", "GRANT", "REVOKE"),
    *("VACUUM", "ATTACH", "DETACH", "INSTALL", "LOAD", "CHECKPOINT", "EXPORT", "IMPORT", "REFRESH", "COMMENT"),
}


def sqlstate(error: SqlStreamError) -> str:
    """Return the SQLSTATE of an error; 42000 if nothing more specific is known.

    >>> sqlstate(SqlStreamError('column "x" does not exist'))
    '42703'
    >>> sqlstate(SqlStreamError("INSERT is not a query"))
    '25006'
    """
    if isinstance(error, DamageError):
        return DAMAGE
    word = re.match(r"(?:([A-Z]+) is not a query|a query cannot contain ([A-Z]+))", error.message)
    if word and (word[1] or word[2]) in _WRITES:
        return READ_ONLY
    states = (state for pattern, state in _STATES if re.search(pattern, error.message, re.IGNORECASE))
    return next(states, "42000")
