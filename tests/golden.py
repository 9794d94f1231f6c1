"""Golden scripts: what a `*.slt` file says, and how a case of it runs.

A file is a prelude, shared by its cases, and cases that start with `case <name>`, each with a warehouse of its own. A record
is a verb at the start of a line, SQL or rows below it, and, after `----`, what must come out; a blank line ends it.

    statement            run the SQL
    batch <table>        one micro-batch of rows, and the empty ones that become due
    tick <table> <time>  move the table's watermark without a row
    finish               end the input
    advance <ms>         move the processing time
    restart [here|same]  go on in a new process, with another parallelism, and in another warehouse, into which savepoints in
                         folders bring the jobs; `here` in the same warehouse, with its older versions; `same` with the same
                         parallelism, too. On Spark they stay in their warehouse.
    query [<table>]      rows of the SQL, or of the table; sorted as text, unless the SQL has ORDER BY
    state <operator>     the operator's view, with the names of its columns, but for those that show the processing time
    output [<job>]       what a job that prints has printed
    explain [<stage>]    the plan of the SQL
    answer               what SHOW or DESCRIBE says
    error [<verb> ..]    the text of the error that `statement`, or another verb, ends with
    in-process           what follows shows the runner's own clock: the case is not for Spark
    slow                 the case takes many times as long as most: `make quick` leaves it out, `make test` takes a few of those

Rows are comma-separated; NULL is NULL, and a time without a date is on 2026-01-01, in rows as in results.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from sqlstream.catalog import AnyFunction
from sqlstream.compiler.catalog_answers import Answer
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.functions.kinds import declare_any
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.session.explaining import explained
from sqlstream.sql.statements import parse_script
from tests.saved_streams import SavedStream

DAY = date(2026, 1, 1)
# A case begins with 3 tasks, and goes on with these, one after the other.
PARALLELISMS = (2, 5, 1, 3)
CLOCKED = ("_updated_at", "_expires_at")
VERBS = (
    "statement",
    "batch",
    "tick",
    "finish",
    "advance",
    "restart",
    "query",
    "state",
    "output",
    "explain",
    "answer",
    "error",
    "in-process",
    "slow",
)
_VERB = re.compile(rf"({'|'.join(VERBS)})( \S.*)?")
# What `batch` wrote has a name that nobody knows before.
_FED = re.compile(r'file "[^"]*\.parquet"')
_WORD = re.compile(r"\w+")
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?(\+00)?")

Row = tuple[Any, ...]


class Runner(Protocol):
    """What a case needs of whatever runs it; rows are texts or None, times are texts that DuckDB reads."""

    def statement(self, sql: str) -> None: ...

    def batch(self, table: str, rows: list[list[str | None]]) -> None: ...

    def tick(self, table: str, time: str) -> None: ...

    def advance(self, milliseconds: int) -> None: ...

    def finish(self) -> None: ...

    def restart(self, where: str) -> None: ...

    def query(self, sql: str) -> list[Row]: ...

    def output(self, job: str | None) -> list[Row]: ...

    def explain(self, sql: str, stage: str) -> str: ...

    def in_process(self) -> None: ...

    def answer(self, sql: str) -> list[Row]: ...

    def close(self) -> None: ...


@cache
def _declared(function: Callable[..., Any]) -> AnyFunction:
    return declare_any(function)


def named(case: Case, functions: Iterable[Callable[..., Any]]) -> list[Callable[..., Any]]:
    """Return the functions that a case names: to register all of them takes longer than many a case.

    A case that lists the functions gets all.
    """
    text = "\n".join(line for record in case.records for line in (*record.body, *record.expected)).lower()
    words = {*_WORD.findall(text)}
    lists = "show functions" in text or "duckdb_functions" in words
    return [function for function in functions if lists or _declared(function).name.lower() in words]


class InProcess:
    """Runs a case in this process, without a JVM."""

    def __init__(self, functions: Sequence[Callable[..., Any]] = ()):
        self.stream = SavedStream("", options={"parallelism.default": "3"}, parallelism=3)
        self.stream.compiler.add_functions([_declared(function) for function in functions])
        self._parallelism = cycle(PARALLELISMS)

    def statement(self, sql: str) -> None:
        self.stream.script(sql, "sql")

    def batch(self, table: str, rows: list[list[str | None]]) -> None:
        self.stream.advance(1000)
        self.stream.batch(table, rows)

    def verify(self) -> int:
        """Compare what the jobs have written with batches over what they have read; return how many could be compared.

        Raises Different for rows that nothing explains.
        """
        compared = 0
        for job in self.stream.runs:
            # Some have written nothing yet, or what cannot be read; of others no batch says what they do.
            with suppress(CannotVerify, UsageError):
                report = self.stream.verify(job)
                compared += 1
                if not report:
                    raise Different(str(report))
        return compared

    def tick(self, table: str, time: str) -> None:
        self.stream.tick(table, time)

    def advance(self, milliseconds: int) -> None:
        self.stream.advance(milliseconds)

    def finish(self) -> None:
        self.stream.finish()

    def restart(self, where: str) -> None:
        match where:
            case "same":
                self.stream.restart()
            case "here":
                self.stream.restart(next(self._parallelism))
            case _:
                self.stream.move(next(self._parallelism))

    def query(self, sql: str) -> list[Row]:
        return self.stream.query(sql)

    def output(self, job: str | None) -> list[Row]:
        return self.stream.rows(job)

    def explain(self, sql: str, stage: str) -> str:
        planned = [self.stream.compile(statement) for statement in parse_script(SourceText("sql", sql))]
        return "\n".join(explained(job, stage) for job in planned if isinstance(job, PlannedJob))

    def answer(self, sql: str) -> list[Row]:
        [asked] = [self.stream.compile(statement) for statement in parse_script(SourceText("sql", sql))]
        assert isinstance(asked, Answer)
        return [asked.columns, *asked.rows]

    def in_process(self) -> None:
        """It is."""

    def close(self) -> None:
        self.stream.close()


@dataclass
class Record:
    """A verb with its argument, the lines below it, and the lines that must come out: `expected` in `at[0]:at[1]`."""

    line: int
    verb: str
    argument: str
    body: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    # Where the lines after `----` are; an empty range where they would go.
    at: tuple[int, int] = (0, 0)


@dataclass
class Case:
    name: str
    line: int
    records: list[Record] = field(default_factory=list)


def parse(path: Path) -> list[Case]:
    """Return the cases of a file, each with the file's prelude before it."""
    prelude = Case("", 0)
    cases = [prelude]
    record: Record | None = None
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line.strip():
            record = None
        elif line.startswith("case "):
            record = None
            cases.append(Case(line.removeprefix("case ").strip(), number))
        elif line == "----" and record is not None:
            start = number
            while number < len(lines) and lines[number].strip():
                number += 1
            record.expected, record.at = lines[start:number], (start, number)
            record = None
        elif found := _VERB.fullmatch(line):
            record = Record(number, found[1], (found[2] or "").strip())
            cases[-1].records.append(record)
        elif record is not None and not (line.startswith("#") and not record.body):
            record.body.append(line)
        elif not line.startswith("#"):
            raise SyntaxError(f"{path}:{number}: a line outside of a record: {line}")
    for case in cases[1:]:
        case.records[:0] = prelude.records
    return cases[1:] or [prelude]


