"""The options of a `postgres-cdc` table, in the spelling of Flink's connector, and their parsed values."""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import Table
from sqlstream.connectors.cdc.options import BOUNDED, READING, Reading, check_address, on_truncate, one_of
from sqlstream.connectors.options import COUNT, TEXT, TableOption
from sqlstream.connectors.postgres_cdc.server import ServedTable

OPTIONS = (
    TableOption(
        "url",
        TEXT,
        "the connection string of libpq; or `hostname` and those that follow it",
        required=True,
        example="postgresql://user@localhost/database",
        mutable=True,
    ),
    TableOption("hostname", TEXT, "the server", instead_of="url", mutable=True),
    TableOption("port", COUNT, "its port", "5432", mutable=True),
    TableOption("username", TEXT, "the user, with the right of REPLICATION", mutable=True),
    TableOption("password", TEXT, "the user's password", mutable=True),
    TableOption("database-name", TEXT, "the database"),
    TableOption("schema-name", TEXT, "the schema of the table", "public"),
    TableOption("table-name", TEXT, "the table", required=True, example="orders"),
    TableOption("slot.name", TEXT, "the replication slot; without it the job makes one with a name of its own"),
    TableOption("publication.name", TEXT, "a publication that has the table; without it the job makes one"),
    TableOption(
        "scan.startup.mode",
        one_of("initial", "latest-offset"),
        "`initial`: all rows that there are, then changes; `latest-offset`: only changes, from now on or from where a slot is",
        "initial",
    ),
    BOUNDED,
    on_truncate("a TRUNCATE of the table"),
    *READING,
)
_PARTS = {"hostname": "host", "port": "port", "username": "user", "password": "password", "database-name": "dbname"}


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The parsed options of a table.

    Without a `snapshot` the job reads only changes, not the rows before them.
    """

    served_table: ServedTable
    slot: str | None
    publication: str | None
    snapshot: bool
    reading: Reading

    @classmethod
    def of(cls, table: Table) -> CdcSettings:
        """Return the settings of a table whose options are valid."""
        options = {o.name: o.default for o in OPTIONS} | dict(table.options)
        return cls(
            ServedTable(_url(table), options["schema-name"], options["table-name"]),
            options["slot.name"] or None,
            options["publication.name"] or None,
            options["scan.startup.mode"] == "initial",
            Reading.of(options),
        )


def validate(table: Table) -> None:
    """Raise BindError for the option `url` beside one of its parts, such as `hostname`."""
    check_address(table, _PARTS)


def _url(table: Table) -> str:
    from psycopg.conninfo import make_conninfo

    if "url" in table.options:
        return table.options["url"]
    return str(make_conninfo("", **{_PARTS[name]: value for name, value in table.options.items() if name in _PARTS}))
