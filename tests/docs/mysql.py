"""What the client of MySQL shows of a statement's rows."""

from __future__ import annotations

from tests.mariadb_server import MySQLDatabase


def shown_by_mysql(database: MySQLDatabase, statements: str) -> str | None:
    """Run statements in a database; return the rows of the last one, None where it gives none."""
    names, rows = database.shown(*filter(str.strip, statements.split(";\n")))
    if not names:
        return None
    texts = [["NULL" if value is None else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    lines = [rule, _line([name.ljust(width) for name, width in zip(names, widths, strict=True)]), rule]
    for row, values in zip(texts, rows, strict=True):
        pairs = zip(row, values, widths, strict=True)
        lines.append(_line([t.ljust(w) if isinstance(v, str) else t.rjust(w) for t, v, w in pairs]))
    return "\n".join([*lines, rule])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
