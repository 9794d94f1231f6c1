"""SQL text for DuckDB: names and texts in quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def over(relations: Mapping[str, str], sql: str) -> str:
    """Return SQL that names relations as a SELECT in which the names stand for SELECTs.

    A relation that is named twice is not kept, but computed twice: then filters reach its files.

    >>> print(over({"rows": "SELECT 1 AS a"}, 'FROM "rows"'))
    WITH "rows" AS NOT MATERIALIZED (SELECT 1 AS a) SELECT * FROM (FROM "rows")
    """
    named = ", ".join(f"{quote_name(name)} AS NOT MATERIALIZED ({rows})" for name, rows in relations.items())
    return f"WITH {named} SELECT * FROM ({sql})" if named else sql


# Texts, in which nothing is a name, and quoted names.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?P<name>(?:[^"]|"")*)\"""")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def unquoted(sql: str) -> str:
    r"""Return SQL for people: without the quotes that its names need not have.

    >>> print(unquoted('"ts" - "My time" || \'"a"\''))
    ts - "My time" || '"a"'
    """

    def written(piece: re.Match[str]) -> str:
        name = piece["name"]
        return name if name is not None and _PLAIN.fullmatch(name) else piece[0]

    return _QUOTED.sub(written, sql)
