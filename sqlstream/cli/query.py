"""`sqlstream query`: run a state query and write its rows as a table, CSV or JSON."""

from __future__ import annotations

from sqlstream.project import find_project
from sqlstream.session.project_query import open_project_query
from sqlstream.session.rendering import show_relation
from sqlstream.session.stopping import InterruptedBySignals


def show(sql: str, form: str, output: str | None, project: str | None, warehouse: str | None) -> None:
    """Run a state query and write its rows to the terminal, or into a file; `form` is table, csv or json."""
    with InterruptedBySignals() as interrupted:
        relation = open_project_query(find_project(project, warehouse), sql, opened=interrupted.opened)
        show_relation(relation, form, output, sql)
