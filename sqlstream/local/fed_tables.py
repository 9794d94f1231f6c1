"""Tables that somebody feeds by hand: those without a connector that no job writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.sql.nodes import CreateTable, Drop, Insert, Statement, StatementSet


class FedTables:
    """Compiles statements so that a table without a connector which nobody writes gets the options given for it."""

    def __init__(self, compiler: Compiler, options: Callable[[Table], Mapping[str, str]]):
        self._compiler, self._options = compiler, options
        # Tables that are fed, as they were declared, and those that jobs write.
        self._declared: dict[str, Table] = {}
        self._written: set[str] = set()

    def compile(self, statement: Statement) -> Compiled | None:
        match statement:
            case CreateTable() | Drop():
                self._declare_again(statement.name.text)
            case Insert():
                self._declare_again(statement.target.text)
            case StatementSet():
                for insert in statement.inserts:
                    self._declare_again(insert.target.text)
        planned = self._compiler.statement(statement)
        if isinstance(planned, PlannedJob):
            self._written |= {sink.table.name.lower() for sink in planned.physical.sinks}
        if isinstance(statement, CreateTable):
            self._feed(statement.name.text)
        return planned

    def _feed(self, name: str) -> None:
        table = self._compiler.catalog.relation(name)
        if isinstance(table, Table) and table.connector is None and name.lower() not in self._written:
            self._declared[name.lower()] = table
            self._compiler.catalog.add(replace(table, options={**table.options, **self._options(table)}))

    def _declare_again(self, name: str) -> None:
        """Make a table what its declaration says."""
        if (table := self._declared.pop(name.lower(), None)) is not None:
            self._compiler.catalog.add(table)
