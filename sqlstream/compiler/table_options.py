"""Options that tables have beside those of their CREATE TABLE: of `--set-table` and `Session`, and of the hint OPTIONS."""

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
    """Return options with others over them; an empty value takes one away, and raises BindError where there is none."""
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
    """What a session was told about its tables, by their names; case does not matter in these.

    Files of the tables that its scripts declare must lie `within` folders, if there are any.
    """

    def __init__(self, given: Mapping[str, Mapping[str, str]]):
        self._given = {name.lower(): dict(options) for name, options in given.items()}
        self._names = {name.lower(): name for name in given}
        self.within: tuple[str, ...] = ()

    def of(self, table: str) -> Mapping[str, str]:
        return self._given.get(table.lower(), {})

    @property
    def given(self) -> Mapping[str, Mapping[str, str]]:
        """The options by the names of their tables."""
        return {name: self._given[key] for key, name in self._names.items()}

    @property
    def starting(self) -> frozenset[str]:
        """The tables, in lower case, of which it was said from outside where to begin to read them."""
        return frozenset(n for n, options in self._given.items() if any(key.startswith(STARTUP) for key in options))

    def declared(self, statement: CreateTable) -> CreateTable:
        """Return a CREATE TABLE with the options that its table is to have."""
        given = self.of(statement.name.text)
        if not given or statement.like is not None:
            # What LIKE brings along is not known yet.
            return statement
        name = statement.name
        values = {key: value.value for key, value in statement.options.items()}
        options = {
            key: statement.options[key] if values.get(key) == value else OptionValue(value, name.span)
            for key, value in changed(name.text, values, given, name.span).items()
        }
        return replace(statement, options=options)

    def check(self, tables: Iterable[str]) -> None:
        """Raise UsageError for options of a table that does not exist."""
        existing = list(tables)
        known = {name.lower() for name in existing}
        for key, name in self._names.items():
            if key not in known:
                hint = missing("table", name, existing)
                raise UsageError(f'options are given for table "{name}", which does not exist', hint=hint)


def lasting(sinks: Iterable[Node]) -> list[Node]:
    """Return plans without what may change while a job lives: how fast tables are read, whether they are watched.

    Where files are outside of the project may change, too: they may move. A path in the project says which files are meant.

    Nor what they say about malformed rows: a job that failed at one may go on without it.

    A table that is read twice, with different options of these, stays two.
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