def run(case: Case, runner: Runner) -> Iterator[tuple[Record, list[str]]]:
    """Run a case; yield each record that shows something, and what it shows."""
    for record in case.records:
        if record.verb != "error":
            shown = execute(record, runner)
        else:
            verb, _, argument = (record.argument or "statement").partition(" ")
            try:
                execute(Record(record.line, verb, argument, record.body), runner)
                shown = ["no error"]
            except SqlStreamError as error:
                shown = _FED.sub('file "fed"', error.render()).splitlines()
        if shown is not None:
            yield record, shown


class Different(Exception):
    """A case did not show what it should."""


def compare(path: Path, record: Record, shown: list[str]) -> None:
    """Raise Different unless a record shows what it should."""
    if shown != record.expected:
        difference = difflib.unified_diff(record.expected, shown, "expected", "shown", lineterm="", n=99)
        raise Different(f"{path}:{record.line}\n" + "\n".join(difference))


def shown_by(case: Case, runner: Runner, *, verifies: bool = True) -> Iterator[tuple[Record, list[str]]]:
    """Run a case as `run` does, verify its jobs if they ran in this process, and close the runner."""
    try:
        yield from run(case, runner)
        if verifies and isinstance(runner, InProcess):
            runner.verify()
    finally:
        runner.close()


