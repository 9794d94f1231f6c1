"""Options of tables from outside of CREATE TABLE: from `--set-table`, `Session` and the hint OPTIONS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.connectors.tables import identity
from sqlstream.errors import BindError, Span, UsageError, missing
from sqlstream.logical.plan.graph import rebuilt
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.tables import STARTUP, Scan
from sqlstream.sql.nodes import CreateTable, OptionValue


def changed(table: str, options: Mapping[str, str], given: Mapping[str, str], span: Span | None) -> dict[str, str]:
    """Return the options of a table with those of `given` over them; an empty value removes an option.

    Raises BindError at `span` for an option to remove that the table does not have.
    """
    found = dict(options)
    for name, value in given.items():
        if value:
            found[name] = value
        elif name in found:
            del found[name]
        else:
            hint = missing("option", name, options)
            raise BindError(f'table "{table}" has no option "{name}" to remove', span, hint=hint)
    return found


class TableOptions:
    """The options that a session sets for tables from outside their declarations, by name in any case.

    Files of tables that scripts declare must be in one of the folders `within`; without folders, anywhere.
    """

    def __init__(self, given: Mapping[str, Mapping[str, str]]):
        self._given = {name.lower(): dict(options) for name, options in given.items()}
        self._names = {name.lower(): name for name in given}
        self.within: tuple[str, ...] = ()

    def of(self, table: str) -> Mapping[str, str]:
        """Return the options of a table, by name in any case; empty if there are none."""
        return self._given.get(table.lower(), {})

    @property
    def given(self) -> Mapping[str, Mapping[str, str]]:
        """The options by table, whose names are spelled as they were set."""
        return {name: self._given[key] for key, name in self._names.items()}

    @property
    def starting(self) -> frozenset[str]:
        """The tables, in lower case, with an option that sets where a job begins to read them."""
        return frozenset(n for n, options in self._given.items() if any(key.startswith(STARTUP) for key in options))

    def declared(self, statement: CreateTable) -> CreateTable:
        """Return a CREATE TABLE statement with the table's options applied; unchanged if it has LIKE.

        Raises BindError for an option to remove that the statement does not have.
        """
        given = self.of(statement.name.text)
        if not given or statement.like is not None:
            # The options that LIKE adds are not known yet.
            return statement
        name = statement.name
        values = {key: value.value for key, value in statement.options.items()}
        options = {
            key: statement.options[key] if values.get(key) == value else OptionValue(value, name.span)
            for key, value in changed(name.text, values, given, name.span).items()
        }
        return replace(statement, options=options)

    def check(self, tables: Iterable[str]) -> None:
        """Raise UsageError for options of a table that is not among `tables`."""
        existing = list(tables)
        known = {name.lower() for name in existing}
        for key, name in self._names.items():
            if key not in known:
                hint = missing("table", name, existing)
                raise UsageError(f'options are given for table "{name}", which does not exist', hint=hint)


def lasting(sinks: Iterable[Node]) -> list[Node]:
    """Return plans whose scans have only those options that may not change while a job lives, see `identity`.

    Left out are options about the rate of reading, watching for new files, malformed rows, and paths outside of the project. Two
    scans of a table that differ only in such options stay different: the second one has an option "use".
    """
    variants: list[tuple[Table, list[Table]]] = []

    def alike(table: Table) -> Table:
        kept = dict(identity(table))
        plain = replace(table, options=kept)
        known = next((tables for other, tables in variants if other == plain), None)
        if known is None:
            known = []
            variants.append((plain, known))
        if table not in known:
            known.append(table)
        number = known.index(table) + 1
        return plain if number == 1 else replace(plain, options={**plain.options, "use": str(number)})

    def stripped(node: Node) -> Node:
        return replace(node, table=alike(node.table)) if isinstance(node, Scan) else node

    return [rebuilt(sink, stripped) for sink in sinks]
