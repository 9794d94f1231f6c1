"""Ports a Flink script: which of its statements run, what is noticed about them, and what to write instead of the others.

Each statement is compiled by itself, and nothing starts or is created. So one that is refused does not hide those behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.registry import exists, options_instead
from sqlstream.connectors.tables import options_today
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.secrets import hidden
from sqlstream.sql.nodes import CreateTable, CreateView, OptionValue, Statement
from sqlstream.sql.statements import parse_script

# A statement runs; runs once its tables have connectors that exist here; is refused; or waits for one that is refused.
Outcome: TypeAlias = Literal["runs", "connector", "refused", "waits"]

_WORDS: dict[Outcome, str] = {
    "runs": "runs",
    "connector": "runs once its connector is replaced",
    "refused": "is refused",
    "waits": "waits for line {}",
}
# What hides a semicolon: comments, texts and quoted names.
_PIECE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|;", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
_SET = re.compile(r"\s*(?:EXECUTE\s+STATEMENT\s+SET|BEGIN\s+STATEMENT\s+SET)\b", re.IGNORECASE)
_END = re.compile(r"\s*END\s*", re.IGNORECASE)
# The name that a refused statement would have declared.
_DECLARES = re.compile(
    r"\s*CREATE\s+(?:OR\s+(?:REPLACE|ALTER)\s+)?(?:TEMP(?:ORARY)?\s+)?(?:SYSTEM\s+)?(?:MATERIALIZED\s+)?"
    r"(?:TABLE|VIEW|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w.`\"]+)",
    re.IGNORECASE,
)
_ABSENT = re.compile(r'(?:table|function) "([^"]+)" does not exist')


@dataclass(frozen=True, slots=True)
class PortedStatement:
    """A statement of a script: its characters `start` to `end`, its first line (from 1), and what became of it.

    `problem` says why it is refused. `declares` is the name that it declares, in lower case. `instead` is the text that runs in
    its position; None for a statement that runs as it is, or that nothing replaces.
    """

    start: int
    end: int
    line: int
    text: str
    outcome: Outcome
    problem: SqlStreamError | None = None
    notices: tuple[SqlStreamError, ...] = ()
    waits_for: int | None = None
    declares: str | None = None
    instead: str | None = None
    is_query: bool = False

    @property
    def first_line(self) -> str:
        """The statement's first line without comments, and with stars in place of secrets."""
        return hidden(_code(self.text)).strip().partition("\n")[0].rstrip()


@dataclass(frozen=True, slots=True)
class PortedScript:
    """A script with its statements, in order."""

    source: SourceText
    statements: tuple[PortedStatement, ...]

    def count(self, *outcomes: Outcome) -> int:
        """Return how many statements have one of the outcomes."""
        return sum(one.outcome in outcomes for one in self.statements)

    @property
    def text(self) -> str:
        """The statements that do not run as they are, or about which something is noticed, and a line with the counts."""
        blocks = [_block(one) for one in self.statements if one.problem is not None or one.notices]
        counts = [f"{self.count('runs')} of {len(self.statements)} statements run as they are"]
        if connectors := self.count("connector"):
            counts.append(f"{connectors} once their connectors are replaced")
        if others := self.count("refused", "waits"):
            counts.append(f"{others} do not")
        return "\n\n".join([*blocks, ", ".join(counts)])

    @property
    def json(self) -> str:
        """The statements with their outcomes, and the counts, as a text of JSON."""
        statements = [
            {
                "line": one.line,
                "statement": one.first_line,
                "outcome": one.outcome,
                "problem": one.problem and {"message": one.problem.message, "hint": one.problem.hint},
                "notices": [{"message": notice.message, "hint": notice.hint} for notice in one.notices],
                "waits_for": one.waits_for,
            }
            for one in self.statements
        ]
        counts = {outcome: self.count(outcome) for outcome in _WORDS}
        return json.dumps({"statements": statements, "counts": counts}, indent=2)

    @property
    def script(self) -> str:
        """A script that runs: refused statements are comments, with the reason; other connectors are left out."""
        text, parts, at = self.source.text, list[str](), 0
        for one in self.statements:
            parts.append(text[at : one.start])
            parts.append(_ported(one))
            at = one.end
            if one.outcome in ("refused", "waits") and text[at : at + 1] == ";":
                at += 1
        return "".join([*parts, text[at:]])


