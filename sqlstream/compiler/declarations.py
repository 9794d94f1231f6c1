"""The declarations of scripts. A job's record stores the ones that the job needs, for readers that have only the warehouse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlstream.compiler.table_options import TableOptions
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span
from sqlstream.secrets import secret_spans, shown
from sqlstream.sql.nodes import CreateTable, CreateView, Statement, head

_VARIABLE = re.compile(r"\$\{[^}:]*\}|\$\{file:[^}]*\}")


def checked_definition(statement: Statement) -> CreateTable | CreateView:
    """Return a statement of a catalog file if it is CREATE TABLE or CREATE VIEW. Raises BindError for any other."""
    if not isinstance(statement, CreateTable | CreateView):
        raise BindError(
            "a catalog file holds CREATE TABLE, CREATE VIEW and CREATE FUNCTION only",
            head(statement),
            hint="Put it into a script, and run that.",
        )
    return statement


@dataclass(frozen=True, slots=True)
class Script:
    """The part of a script that a job needs beside its statement, without secrets: variables of the environment are not replaced.

    `declarations` are statements in their order, `options` are set with SET, `tables` are further options by table (see
    TableOptions). Files of the tables must be in one of the folders `within`.
    """

    declarations: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    within: tuple[str, ...] = ()


class Declarations:
    """The texts of statements that declare tables, views and functions, by name in lower case."""

    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}
        # The CREATE DATABASE statements, by name in lower case: a table may have the same name.
        self._databases: dict[str, str] = {}

    def add_text(self, name: str, text: str | None) -> None:
        """Record a text as the declaration of a name, in place of an earlier one; None for a text with a secret."""
        self.forget(name)
        self._texts[name.lower()] = text

    def add_database(self, name: str) -> None:
        """Record that a database was created."""
        self._databases[name.lower()] = f"CREATE DATABASE IF NOT EXISTS {quote_name(name)}"

    def add(self, name: str, span: Span, before: str = "") -> None:
        """Record the statement at `span`, with a text before it, as the declaration of a name, in place of an earlier one."""
        text = text_without_secrets(span)
        self.add_text(name, None if text is None else f"{before}{text}")

    def alter(self, name: str, new_name: str, span: Span, before: str = "") -> None:
        """Add the statement at `span`, with a text before it, to the declaration of a name, which becomes that of `new_name`.

        A table of the project's catalog has no other declaration here.
        """
        key, text = name.lower(), text_without_secrets(span)
        earlier = self._texts.pop(key, "")
        is_public = earlier is not None and text is not None
        self.add_text(new_name, f"{earlier}{';' if earlier else ''}\n{before}{text}".lstrip() if is_public else None)

    def forget(self, name: str) -> None:
        """Remove the declaration of a name, if there is one."""
        self._texts.pop(name.lower(), None)

    def needed(self, sql: str) -> dict[str, str | None]:
        """Return the declarations that a statement needs, directly or through other declarations, by name.

        The value is None for a declaration with a secret. Any occurrence of a name in the text `sql` counts, so there may be
        more declarations than the statement needs.
        """
        names = set[str]()
        texts = [sql.lower()]
        while texts:
            text = texts.pop()
            for name in self._texts.keys() - names:
                if name in text:
                    names.add(name)
                    texts.append((self._texts[name] or "").lower())
        relations = {name: text for name, text in self._texts.items() if name in names}
        named = "\n".join([sql, *(text or "" for text in relations.values())]).lower()
        databases = {f"database {name}": text for name, text in self._databases.items() if name in named}
        return {**databases, **relations}


def script_of(sql: str, declarations: Declarations, options: Mapping[str, str], tables: TableOptions) -> Script | None:
    """Return the part of its script that the statement `sql` of a job needs; None if it has secrets, which are never stored."""
    needed = declarations.needed(sql)
    texts = [text for text in needed.values() if text is not None]
    named = "\n".join([sql, *texts]).lower()
    of_tables = {table: dict(settings) for table, settings in tables.by_table.items() if table.lower() in named}
    if len(texts) < len(needed) or any(not _is_public(settings) for settings in of_tables.values()):
        return None
    public = {key: value for key, value in options.items() if _is_public({key: value})}
    return Script(tuple(texts), public, of_tables, tables.within)


def _is_public(options: Mapping[str, str]) -> bool:
    return all(shown(key, value) == value for key, value in options.items())


def text_without_secrets(span: Span) -> str | None:
    """Return the text of a statement with its variables not replaced; None if it contains a secret."""
    source = span.source
    text = source.text if source.written is None else source.written
    start, end = source.as_written(span.start, span.end)
    for first, last in secret_spans(text):
        if start <= first < end and not _VARIABLE.fullmatch(text[first:last]):
            return None
    return text[start:end]
