"""The tables that queries can read, as SQL clients list them."""

from __future__ import annotations

from dataclasses import dataclass

TABLES = """
SELECT database, schema, name, column_names, column_types FROM (SHOW ALL TABLES)
WHERE database NOT LIKE '@%' ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A readable table: schema and name are `state.hourly` and `counts`, or `main` and a table of the warehouse."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def is_view(self) -> bool:
        """Whether clients see it as a view: true for state and `sqlstream.*`, false for tables of the warehouse."""
        return self.schema != "main"


def listed_table(database: str, schema: str, name: str, columns: list[str], types: list[str]) -> ListedTable:
    """Return the table that a row of the query TABLES describes."""
    schema = schema if database == "memory" else f"{database}.{schema}"
    return ListedTable(schema, name, tuple(zip(columns, types, strict=True)))
