"""The tables that a query can read, as clients of SQL list them."""

from __future__ import annotations

from dataclasses import dataclass

TABLES = """
SELECT database, schema, name, column_names, column_types FROM (SHOW ALL TABLES)
WHERE database NOT LIKE '@%' ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table that a query can read: `state.hourly` and `counts`, or `main` and the name of a table of the warehouse."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def is_view(self) -> bool:
        """Whether it shows what is kept elsewhere: state, and what is known about jobs."""
        return self.schema != "main"


def listed_table(database: str, schema: str, name: str, columns: list[str], types: list[str]) -> ListedTable:
    """Return a table of the rows of `TABLES`."""
    schema = schema if database == "memory" else f"{database}.{schema}"
    return ListedTable(schema, name, tuple(zip(columns, types, strict=True)))
