"""Completion at the cursor: keywords, relations, columns, functions, options, jobs, and the shell's own commands."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document

from sqlstream.errors import SourceText
from sqlstream.session.known_names import KnownNames, KnownRelation
from sqlstream.sql.cutting import cut

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WITH", "AS", "JOIN", "LEFT JOIN", "ON"),
    *("INSERT INTO", "VALUES", "CREATE TABLE", "CREATE VIEW", "CREATE FUNCTION", "CREATE SAVEPOINT", "DROP TABLE"),
    *("DROP VIEW", "DROP FUNCTION", "DROP SAVEPOINT", "CREATE STATE CHECK", "DROP STATE CHECK", "SET", "RESET"),
    *("SHOW TABLES", "SHOW VIEWS", "SHOW FUNCTIONS", "SHOW JOBS", "SHOW SAVEPOINTS", "SHOW STATE CHECKS"),
    *("SHOW COLUMNS FROM", "SHOW CREATE TABLE", "SHOW CREATE VIEW", "SHOW ALL TABLES", "DESCRIBE", "DESCRIBE STATE"),
    *("EXPLAIN", "EXPLAIN PHYSICAL", "EXECUTE STATEMENT SET BEGIN", "END", "SUMMARIZE", "UNION ALL", "DISTINCT"),
    *("AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "CAST"),
    *("INTERVAL", "PARTITION BY", "OVER", "QUALIFY", "UNNEST", "LATERAL TABLE", "EXISTS", "DESCRIPTOR", "TABLE"),
    *("TUMBLE", "HOP", "CUMULATE", "SESSION", "WATERMARK FOR", "PRIMARY KEY", "NOT ENFORCED", "METADATA FROM"),
    *("AT (VERSION =>", "AT (TIMESTAMP =>", "AT (SAVEPOINT =>", "FOR SYSTEM_TIME AS OF", "IF EXISTS", "IF NOT EXISTS"),
)

_WORD = re.compile(r"[\w.]*$")
_RELATION_FOLLOWS = re.compile(
    r"\b(FROM|JOIN|DESCRIBE|DESC|SUMMARIZE|TABLE|VIEW|COLUMNS\s+IN)\s*\(?\s*[\w.]*$", re.IGNORECASE
)
_TARGET_FOLLOWS = re.compile(r"\bINSERT\s+INTO\s+[\w.]*$", re.IGNORECASE)
_JOB_FOLLOWS = re.compile(r"\b(FOR\s+JOB|DESCRIBE\s+STATE)\s+[\w.]*$", re.IGNORECASE)
# An open string: the text before it determines what it is.
_OPEN_STRING = re.compile(r"'([\w.-]*)$")
_SET_FOLLOWS = re.compile(r"^\s*(SET|RESET)\s+'[\w.-]*$", re.IGNORECASE)
_CONNECTOR_FOLLOWS = re.compile(r"'connector'\s*=\s*'[\w.-]*$", re.IGNORECASE)
_CONNECTOR = re.compile(r"'connector'\s*=\s*'([\w-]+)'", re.IGNORECASE)
_OPTION_FOLLOWS = re.compile(r"\bWITH\s*\((?:[^()']|'[^']*')*[(,]?\s*'[\w.-]*$", re.IGNORECASE)
_VALUE_FOLLOWS = re.compile(r"=\s*'[\w.-]*$")
_COMMAND = re.compile(r"^\s*\\(?P<name>\S*)(?P<rest>\s.*)?$", re.DOTALL)
_ALIAS = r"\b(?:FROM|JOIN|,)\s*{name}\s+(?:AS\s+)?(?P<alias>[A-Za-z_]\w*)"
_OF_JOBS = ("stop", "drop")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text that can replace the last `replaced` characters, and a description of it."""

    text: str
    about: str
    replaced: int


