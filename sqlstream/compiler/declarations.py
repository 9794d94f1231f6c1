"""What scripts declare: kept beside a job, so that its tables are known to whoever has only the warehouse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlstream.compiler.table_options import TableOptions
from sqlstream.errors import BindError, Span
from sqlstream.secrets import places, shown
from sqlstream.sql.nodes import CreateTable, CreateView, Statement, head

_VARIABLE = re.compile(r"\$\{[^}:]*\}|\$\{file:[^}]*\}")


def checked_definition(statement: Statement) -> CreateTable | CreateView:
    """Return a statement of a catalog file that declares a table or a view. Raises BindError for any other."""
    if not isinstance(statement, CreateTable | CreateView):
        raise BindError(
            "a catalog file holds CREATE TABLE, CREATE VIEW and CREATE FUNCTION only",
            head(statement),
            hint="Put it into a script, and run that.",
        )
    return statement


@dataclass(frozen=True, slots=True)
class Script:
    """What a job needs of its script beside its statement: declarations in their order, options, and options of its tables.

    All without secrets: a variable of the environment stands as its name.
    """

    declarations: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    within: tuple[str, ...] = ()


class Declarations:
    """The statements of scripts that declare tables, views and functions, by their names."""

    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}

    def add(self, name: str, span: Span) -> None:
        """Know the statement that declares a name."""
        self.forget(name)
        self._texts[name.lower()] = text_without_secrets(span)

    def forget(self, name: str) -> None:
        self._texts.pop(name.lower(), None)

    def needed(self, sql: str) -> dict[str, str | None]:
        """Return the statements of the names in a text, and of the names in those; None for one with a secret."""
        found = set[str]()
        texts = [sql.lower()]
        while texts:
            text = texts.pop()
            for name in self._texts.keys() - found:
                if name in text:
                    found.add(name)
                    texts.append((self._texts[name] or "").lower())
        return {name: text for name, text in self._texts.items() if name in found}


def script_of(sql: str, declarations: Declarations, options: Mapping[str, str], tables: TableOptions) -> Script | None:
    """Return what a job with some SQL needs of its script; None where that has secrets, which nobody keeps."""
    needed = declarations.needed(sql)
    texts = [text for text in needed.values() if text is not None]
    named = "\n".join([sql, *texts]).lower()
    of_tables = {table: dict(given) for table, given in tables.given.items() if table.lower() in named}
    if len(texts) < len(needed) or any(not _is_public(given) for given in of_tables.values()):
        return None
    public = {key: value for key, value in options.items() if _is_public({key: value})}
    return Script(tuple(texts), public, of_tables, tables.within)


def _is_public(options: Mapping[str, str]) -> bool:
    return all(shown(key, value) == value for key, value in options.items())


def text_without_secrets(span: Span) -> str | None:
    """Return a statement as it was written, with the names of its variables; None where a secret stands in it."""
    source = span.source
    text = source.text if source.written is None else source.written
    start, end = source.as_written(span.start, span.end)
    for first, last in places(text):
        if start <= first < end and not _VARIABLE.fullmatch(text[first:last]):
            return None
    return text[start:end]
