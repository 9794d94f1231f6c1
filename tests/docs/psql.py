"""What psql shows of a statement's rows."""

from __future__ import annotations

from typing import Any

from tests.postgres_server import Database


def shown_by_psql(database: Database, statements: str) -> str | None:
    """Run statements in a database; return the rows of the last one, None where it gives none."""
    import psycopg

    with psycopg.connect(database.url, autocommit=True) as con:
        for statement in filter(str.strip, statements.split(";\n")):
            answer = con.execute(statement)
        if answer.description is None:
            return None
        return _table([column.name for column in answer.description], answer.fetchall())


def _table(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    lines = [" | ".join(name.center(width) for name, width in zip(names, widths, strict=True))]
    lines.append("-+-".join("-" * width for width in widths))
    for row, values in zip(texts, rows, strict=True):
        pairs = zip(row, values, widths, strict=True)
        lines.append(" | ".join(t.rjust(w) if isinstance(v, int | float) else t.ljust(w) for t, v, w in pairs))
    lines.append(f"({len(rows)} row{'s' if len(rows) != 1 else ''})")
    return "\n".join(f" {line}".rstrip() if line[0] != "(" else line for line in lines)
