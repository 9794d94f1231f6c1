"""What statements in the log do to the rows of a table: the log has definitions of tables, and TRUNCATE, as texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sqlstream.connectors.cdc.changes import IncompleteLog, TableTruncated

_WORD = re.compile(
    r"""/\*.*?\*/ | --[^\n]* | \#[^\n]* | '(?:[^'\\]|\\.|'')*' | "(?P<quoted>(?:[^"\\]|\\.|"")*)"
    | `(?P<name>(?:[^`]|``)*)` | (?P<word>[\w$]+) | (?P<sign>\S)""",
    re.VERBOSE | re.DOTALL,
)
# The marks around text that only some versions of a server read.
_VERSIONED = re.compile(r"/\*M?!\d*")
_BY_STATEMENT = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL")
_IN_PARTITIONS = ("DROP", "TRUNCATE", "EXCHANGE", "CONVERT")
_SAVEPOINT = re.compile(r"\s*SAVEPOINT\s+(.+?)\s*", re.IGNORECASE | re.DOTALL)
_BACK = re.compile(r"\s*ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?(.+?)\s*", re.IGNORECASE | re.DOTALL)


def savepoint(statement: str) -> str | None:
    """Return the savepoint that a statement sets; None if it sets none.

    >>> savepoint("SAVEPOINT `a`")
    'a'
    """
    match = _SAVEPOINT.fullmatch(statement)
    return match[1].strip("`").lower() if match else None


def rolled_back_to(statement: str) -> str | None:
    """Return the savepoint to which a statement goes back; None if it does not.

    >>> rolled_back_to("ROLLBACK TO `a`"), rolled_back_to("ROLLBACK")
    ('a', None)
    """
    match = _BACK.fullmatch(statement)
    return match[1].strip("`").lower() if match else None


def check(statement: str, database: str, schema: str, table: str) -> None:
    """Raise TableTruncated or IncompleteLog if a statement has changed rows of a table of which the log has no changes.

    `database` is the one in which the statement ran.

    >>> check("TRUNCATE TABLE orders", "shop", "shop", "orders")
    Traceback (most recent call last):
    sqlstream.connectors.cdc.changes.TableTruncated: was truncated
    """
    words = _words(statement)
    if not words:
        return
    first = words[0].upper()
    if first in _BY_STATEMENT:
        if (schema.lower(), table.lower()) in _names(words, database):
            raise IncompleteLog(
                f"the rows, because it has the statement that changed them: {' '.join(statement.split())[:60]}"
            )
        return
    upper = [word.upper() for word in words]
    named = _names(words, database)
    fate = None
    if (schema.lower(), table.lower()) in named:
        fate = _fate(first, upper)
    elif first == "DROP" and upper[1] in ("DATABASE", "SCHEMA") and schema.lower() in (w.lower() for w in words):
        fate = "was dropped"
    if fate:
        raise TableTruncated(fate)


def _fate(first: str, upper: Sequence[str]) -> str | None:
    """Return what a statement, by its words in capitals, has done to a table that it names; None if the rows are as before."""
    match first:
        case "TRUNCATE":
            return "was truncated"
        case "DROP" if upper[1] in ("TABLE", "TABLES"):
            return "was dropped"
        case "CREATE" if upper[1:3] == ["OR", "REPLACE"] and "TABLE" in upper[3:5]:
            return "was replaced by another one"
        case "RENAME" if upper[1] in ("TABLE", "TABLES"):
            return "was renamed, or another one has its name"
        case "ALTER":
            pairs = list(pairwise(upper))
            if any((word, "PARTITION") in pairs for word in _IN_PARTITIONS):
                return "has lost or got a partition"
            if any(pair in pairs for pair in (("DISCARD", "TABLESPACE"), ("IMPORT", "TABLESPACE"))):
                return "has lost or got its rows by a tablespace"
            if any(a == "RENAME" and b not in ("COLUMN", "INDEX", "KEY") for a, b in pairs):
                return "was renamed, or another one has its name"
    return None


def _words(statement: str) -> list[str]:
    """Return the words, names and signs of a statement, without comments and texts."""
    words = []
    for match in _WORD.finditer(_VERSIONED.sub(" ", statement)):
        if match["name"] is not None:
            words.append(match["name"].replace("``", "`"))
        elif match.lastgroup is not None:
            words.append(match[match.lastgroup])
    return words


def _names(words: Sequence[str], database: str) -> set[tuple[str, str]]:
    """Return all that may be names of tables among words, in small letters, with their databases."""
    names = set()
    for index, word in enumerate(words):
        if index >= 2 and words[index - 1] == ".":
            names.add((words[index - 2].lower(), word.lower()))
        else:
            names.add((database.lower(), word.lower()))
    return names
