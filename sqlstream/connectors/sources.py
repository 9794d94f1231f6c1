"""Opens the driver's side of a source by the connector of its table."""

from __future__ import annotations

import time

from sqlstream.catalog import Table
from sqlstream.connectors.datagen.source import Generator
from sqlstream.connectors.discovery import Context, Discovery, Position
from sqlstream.connectors.filesystem.splits import FileDiscovery, Seen
from sqlstream.connectors.generated_rows import RowDiscovery
from sqlstream.connectors.nexmark.source import Settings
from sqlstream.connectors.python.source import PartitionDiscovery
from sqlstream.connectors.socket.source import SocketDiscovery
from sqlstream.connectors.splits import Offsets
from sqlstream.connectors.values.source import ValuesDiscovery
from sqlstream.connectors.warehouse.source import TableDiscovery


def open_discovery(table: Table, position: Position, context: Context) -> Discovery:
    """Return what finds the input of a table."""
    match table.connector:
        case "filesystem":
            assert isinstance(position, Seen)
            return FileDiscovery.of(table, project=context.project, parallelism=context.parallelism, seen=position)
        case "values":
            assert isinstance(position, Seen)
            return ValuesDiscovery(position)
    assert isinstance(position, Offsets)
    match table.connector:
        case None:
            return TableDiscovery(table, position, context)
        case "datagen":
            generator = Generator(table)
            return RowDiscovery(position, context, total=generator.total, rate=generator.rate)
        case "nexmark":
            events = Settings.of(table)
            base = events.base if events.base is not None else context.remember("base", int(time.time() * 1000))
            return RowDiscovery(
                position, context, total=events.total, rate=events.rate if events.limited else None, base=base
            )
        case "socket":
            return SocketDiscovery(table, position, context)
        case "python":
            return PartitionDiscovery(table, position, context)
    raise TypeError(f'connector "{table.connector}" is no source')
