"""SQL text for DuckDB: quoted names and texts, lists of columns, SELECTs as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Typed(Protocol):
    """A column of a table or of a plan: a name and a DuckDB type."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A SELECT, with the names and types of its columns."""

    sql: str
    columns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, sql: str, columns: Iterable[Typed]) -> Rows:
        """Return a SELECT with its columns."""
        return cls(sql, tuple((c.name, c.type) for c in columns))

    @classmethod
    def selected(cls, relation: str, items: Iterable[tuple[str, str, str]]) -> Rows:
        """Return the SELECT of items over a FROM item; each is a name, a type to cast to, and SQL.

        >>> print(Rows.selected("t", [("n", "BIGINT", "count(*)")]).sql)
        SELECT CAST(count(*) AS BIGINT) AS "n" FROM t
        """
        items = tuple(items)
        listed = ", ".join(f"CAST({sql} AS {type}) AS {quote_name(name)}" for name, type, sql in items)
        return cls(f"SELECT {listed} FROM {relation}", tuple((name, type) for name, type, _ in items))


def quote_name(name: str) -> str:
    """Return a name as a quoted identifier.

    >>> print(quote_name('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text as a SQL literal.

    >>> print(quote_text("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def names(columns: Iterable[Typed]) -> str:
    """Return the names of columns as select items."""
    return ", ".join(quote_name(c.name) for c in columns)


def typed(columns: Iterable[Typed]) -> str:
    """Return select items that cast columns to their types, under the same names.

    >>> from sqlstream.catalog import Column
    >>> print(typed([Column("window start", "TIMESTAMP"), Column("n", "BIGINT")]))
    CAST("window start" AS TIMESTAMP) AS "window start", CAST("n" AS BIGINT) AS "n"
    """
    return ", ".join(f"CAST({quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in columns)


def no_rows(columns: Iterable[Typed]) -> str:
    """Return a SELECT of columns, at least one, that returns no rows.

    >>> from sqlstream.catalog import Column
    >>> print(no_rows([Column("n", "BIGINT")]))
    SELECT CAST(NULL AS BIGINT) AS "n" WHERE false
    """
    return f"SELECT {', '.join(f'CAST(NULL AS {c.type}) AS {quote_name(c.name)}' for c in columns)} WHERE false"


def over(relations: Mapping[str, str], sql: str) -> str:
    """Return SQL that names relations, with a WITH clause that defines each as a SELECT.

    A relation that is named twice is computed twice, so that filters are pushed down to its files.

    >>> print(over({"rows": "SELECT 1 AS a"}, 'FROM "rows"'))
    WITH "rows" AS NOT MATERIALIZED (SELECT 1 AS a) SELECT * FROM (FROM "rows")
    """
    named = ", ".join(f"{quote_name(name)} AS NOT MATERIALIZED ({rows})" for name, rows in relations.items())
    return f"WITH {named} SELECT * FROM ({sql})" if named else sql


# Text literals, and quoted names.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?P<name>(?:[^"]|"")*)\"""")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def unquoted(sql: str) -> str:
    r"""Return SQL without needless quotes around names, for users to read.

    >>> print(unquoted('"ts" - "My time" || \'"a"\''))
    ts - "My time" || '"a"'
    """

    def written(piece: re.Match[str]) -> str:
        name = piece["name"]
        return name if name is not None and _PLAIN.fullmatch(name) else piece[0]

    return _QUOTED.sub(written, sql)