class Suggestions:
    """Suggests texts for the position of the cursor."""

    def __init__(self, names: KnownNames, commands: Mapping[str, str]):
        self._names, self._commands = names, commands

    def behind(self, text: str, following: str = "") -> list[Suggestion]:
        """Return suggestions for the position between `text` and the text that follows it, the likeliest first."""
        statement = cut(SourceText("shell", text)).rest.text
        if (command := _COMMAND.match(statement)) is not None:
            if command["rest"] is None:
                return list(_starting(command["name"], self._commands.items()))
            if command["name"] in _OF_JOBS:
                return self._of(_last_word(statement), self._names.jobs, "a job")
            if command["name"] == "d":
                return list(self._relations(_last_word(statement)))
            statement = command["rest"]
        if (opened := _OPEN_STRING.search(statement)) is not None and statement.count("'") % 2:
            return list(self._in_string(statement, opened[1]))
        return list(self._in_code(statement, _last_word(statement), following))

    def _in_string(self, statement: str, word: str) -> Iterator[Suggestion]:
        if _SET_FOLLOWS.search(statement):
            yield from _starting(word, self._names.options.items())
        elif _CONNECTOR_FOLLOWS.search(statement):
            yield from self._of(word, self._names.connectors, "a connector")
        elif _OPTION_FOLLOWS.search(statement) and not _VALUE_FOLLOWS.search(statement):
            connector = _CONNECTOR.search(statement)
            yield from _starting(word, self._names.table_options(connector and connector[1]).items())

    def _in_code(self, statement: str, word: str, following: str) -> Iterator[Suggestion]:
        if _TARGET_FOLLOWS.search(statement):
            yield from self._of(word, self._names.tables, "table")
        elif _JOB_FOLLOWS.search(statement):
            yield from self._of(word, self._names.jobs, "a job")
        elif _RELATION_FOLLOWS.search(statement):
            yield from self._relations(word)
        elif word or re.search(r"[(,]\s*$|\b(SELECT|WHERE|BY|ON|AND|OR)\s+$", statement, re.IGNORECASE):
            yield from self._columns(statement + following, word)
            if word:
                yield from self._words(word)

    def _relations(self, word: str) -> Iterator[Suggestion]:
        yield from _starting(word, ((r.name, r.kind) for r in self._names.relations))

    def _columns(self, statement: str, word: str) -> Iterator[Suggestion]:
        """Yield the columns of the relations in a statement, also behind a name or an alias and a dot."""
        named = [r for r in self._names.relations if _names(statement, r)]
        seen = set[str]()
        qualifier, dot, column = word.rpartition(".")
        for relation in named:
            if dot and qualifier.lower() not in (relation.name.lower(), *_aliases(statement, relation)):
                continue
            for name, type in relation.columns:
                if name.lower() not in seen and name.lower().startswith(column.lower()):
                    seen.add(name.lower())
                    yield Suggestion(name, f"{type} of {relation.name}", len(column))
        if dot or not word:
            return
        yield from _starting(word, ((r.name, r.kind) for r in named))

    def _words(self, word: str) -> Iterator[Suggestion]:
        yield from _starting(word, ((keyword, "") for keyword in KEYWORDS))
        yield from _starting(word, sorted(self._names.functions.items()))

    def _of(self, word: str, names: Iterable[str], about: str) -> list[Suggestion]:
        return list(_starting(word, ((name, about) for name in names)))


def _last_word(text: str) -> str:
    match = _WORD.search(text)
    return match[0] if match else ""


def _starting(word: str, names: Iterable[tuple[str, str]]) -> Iterator[Suggestion]:
    for name, about in names:
        if name.lower().startswith(word.lower()) and name.lower() != word.lower():
            yield Suggestion(name, about, len(word))


def _names(statement: str, relation: KnownRelation) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(relation.name)}(?![\w.])", statement, re.IGNORECASE) is not None


def _aliases(statement: str, relation: KnownRelation) -> list[str]:
    pattern = _ALIAS.format(name=re.escape(relation.name))
    return [match["alias"].lower() for match in re.finditer(pattern, statement, re.IGNORECASE)]


class SqlCompleter:
    """Suggestions for prompt_toolkit, which needs only these two methods."""

    def __init__(self, suggestions: Suggestions):
        self._suggestions = suggestions

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """Yield a completion for each suggestion at the cursor of a document."""
        # The columns of all relations of the statement, also of those behind the cursor.
        for one in self._suggestions.behind(document.text_before_cursor, document.text_after_cursor):
            yield Completion(one.text, start_position=-one.replaced, display_meta=one.about)

    async def get_completions_async(self, document: Document, event: CompleteEvent) -> AsyncIterator[Completion]:
        """Yield the same as `get_completions`."""
        for completion in self.get_completions(document, event):
            yield completion