def port(source: SourceText, compiler: Compiler) -> PortedScript:
    """Return what becomes of each statement of a script, as the compiler's session would run it."""
    return PortedScript(source, tuple(_Porter(source, compiler).statements()))


@dataclass(slots=True)
class _Porter:
    """Compiles the statements of a script one by one, and remembers what those that are refused would have declared."""

    source: SourceText
    compiler: Compiler
    # The lines of the statements that would have declared a name.
    absent: dict[str, int] = field(default_factory=dict)

    def statements(self) -> Iterator[PortedStatement]:
        notices: list[SqlStreamError] = []
        warn, self.compiler.warn = self.compiler.warn, notices.append
        try:
            for start, end in cut(self.source.text):
                notices.clear()
                one = self._ported(start, end)
                yield replace(one, notices=(*notices, *one.notices))
        finally:
            self.compiler.warn = warn

    def _ported(self, start: int, end: int) -> PortedStatement:
        text = self.source.text[start:end]
        line = self.source.text.count("\n", 0, start) + 1
        one = PortedStatement(start, end, line, text, "runs", declares=_declared(text), is_query=_is_query(text))
        alone = _alone(self.source, start, end)
        try:
            parsed = parse_script(alone)
            return replace(one, notices=tuple(self._compile(parsed)))
        except SqlStreamError as error:
            if (without := self._without_connector(one, alone)) is not None:
                return replace(without, problem=error)
            if (at := self._waits_for(error)) is not None:
                return replace(self._refused(one), outcome="waits", problem=error, waits_for=at)
            return replace(self._refused(one), outcome="refused", problem=error)

    def _compile(self, statements: Sequence[Statement]) -> Iterator[SqlStreamError]:
        for statement in statements:
            compiled = self.compiler.statement(statement)
            if isinstance(compiled, PlannedJob):
                yield from compiled.warnings
            if isinstance(statement, CreateTable | CreateView):
                self.absent.pop(statement.name.text.lower(), None)

    def _without_connector(self, one: PortedStatement, alone: SourceText) -> PortedStatement | None:
        """Compile a table of a connector that does not exist here as a table of the warehouse; None if that fails, too."""
        try:
            [statement] = parse_script(alone)
            if not isinstance(statement, CreateTable) or not _is_foreign(statement):
                return None
            options = self._options_instead(statement)
        except (SqlStreamError, ValueError):
            return None
        declared = statement.options.values()
        keys = [option.key_span or option.span for option in declared]
        first = self.source.text.rfind("(", one.start, min(span.start for span in keys))
        word = re.search(r"\bWITH\s*\Z", self.source.text[one.start : first], re.IGNORECASE)
        last = self.source.text.find(")", max(option.span.end for option in declared), one.end)
        if word is None or last < 0:
            return None
        begin = one.start + word.start()
        listed = ",\n".join(f"  '{key}' = {_as_written(option)}" for key, option in options.items())
        written = f" WITH (\n{listed}\n)" if options else ""
        instead = self.source.text[one.start : begin].rstrip() + written + self.source.text[last + 1 : one.end].rstrip()
        return replace(one, outcome="connector", instead=instead)

    def _options_instead(self, statement: CreateTable) -> dict[str, OptionValue]:
        """Return options with which a table runs here; it is declared then. Raises a SqlStreamError if it does not."""
        today = options_today({key: option.value for key, option in statement.options.items()})
        if today is not None:
            options = {name: replace(statement.options[key], value=value) for name, (value, key) in today.items()}
            with suppress(SqlStreamError):
                self._compile_plain(replace(statement, options=options))
                return options
        named = statement.options.get("connector")
        own = options_instead(named.value if named is not None else "", statement.name.text)
        options = {key: OptionValue(value, statement.name.span) for key, value in own.items()}
        self._compile_plain(replace(statement, options=options))
        return options

    def _compile_plain(self, statement: CreateTable) -> None:
        for _ in self._compile([statement]):
            pass

    def _refused(self, one: PortedStatement) -> PortedStatement:
        if one.declares is not None:
            self.absent[one.declares] = one.line
        return one

    def _waits_for(self, error: SqlStreamError) -> int | None:
        match = _ABSENT.match(error.message)
        return self.absent.get(match[1].lower()) if match else None


