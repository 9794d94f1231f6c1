"""Fed tables: tables without a connector that no job writes, whose rows come from a test or a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import UsageError
from sqlstream.sql.nodes import AlterTable, CreateTable, Drop, Insert, RenameTable, Statement, StatementSet


class FedTables:
    """Compiles statements, and turns tables without a connector that no job writes into fed tables: they get `options`.

    `replaced` maps each declared table to the table to use in its place. If that table has a problem, jobs can write it, but it
    cannot be fed.
    """

    def __init__(
        self,
        compiler: Compiler,
        options: Callable[[Table], Mapping[str, str]],
        replaced: Callable[[Table], Table] = lambda table: table,
    ):
        self._compiler, self._options, self._replaced = compiler, options, replaced
        # Fed tables as they were declared; tables that jobs write; tables that jobs of this script will write.
        self._declared: dict[str, Table] = {}
        self._written: set[str] = set()
        self._expected: set[str] = set()
        # The first job that reads each fed table.
        self._readers: dict[str, str] = {}

    @property
    def names(self) -> set[str]:
        """The names of the fed tables, in lower case."""
        return set(self._declared)

    def expect(self, statements: Iterable[Statement]) -> None:
        """Set the statements that come next: tables that they write are not fed, even if a job reads them earlier."""
        self._expected = {name.lower() for statement in statements for name in _targets(statement)}

    def feed_catalog(self) -> None:
        """Make fed tables of the tables that are declared already."""
        for table in list(self._compiler.catalog.tables.values()):
            self._feed(table.name)

    def compile(self, statement: Statement) -> Compiled | None:
        """Compile a statement, as `Compiler.statement` does. Raises UsageError if a job writes a fed table that another reads."""
        if isinstance(statement, CreateTable | Drop):
            self._declare_again(statement.name.text)
        for name in _targets(statement):
            self._declare_again(name)
        planned = self._compiler.statement(statement)
        match statement:
            case CreateTable():
                self._feed(statement.name.text)
            case AlterTable(change=RenameTable(new)):
                self._declared.pop(statement.name.text.lower(), None)
                self._feed(new.text)
            case AlterTable():
                self._feed(statement.name.text)
            case Drop():
                self._readers.pop(statement.name.text.lower(), None)
        if isinstance(planned, PlannedJob):
            self._note(planned)
        return planned

    def _note(self, planned: PlannedJob) -> None:
        """Remember which tables a job reads and writes. Raises UsageError if it writes a fed table that another job reads."""
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
        """Restore the declaration of a fed table: it is not fed any more."""
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