def execute(record: Record, runner: Runner) -> list[str] | None:
    """Run one record and return what it shows, None where it is not to show anything."""
    text, argument = "\n".join(record.body), record.argument
    match record.verb:
        case "statement":
            runner.statement(text)
        case "batch":
            runner.batch(argument, [_cells(line) for line in record.body])
        case "tick":
            table, _, time = argument.partition(" ")
            runner.tick(table, _dated(time) or "")
        case "advance":
            runner.advance(int(argument))
        case "finish":
            runner.finish()
        case "restart":
            if argument not in ("", "here", "same"):
                raise SyntaxError(f"line {record.line}: restart where? {argument}")
            runner.restart(argument)
        case "query":
            rows = runner.query(text or f"FROM {argument}")
            return list(map(written, rows)) if "ORDER BY" in text else sorted(map(written, rows))
        case "state":
            view = f"state.{argument if '.' in argument else f'{_job_of(argument, runner)}.{argument}'}"
            names = [name for row in runner.query(f"DESCRIBE FROM {view}") if (name := str(row[0])) not in CLOCKED]
            listed = ", ".join(f'"{name}"' for name in names)
            return [", ".join(names), *sorted(map(written, runner.query(f"SELECT {listed} FROM {view}")))]
        case "in-process":
            runner.in_process()
        case "slow":
            # For whoever chooses cases.
            pass
        case "output":
            return sorted(map(written, runner.output(argument or None)))
        case "explain":
            return runner.explain(text, argument or "optimized").splitlines()
        case "answer":
            rows = runner.answer(text)
            # The text of a definition has lines of its own.
            return str(rows[1][0]).splitlines() if rows[0][0].startswith("create ") else list(map(written, rows))
        case verb:
            raise SyntaxError(f"line {record.line}: no such verb: {verb}")
    return None


def _job_of(operator: str, runner: Runner) -> str:
    jobs = runner.query(f"SELECT job FROM sqlstream.operators WHERE operator = '{operator}'")
    return str(jobs[-1][0]) if jobs else "nothing"


def updated(text: str, records: Iterable[tuple[Record, list[str]]]) -> str:
    """Return a file's text with what its records showed in the place of what they were to show."""
    lines = text.splitlines()
    for record, shown in sorted(records, key=lambda r: -r[0].line):
        start, end = record.at
        if start == 0:
            start = end = record.line + len(record.body)
            lines[start:end] = ["----", *shown]
        else:
            lines[start:end] = shown
    return "\n".join(lines) + "\n"


def _cells(line: str) -> list[str | None]:
    [cells] = csv.reader([line], skipinitialspace=True)
    return [_dated(cell.strip()) for cell in cells]


def _dated(text: str) -> str | None:
    return None if text == "NULL" else f"{DAY} {text}" if _TIME.fullmatch(text) else text


def written(row: Row) -> str:
    """Return a row as a line."""
    return ", ".join(map(_written, row))


def _written(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case datetime():
            zone = "+00" if value.tzinfo else ""
            moment = (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None)
            text = str(moment.time()) if moment.date() == DAY else str(moment)
            return text + zone
        case str():
            return f'"{value}"' if value in ("", "NULL") or "," in value or value != value.strip() else value
        case _:
            return str(value)