def cut(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each statement of a text, which may be invalid; a statement set is one, up to its END.

    >>> text = "SET 'a;b' = 'c'; -- d;\\nSELECT 1;;"
    >>> [text[start:end] for start, end in cut(text)]
    ["SET 'a;b' = 'c'", 'SELECT 1']
    """
    ends = [match.start() for match in _PIECE.finditer(text) if match[0] == ";"]
    start, first, is_set = 0, 0, False
    for end in (*ends, len(text)):
        code = _code(text[start:end])
        if code.strip():
            if not is_set:
                first = start + len(code) - len(code.lstrip())
                is_set = bool(_SET.match(code))
            if not is_set or _END.fullmatch(code) or end == len(text):
                yield first, start + len(code.rstrip())
                is_set = False
        start = end + 1


def _code(text: str) -> str:
    """Return a text with blanks in the place of its comments, except hints; all other characters keep their places."""
    return _PIECE.sub(lambda m: _blank(m[0]) if _COMMENT.fullmatch(m[0]) else m[0], text)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _alone(source: SourceText, start: int, end: int) -> SourceText:
    """Return a source in which all but the characters `start` to `end` is blank, so that positions in it stay the same."""
    return SourceText(source.name, _blank(source.text[:start]) + source.text[start:end] + _blank(source.text[end:]))


def _declared(text: str) -> str | None:
    match = _DECLARES.match(_code(text))
    return match["name"].replace("`", "").replace('"', "").rpartition(".")[2].lower() if match else None


def _is_query(text: str) -> bool:
    """Return whether a statement computes something: INSERT, SELECT, a statement set, or a table that is made of a query."""
    return bool(
        re.match(r"\s*(INSERT|SELECT|WITH|EXECUTE\s+(STATEMENT|INSERT)|BEGIN\s+STATEMENT)\b", _code(text), re.I)
    ) or bool(re.match(r"\s*CREATE\b.*\bTABLE\b.*\bAS\s+(SELECT|WITH)\b", _code(text), re.IGNORECASE | re.DOTALL))


def _is_foreign(statement: CreateTable) -> bool:
    """Return whether a table has a connector that does not exist here, or the options of Flink before 1.11."""
    named = statement.options.get("connector")
    return "connector.type" in statement.options if named is None else not exists(named.value)


def _as_written(option: OptionValue) -> str:
    """Return the value of an option in quotes; one of the script as this has it, with variables that are not replaced."""
    source = option.span.source
    start, end = source.as_written(option.span.start, option.span.end)
    text = (source.text if source.written is None else source.written)[start:end]
    has_variable = text[1:-1] != option.value and "${" in text
    return text if has_variable else "'" + option.value.replace("'", "''") + "'"


def _block(one: PortedStatement) -> str:
    lines = [f"line {one.line}: {one.first_line}", f"  {_WORDS[one.outcome].format(one.waits_for)}"]
    problems = [*((one.problem,) if one.problem is not None and one.outcome != "waits" else ()), *one.notices]
    lines += [f"  {line}" for problem in problems for line in problem.render().split("\n")]
    return "\n".join(lines)


def _ported(one: PortedStatement) -> str:
    """Return the text that stands for a statement in the script that runs."""
    if one.outcome == "runs" or one.problem is None:
        return one.text
    reason = [f"{one.problem.kind}: {one.problem.message}", *([one.problem.hint] if one.problem.hint else [])]
    head = "".join(f"-- port: {line}\n" for line in reason)
    if one.instead is not None:
        return f"{head}{one.instead}"
    return head + "\n".join(f"-- {line}".rstrip() for line in one.text.splitlines())
