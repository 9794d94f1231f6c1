"""SQL text for DuckDB: its kinds, quoted names and texts, lists of columns, SELECTs as values.

A text that goes into other SQL has the type of what it is, so that mypy finds a SELECT where a table belongs. The functions here
turn one kind into another. A function that writes SQL of its own says once, where it returns the text, what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NewType, Protocol, TypeAlias

# A query: a SELECT, or FROM by itself. It goes into other SQL as a subquery.
Select = NewType("Select", str)
# What can stand in FROM: a quoted name, a call of a table function, a query in parentheses.
Relation = NewType("Relation", str)
# A BOOLEAN expression over the columns of a relation.
Condition = NewType("Condition", str)
# Items of a select list, separated by commas.
Items = NewType("Items", str)
# Relations by the names of the tables that they read.
Relations: TypeAlias = Mapping[str, Relation]

TRUE, FALSE = Condition("true"), Condition("false")


class TypedColumn(Protocol):
    """A column of a table or of a plan: a name and a DuckDB type."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A SELECT, with the names and types of its columns."""

    sql: Select
    columns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, sql: Select, columns: Iterable[TypedColumn]) -> Rows:
        """Return a SELECT with its columns."""
        return cls(sql, tuple((c.name, c.type) for c in columns))

    @classmethod
    def selected(
        cls, relation: Relation, items: Iterable[tuple[str, str, str]], condition: Condition | None = None
    ) -> Rows:
        """Return the SELECT of items over the rows that meet a condition; each is a name, a type to cast to, and SQL.

        >>> print(Rows.selected(quoted("t"), [("n", "BIGINT", "count(*)")], Condition("a > 1")).sql)
        SELECT CAST(count(*) AS BIGINT) AS "n" FROM "t" WHERE a > 1
        """
        items = tuple(items)
        listed = ", ".join(f"CAST({sql} AS {type}) AS {quote_name(name)}" for name, type, sql in items)
        where = f" WHERE {condition}" if condition is not None else ""
        return cls(Select(f"SELECT {listed} FROM {relation}{where}"), tuple((name, type) for name, type, _ in items))


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


def quoted(name: str) -> Relation:
    """Return the table or view of a name.

    >>> print(quoted("my table"))
    "my table"
    """
    return Relation(quote_name(name))


def subquery(select: Select) -> Relation:
    """Return a SELECT as a relation.

    >>> print(subquery(Select("SELECT 1")))
    (SELECT 1)
    """
    return Relation(f"({select})")


def rows_where(relation: Relation, condition: Condition) -> Relation:
    """Return the rows of a relation that meet a condition.

    >>> print(rows_where(quoted("t"), Condition("a > 1")))
    (SELECT * FROM "t" WHERE a > 1)
    """
    return Relation(f"(SELECT * FROM {relation} WHERE {condition})")


def union_all(selects: Iterable[Select]) -> Select:
    """Return the rows of all of the SELECTs, at least one.

    >>> print(union_all([Select("SELECT 1"), Select("SELECT 2")]))
    SELECT 1 UNION ALL SELECT 2
    """
    return Select(" UNION ALL ".join(selects))


def all_of(conditions: Iterable[str]) -> Condition:
    """Return the condition that all of the conditions hold, `true` if there are none.

    An OR in one of them must be in parentheses.

    >>> all_of(["a = 1", "b = 2"]), all_of([])
    ('a = 1 AND b = 2', 'true')
    """
    return Condition(" AND ".join(conditions) or TRUE)


def same_columns(a: str, b: str, names: Iterable[str]) -> Condition:
    """Return the condition that rows of two relations, by their aliases, agree in columns; NULL equals NULL.

    >>> print(same_columns("a", "b", ["k0", "k1"]))
    a.k0 IS NOT DISTINCT FROM b.k0 AND a.k1 IS NOT DISTINCT FROM b.k1
    """
    return all_of(f"{a}.{name} IS NOT DISTINCT FROM {b}.{name}" for name in names)


def names(columns: Iterable[TypedColumn]) -> Items:
    """Return the names of columns, quoted."""
    return Items(", ".join(quote_name(c.name) for c in columns))


def typed(columns: Iterable[TypedColumn]) -> Items:
    """Return columns cast to their types, under the same names.

    >>> from sqlstream.catalog import Column
    >>> print(typed([Column("window start", "TIMESTAMP"), Column("n", "BIGINT")]))
    CAST("window start" AS TIMESTAMP) AS "window start", CAST("n" AS BIGINT) AS "n"
    """
    return Items(", ".join(f"CAST({quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in columns))


def no_rows(columns: Iterable[TypedColumn]) -> Select:
    """Return a SELECT of columns, at least one, that returns no rows.

    >>> from sqlstream.catalog import Column
    >>> print(no_rows([Column("n", "BIGINT")]))
    SELECT CAST(NULL AS BIGINT) AS "n" WHERE false
    """
    listed = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in columns)
    return Select(f"SELECT {listed} WHERE false")


def over(relations: Mapping[str, Select], sql: Select) -> Select:
    """Return a SELECT that names relations, with a WITH clause that defines each.

    A relation that is named twice is computed twice, so that filters are pushed down to its files.

    >>> print(over({"rows": Select("SELECT 1 AS a")}, Select('FROM "rows"')))
    WITH "rows" AS NOT MATERIALIZED (SELECT 1 AS a) SELECT * FROM (FROM "rows")
    """
    named = ", ".join(f"{quote_name(name)} AS NOT MATERIALIZED ({rows})" for name, rows in relations.items())
    return Select(f"WITH {named} SELECT * FROM ({sql})") if named else sql


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
