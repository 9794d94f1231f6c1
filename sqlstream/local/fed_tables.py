"""Tables that somebody feeds by hand: those without a connector that no job writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import UsageError
from sqlstream.sql.nodes import CreateTable, Drop, Insert, Statement, StatementSet


class FedTables:
    """Compiles statements so that a table without a connector which nobody writes gets the options given for it.

    `replaced` says what a declared table is taken for. One that it returns with a problem can be written, but not fed.
    """

    def __init__(
        self,
        compiler: Compiler,
        options: Callable[[Table], Mapping[str, str]],
        replaced: Callable[[Table], Table] = lambda table: table,
    ):
        self._compiler, self._options, self._replaced = compiler, options, replaced
        # Tables that are fed, as they were declared; those that jobs write, and those that jobs of this script will.
        self._declared: dict[str, Table] = {}
        self._written: set[str] = set()
        self._expected: set[str] = set()
        # The first job that reads each table that is fed.
        self._readers: dict[str, str] = {}

    @property
    def names(self) -> set[str]:
        """The tables that are fed."""
        return set(self._declared)

    def expect(self, statements: Iterable[Statement]) -> None:
        """Learn which tables the statements write that come next: a job that reads one may come before."""
        self._expected = {name.lower() for statement in statements for name in _targets(statement)}

    def feed_catalog(self) -> None:
        """Let the tables that are declared already be fed."""
        for table in list(self._compiler.catalog.tables.values()):
            self._feed(table.name)

    def compile(self, statement: Statement) -> Compiled | None:
        if isinstance(statement, CreateTable | Drop):
            self._declare_again(statement.name.text)
        for name in _targets(statement):
            self._declare_again(name)
        planned = self._compiler.statement(statement)
        match statement:
            case CreateTable():
                self._feed(statement.name.text)
            case Drop():
                self._readers.pop(statement.name.text.lower(), None)
        if isinstance(planned, PlannedJob):
            self._note(planned)
        return planned

    def _note(self, planned: PlannedJob) -> None:
        """Note what a job reads and writes. Raises UsageError if it writes what another one reads as fed."""
        for sink in planned.physical.sinks:
            if (reader := self._readers.get(sink.table.name.lower())) is not None:
                message = (
                    f'table "{sink.table.name}" is fed: job "{reader}", which reads it, would not get what a job writes'
                )
                hint = "Put both jobs into one script, in any order: then the one reads what the other writes."
                raise UsageError(message, hint=hint)
        self._written |= {sink.table.name.lower() for sink in planned.physical.sinks}
        for scan in planned.physical.scans:
            if scan.table.name.lower() in self._declared:
                self._readers.setdefault(scan.table.name.lower(), planned.name)

    def _feed(self, name: str) -> None:
        table = self._compiler.catalog.relation(name)
        if not isinstance(table, Table) or (plain := self._replaced(table)).connector is not None:
            return
        declared = replace(plain, problem=None) if plain is not table else table
        if name.lower() in self._written | self._expected:
            self._compiler.catalog.add(declared)
            return
        self._declared[name.lower()] = declared
        self._compiler.catalog.add(replace(plain, options={**plain.options, **self._options(plain)}))

    def _declare_again(self, name: str) -> None:
        """Make a table what its declaration says."""
        if (table := self._declared.pop(name.lower(), None)) is not None:
            self._compiler.catalog.add(table)


def _targets(statement: Statement) -> list[str]:
    """Return the tables that a statement writes."""
    match statement:
        case Insert():
            return [statement.target.text]
        case StatementSet():
            return [insert.target.text for insert in statement.inserts]
    return []
