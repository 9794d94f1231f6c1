"""Options of tables from outside of CREATE TABLE: from `--set-table`, `Session` and the hint OPTIONS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.connectors.tables import identifying_options, translated_options
from sqlstream.errors import BindError, Span, UsageError, missing
from sqlstream.logical.plan.graph import rebuilt
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.tables import STARTUP, Scan
from sqlstream.sql.nodes import CreateTable, OptionValue


def changed(table: str, options: Mapping[str, str], overrides: Mapping[str, str], span: Span | None) -> dict[str, str]:
    """Return the options of a table after `overrides` replace or add options; an empty value removes an option.

    Options of Flink become those of the connector here. Raises BindError at `span` if an empty value stands for an option
    that the table does not have.
    """
    result = dict(options)
    for name, value in overrides.items():
        if value:
            result[name] = value
        elif name in result:
            del result[name]
        else:
            hint = missing("option", name, options)
            raise BindError(f'table "{table}" has no option "{name}" to remove', span, hint=hint)
    return {key: value for key, (value, _) in translated_options(table, result, lambda name: span).items()}


def translated(statement: CreateTable) -> CreateTable:
    """Return CREATE TABLE with the options of connectors here, if it has those of Flink's `jdbc`, `iceberg` or `delta`.

    Raises UnsupportedError for a table that has no counterpart.
    """

    def span_of(name: str) -> Span:
        option = statement.options.get(name)
        return option.span if option is not None else statement.name.span

    values = {key: option.value for key, option in statement.options.items()}
    plain = translated_options(statement.name.text, values, span_of)
    options = {key: replace(statement.options[origin], value=value) for key, (value, origin) in plain.items()}
    return replace(statement, options=options)


class TableOptions:
    """The options that a session sets for tables from outside their declarations, by name in any case.

    Files of tables that scripts declare must be in one of the folders `within`; without folders, anywhere.
    """

    def __init__(self, by_table: Mapping[str, Mapping[str, str]]):
        self._options = {name.lower(): dict(options) for name, options in by_table.items()}
        self._names = {name.lower(): name for name in by_table}
        self.within: tuple[str, ...] = ()

    def of(self, table: str) -> Mapping[str, str]:
        """Return the options of a table, by name in any case; empty if there are none."""
        return self._options.get(table.lower(), {})

    @property
    def by_table(self) -> Mapping[str, Mapping[str, str]]:
        """The options by table, whose names are spelled as they were set."""
        return {name: self._options[key] for key, name in self._names.items()}

    @property
    def starting(self) -> Mapping[str, Mapping[str, str]]:
        """The options that set where a job begins to read tables, by table in lower case; tables without them are left out."""
        starts = {
            table: {key: value for key, value in options.items() if key.startswith(STARTUP)}
            for table, options in self._options.items()
        }
        return {table: options for table, options in starts.items() if options}

    def declared(self, statement: CreateTable) -> CreateTable:
        """Return a CREATE TABLE statement with the table's options applied; unchanged if it has LIKE.

        Raises BindError if an empty value stands for an option that the statement does not have.
        """
        overrides = self.of(statement.name.text)
        if not overrides or statement.like is not None:
            # The options that LIKE adds are not known yet.
            return statement
        name = statement.name
        values = {key: value.value for key, value in statement.options.items()}
        options = {
            key: statement.options[key] if values.get(key) == value else OptionValue(value, name.span)
            for key, value in changed(name.text, values, overrides, name.span).items()
        }
        return replace(statement, options=options)

    def check(self, tables: Iterable[str]) -> None:
        """Raise UsageError if options are set for a table that is not among `tables`."""
        existing = list(tables)
        names = {name.lower() for name in existing}
        for key, name in self._names.items():
            if key not in names:
                hint = missing("table", name, existing)
                raise UsageError(f'options are given for table "{name}", which does not exist', hint=hint)


def lasting(sinks: Iterable[Node]) -> list[Node]:
    """Return plans whose scans have only those options that must not change while a job lives (see `identifying_options`).

    Options about the rate of reading, watching for new files, malformed rows, and paths outside of the project are removed. Two
    scans of a table that differ only in such options stay different: the second one gets an option "use".
    """
    variants: list[tuple[Table, list[Table]]] = []

    def alike(table: Table) -> Table:
        options = dict(identifying_options(table))
        plain = replace(table, options=options)
        group = next((tables for other, tables in variants if other == plain), None)
        if group is None:
            group = []
            variants.append((plain, group))
        if table not in group:
            group.append(table)
        number = group.index(table) + 1
        return plain if number == 1 else replace(plain, options={**plain.options, "use": str(number)})

    def stripped(node: Node) -> Node:
        return replace(node, table=alike(node.table)) if isinstance(node, Scan) else node

    return [rebuilt(sink, stripped) for sink in sinks]
