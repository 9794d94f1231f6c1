"""The tables that CREATE TABLE and ALTER TABLE declare, checked, and with their options from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlstream.catalog import Catalog, Table
from sqlstream.compiler.alterations import altered, whole
from sqlstream.compiler.binding import bound_table
from sqlstream.compiler.notices import Notices
from sqlstream.compiler.table_options import TableOptions, changed, translated
from sqlstream.connectors.inference import only_named, with_columns, without_columns
from sqlstream.connectors.tables import check_usable, own_location, usable, validate, without_flinks
from sqlstream.errors import Span, SqlStreamError, StatementWarning
from sqlstream.logical.bind.queries import Binder
from sqlstream.secrets import remember, shown
from sqlstream.sql.nodes import AlterTable, CreateTable, OptionValue


class DeclaredTables:
    """Makes tables of statements, and remembers the statements, which ALTER TABLE changes.

    `binder` returns what binds the next statement. Without `plans_jobs`, tables of connectors of other packages have only a name.
    """

    def __init__(
        self,
        catalog: Catalog,
        options: TableOptions,
        notices: Notices,
        binder: Callable[[], Binder],
        *,
        project: str,
        plans_jobs: bool,
    ):
        self._catalog, self._options, self._notices, self._binder = catalog, options, notices, binder
        self._project, self._plans_jobs = project, plans_jobs
        # Whether they are of a catalog file: then errors that depend on the machine are raised when a job uses the table.
        self.in_catalog = False
        # Called with the name, options and position of each table whose options a script sets, before anything is opened; may
        # raise.
        self.check: Callable[[str, Mapping[str, str], Span | None], None] = lambda name, options, span: None
        # Whole statements of the tables, see `whole`, by name in lower case.
        self._statements: dict[str, CreateTable] = {}

    def remember(self, statement: CreateTable, table: Table) -> None:
        """Remember the statement that has declared a table."""
        source = self._statements.get(statement.like.table.text.lower()) if statement.like is not None else None
        self._statements[table.name.lower()] = whole(statement, table, source)

    def forget(self, name: str) -> None:
        """Forget the statement of a table."""
        self._statements.pop(name.lower(), None)

    def take_over(self, other: DeclaredTables) -> None:
        """Remember also the statements that `other` remembers."""
        self._statements = {**other._statements, **self._statements}

    def altered(self, statement: AlterTable) -> tuple[CreateTable, Table]:
        """Return the statement and the table that ALTER TABLE makes of a table, of which a statement is remembered.

        Raises BindError and UnsupportedError, as for CREATE TABLE.
        """
        before = self._statements[statement.name.text.lower()]
        # What is wrong with the table as a whole is wrong here.
        here = replace(before, name=replace(before.name, span=statement.name.span))
        declaration = altered(here, statement)
        return declaration, self.table(declaration)

    def table(self, statement: CreateTable) -> Table:
        """Return the table of a CREATE TABLE statement, with its options from outside applied."""
        name = statement.name.text
        statement = self._with_own_location(statement)
        overrides = self._options.of(name)
        for options in ({key: value.value for key, value in statement.options.items()}, overrides):
            remember(options)
        try:
            declared = translated(self._options.declared(statement))
            remember({key: option.value for key, option in declared.options.items()})
            self.check(name, {k: option.value for k, option in declared.options.items()}, statement.name.span)
            if not self._plans_jobs and (placeholder := only_named(declared)) is not None:
                return placeholder
            try:
                declared = with_columns(declared, self._project, self._options.within)
            except SqlStreamError as error:
                # In a catalog file the error is raised when a job uses the table.
                placeholder = without_columns(declared, error) if self.in_catalog else None
                if placeholder is None:
                    raise
                validate(self._without_flinks(placeholder))
                return placeholder
            table = replace(bound_table(declared, self._binder()), within=self._options.within)
            if statement.like is not None:
                table = replace(table, options=changed(name, table.options, overrides, table.span))
                self.check(name, table.options, statement.name.span)
            table = self._without_flinks(table)
            validate(table)
            table = self._usable(table)
        except SqlStreamError as error:
            if overrides:
                settings = ", ".join(f"'{key}' = '{shown(key, value)}'" for key, value in overrides.items())
                error.detail = error.detail or f'From outside, table "{name}" was given {settings}.'
            raise
        return table

    def _with_own_location(self, statement: CreateTable) -> CreateTable:
        """Return a statement with the options that LIKE must not take from another table, see `own_location`."""
        like = statement.like
        source = self._statements.get(like.table.text.lower()) if like is not None else None
        if source is None or like is None or like.merges["OPTIONS"] == "EXCLUDING":
            return statement
        name, taken_over = statement.name, {**source.options, **statement.options}
        location = own_location(name.text, {key: option.value for key, option in taken_over.items()})
        added = {key: OptionValue(value, name.span) for key, value in location.items()}
        return replace(statement, options={**statement.options, **added})

    def with_options(
        self, table: Table, overrides: Mapping[str, str], span: Span, warn: Callable[[SqlStreamError], None]
    ) -> Table:
        """Return a table with the options of a query's hint OPTIONS; errors point at the hint."""
        remember(overrides)
        options = changed(table.name, table.options, overrides, span)
        for key, value in self._options.of(table.name).items():
            if key in overrides and overrides[key] != value:
                message = f'the hint goes over the "{key}" that table "{table.name}" was given from outside'
                warn(StatementWarning(message, span))
        self.check(table.name, options, span)
        # Options of the hint have their position there; the others keep their positions.
        option_spans = {name: location for name, location in table.option_spans.items() if name not in overrides}
        variant = replace(table, options=options, span=span, option_spans=option_spans, within=self._options.within)
        variant = self._without_flinks(variant)
        validate(variant)
        if any(table.options.get(key) != variant.options.get(key) for key in ("connector", "class", "function")):
            variant = self._usable(replace(variant, problem=None))
        return replace(variant, span=table.span, option_spans=table.option_spans)

    def _without_flinks(self, table: Table) -> Table:
        """Return a table without the options of Flink that need nothing; a notice says so of each."""
        table, notices = without_flinks(table)
        if self.in_catalog:
            self._notices.keep(table.name, notices)
        else:
            self._notices.give(notices)
        return table

    def _usable(self, table: Table) -> Table:
        """Return a table with its implementation; if it is not usable, raise, or in a catalog file record the problem."""
        table = usable(table)
        broken = self._catalog.broken
        if table.problem is not None and broken and table.problem.detail is None:
            table.problem.detail = "\n".join(f"{error.message}." for error in broken)
        if not self.in_catalog:
            check_usable(table)
        return table
