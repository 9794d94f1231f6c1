"""`sqlstream diff` and `sqlstream why`: the changes of a state, and the content of a state for a key, for people."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import duckdb

from sqlstream.duck.sql import quote_name
from sqlstream.errors import UsageError
from sqlstream.project import find_project
from sqlstream.session.project_query import open_project_query
from sqlstream.session.rendering import printable, show_relation, write_rows, write_table
from sqlstream.session.state_tools import folders_in, run_own_sql

CHANGES = ("added", "removed", "changed")


def of_project(
    sql: str, versions: Sequence[str], project: str | None, warehouse: str | None
) -> duckdb.DuckDBPyRelation:
    """Return the rows of a query of the state tools; its versions may be folders of savepoints."""
    folders = folders_in(*versions)
    return run_own_sql(partial(open_project_query, find_project(project, warehouse), folders=folders), sql)


def show_diff(changes: duckdb.DuckDBPyRelation, form: str, output: str | None, limit: int) -> None:
    """Write the rows of a state that differ between two versions; a table on the terminal has at most `limit` (0: all)."""
    if form != "table" or output is not None:
        show_relation(changes, form, output)
        return
    counts = dict(changes.aggregate("change, count(*)", "change").fetchall())
    total = sum(counts.values())
    if total:
        rows = _side_by_side(changes)
        write_table(rows.limit(limit) if limit else rows, sys.stdout, count=False)
    summary = ", ".join(f"{counts[change]} {change}" for change in CHANGES if change in counts)
    rest = f"; the first {limit} are shown" if 0 < limit < total else ""
    print(f"({_count(total, 'row')}{f': {summary}' if summary else ''}{rest})")


def _side_by_side(changes: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return differences with the columns of the state; changed values are `old → new`."""
    items = ["change", "reason"]
    for name, _ in changes.types[2].children:
        column = quote_name(name)
        before, after = (f"coalesce(CAST({side}.{column} AS VARCHAR), 'NULL')" for side in ("before", "after"))
        changed = f"CASE WHEN {before} = {after} THEN {after} ELSE {before} || ' → ' || {after} END"
        items.append(
            f"CASE change WHEN 'added' THEN {after} WHEN 'removed' THEN {before} ELSE {changed} END AS {column}"
        )
    return changes.project(", ".join(items))


def show_why(explanation: duckdb.DuckDBPyRelation, form: str, output: str | None) -> None:
    """Write the content of a state for a key, and when it changes or is dropped."""
    if form != "table" or output is not None:
        show_relation(explanation, form, output)
        return
    rows = explanation.project("part, name, text, content::VARCHAR").fetchall()
    for (part, name), of in itertools.groupby(rows, key=lambda row: (row[0], row[1] if row[3] else None)):
        if name is None:
            for _, _, text, _ in of:
                print(printable(text))
            continue
        contents = [json.loads(content) for _, _, _, content in of]
        what = "rows of" if part == "state" else "last rows of"
        print(f"\n{what} {printable(name)}")
        names = list(dict.fromkeys(key for content in contents for key in content))
        write_rows(names, [[_text(content.get(key)) for key in names] for content in contents], sys.stdout)
        print()


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def key_of(words: Sequence[str]) -> Mapping[str, str | None] | Sequence[str | None]:
    """Return a key from words: values in the order of the key columns, or by `column=value`; the word NULL is None.

    Raises UsageError for a mixture of both, and for two values of a column.
    """
    if not any("=" in text for text in words):
        return [None if text == "NULL" else text for text in words]
    key: dict[str, str | None] = {}
    for text in words:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(
                f'"{text}" is not COLUMN=VALUE', hint="Write all of the key as origin=EWR, or no column at all."
            )
        if name in key:
            raise UsageError(f'key column "{name}" has two values')
        key[name] = None if value == "NULL" else value
    return key


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
