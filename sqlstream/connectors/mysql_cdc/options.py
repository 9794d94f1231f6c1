"""The options of a `mysql-cdc` table, in the spelling of Flink's connector, and their parsed values."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from sqlstream.catalog import Table
from sqlstream.connectors.cdc.options import BOUNDED, READING, Reading, check_address, on_truncate, one_of
from sqlstream.connectors.mysql import client
from sqlstream.connectors.options import COUNT, TEXT, OptionType, TableOption
from sqlstream.errors import BindError

_IDS = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?(\d\d))?")
_LARGEST_ID = 0xFFFFFFFF
_FILE, _POS = "scan.startup.specific-offset.file", "scan.startup.specific-offset.pos"


def _server_ids(text: str) -> tuple[int, int]:
    """Return the first and the last number of a range."""
    match = _IDS.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= _LARGEST_ID:
        raise ValueError(f'"{text}" is neither a number nor a range of numbers such as 5400-5404')
    return first, last


def _zone(text: str) -> str:
    """Return a time zone as DuckDB has it: a name, or minutes after UTC as `+480`."""
    if match := _OFFSET.fullmatch(text):
        return f"{match[1]}{int(match[2]) * 60 + int(match[3] or 0)}"
    try:
        return ZoneInfo(text).key
    except (ValueError, LookupError, OSError):
        raise ValueError(f'"{text}" is no time zone, such as Europe/Berlin or +08:00') from None


OPTIONS = (
    TableOption(
        "url",
        TEXT,
        "the server and the database; or `hostname` and those that follow it",
        required=True,
        example="mysql://user:password@localhost:3306/database",
        mutable=True,
    ),
    TableOption("hostname", TEXT, "the server", instead_of="url", mutable=True),
    TableOption("port", COUNT, "its port", "3306", mutable=True),
    TableOption("username", TEXT, "the user, with the right of REPLICATION SLAVE", mutable=True),
    TableOption("password", TEXT, "the user's password", mutable=True),
    TableOption("database-name", TEXT, "the database, if the url has none"),
    TableOption("table-name", TEXT, "the table", required=True, example="orders"),
    TableOption(
        "server-id",
        OptionType("numbers", _server_ids),
        "the number, or a range of them, by which the server knows the reader of its log; without it one by chance",
        mutable=True,
    ),
    TableOption(
        "server-time-zone",
        OptionType("time zone", _zone),
        "the time zone in which columns of type `timestamp` are read that are declared `TIMESTAMP`",
        "UTC",
    ),
    TableOption(
        "scan.startup.mode",
        one_of("initial", "latest-offset", "earliest-offset", "specific-offset", "snapshot"),
        "`initial`: all rows that there are, then changes; `latest-offset`: only changes from now on; `earliest-offset`: those "
        "that the server still has; `specific-offset`: those from a place; `snapshot`: only the rows that there are",
        "initial",
    ),
    TableOption(_FILE, TEXT, "the log file of the place, with `specific-offset`"),
    TableOption(_POS, COUNT, "the position of the place in the file", "4"),
    BOUNDED,
    on_truncate(
        "a TRUNCATE of the table, or another statement that takes its rows away or puts others in their place,"
    ),
    *READING,
)
_PARTS = {"hostname": "host", "port": "port", "username": "user", "password": "password"}


@dataclass(frozen=True, slots=True)
class BinlogSettings:
    """The parsed options of a table.

    `address` has the arguments of PyMySQL's `connect`. With `mode` "specific-offset", `file` and `offset` are the position.
    """

    address: Mapping[str, Any]
    database: str
    name: str
    server_ids: tuple[int, int] | None
    mode: str
    file: str
    offset: int
    reading: Reading

    @classmethod
    def of(cls, table: Table) -> BinlogSettings:
        """Return the settings of a table whose options are valid."""
        options = {o.name: o.default for o in OPTIONS} | dict(table.options)
        address = _address(table)
        reading, mode = Reading.of(options), options["scan.startup.mode"]
        return cls(
            address,
            options["database-name"] or address["database"] or "",
            options["table-name"],
            _server_ids(options["server-id"]) if options["server-id"] else None,
            mode,
            options[_FILE],
            int(options[_POS]),
            replace(reading, bounded=reading.bounded or mode == "snapshot"),
        )

    @property
    def has_snapshot(self) -> bool:
        """Whether the table begins with the rows that there are."""
        return self.mode in ("initial", "snapshot")

    def server_id(self) -> int:
        """Return a number for a reader of the log: no two that read at the same time may have the same one."""
        return random.randint(*(self.server_ids or (1 << 20, _LARGEST_ID)))


def zone(table: Table) -> str:
    """Return the time zone in which instants are read as TIMESTAMP, as `_zone` does."""
    return _zone(table.options.get("server-time-zone", "UTC"))


def validate(table: Table) -> None:
    """Raise BindError for options that contradict each other, or lack one."""
    check_address(table, _PARTS)
    settings = BinlogSettings.of(table)
    if not settings.database:
        hint = "Write it into WITH (..): 'database-name' = 'shop'."
        raise BindError(f'table "{table.name}" needs the option "database-name"', table.span, hint=hint)
    is_specific = settings.mode == "specific-offset"
    if is_specific and not settings.file:
        hint = f"Write it into WITH (..): '{_FILE}' = 'binlog.000001'. SHOW BINARY LOGS lists the files that there are."
        raise BindError(f'table "{table.name}" needs the option "{_FILE}"', table.span, hint=hint)
    for name in (_FILE, _POS):
        if name in table.options and not is_specific:
            message = (
                f"table \"{table.name}\": option \"{name}\" has no meaning with 'scan.startup.mode' = '{settings.mode}'"
            )
            hint = "Write 'scan.startup.mode' = 'specific-offset', or leave it out."
            raise BindError(message, table.option_span(name), hint=hint)


def _address(table: Table) -> dict[str, Any]:
    if "url" in table.options:
        return client.address(table)
    options = {"port": "3306", **table.options}
    parts = {argument: options[name] for name, argument in _PARTS.items() if name in options}
    database = table.options.get("database-name")
    return {**parts, "port": int(parts["port"]), "database": database}
