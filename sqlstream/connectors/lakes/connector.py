"""Base classes of a lakehouse connector: options, the choice of a sink with or without a key, inferred columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.guarantees import Delivery, Rollback
from sqlstream.connectors.interface import Connector, SinkContext, TableSink
from sqlstream.connectors.lakes.columns import columns_of
from sqlstream.connectors.options import BOOLEAN, MAX_BYTES, MONITOR, NUMBER, TEXT, OptionType, TableOption
from sqlstream.errors import BindError
from sqlstream.units import parse_boolean

START_MODE = "scan.startup.mode"
SNAPSHOT, LATEST = "snapshot", "latest"
CREATE = TableOption(
    "sink.create-table", BOOLEAN, "`true`: a job that writes the table creates it, if it is not there", default="false"
)
# How fast a table is read.
PACE = (replace(MONITOR, mutable=True), MAX_BYTES)


class LakeSink(TableSink):
    """A lakehouse table that a job writes, with one commit per batch."""

    delivery = Delivery.TRANSACTIONAL
    rollback = Rollback.ROWS_STAY
    # Without a PRIMARY KEY the planner refuses changes, and says that one is missing.
    takes_changes = True
    replaces = True

    def ready(self, context: SinkContext) -> SinkContext:
        """Create the table if `sink.create-table` asks for it, check it, and return `context` as it is."""
        self.prepare(context, creates=parse_boolean(self.table.options.get(CREATE.name, "false")))
        return context

    @abstractmethod
    def prepare(self, context: SinkContext, *, creates: bool) -> None:
        """Create the table if it does not exist and the job `creates` it.

        Raises UsageError if there is no table then, or it cannot be written as declared.
        """


class LakeConnector(Connector):
    """A connector for one kind of lakehouse.

    `location_option` is the name of the option that locates a table. Options whose names begin with one of `passed_through` are
    settings of the library or of the created table. `unit` is the word for a commit in names of options, such as `scan.<unit>`:
    `version` or `snapshot-id`.
    """

    partitioned = True
    keyed_sink_type: ClassVar[type[TableSink]]
    location_option: ClassVar[str]
    passed_through: ClassVar[tuple[str, ...]]
    unit: ClassVar[str]

    @abstractmethod
    def schema(self, table: Table, project: str) -> pa.Schema:
        """Return the columns of the lakehouse table. Raises UsageError if there is none."""

    def sink(self, table: Table) -> TableSink | None:
        """Return a sink that replaces rows by key for a table with a PRIMARY KEY, else one that appends rows."""
        return self.keyed_sink_type(table) if table.primary_key else super().sink(table)

    def own_options(self, table: Table) -> Sequence[TableOption]:
        """Return an option for each name in the declaration that begins with a prefix of `passed_through`."""
        names = [name for name in table.options if name.startswith(self.passed_through)]
        return [TableOption(name, TEXT, "passed through") for name in names]

    def validate(self, table: Table) -> None:
        """Raise BindError for a fixed version beside monitoring or a start mode, or a start mode without its first version."""
        at, first = f"scan.{self.unit}", f"scan.startup.{self.unit}"
        for other in (MONITOR.name, START_MODE):
            if at in table.options and other in table.options:
                message = f'table "{table.name}": option "{at}" does not go with "{other}"'
                raise BindError(message, table.option_span(other), hint="Leave out one of them.")
        if (start_mode(table) == self.unit) != (first in table.options):
            one, other = f'"{START_MODE}" = "{self.unit}"', f'the option "{first}"'
            where = table.option_span(START_MODE, value=True)
            if first in table.options:
                one, other, where = other, one, table.option_span(first)
            raise BindError(f'table "{table.name}": {one} needs {other}', where, hint="Give both, or none.")

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        return columns_of(self.schema(table, project)) if self.can_infer(table) else None

    def can_infer(self, table: Table) -> bool:
        """Whether the table has the option `location_option`: its columns are known once the lakehouse table exists."""
        return self.location_option in table.options


def start_options(unit: str, meaning: str, first: str) -> tuple[TableOption, TableOption]:
    """Return the options `scan.startup.mode` and `scan.startup.<unit>`, which say where a new job begins to read.

    `meaning` and `first` are their lines in the manual.
    """

    def parse(text: str) -> str:
        modes = (SNAPSHOT, LATEST, unit)
        if text.lower() not in modes:
            raise ValueError(f'"{text}" is not one of {", ".join(modes)}')
        return text.lower()

    mode = TableOption(START_MODE, OptionType("mode", parse), meaning, default=SNAPSHOT)
    return mode, TableOption(f"scan.startup.{unit}", NUMBER, first)


def start_mode(table: Table) -> str:
    """Return the value of `scan.startup.mode`: `snapshot`, `latest` or the connector's `unit`."""
    return table.options.get(START_MODE, SNAPSHOT).lower()
