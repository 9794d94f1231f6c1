"""The options of a `postgres-cdc` table, in the spelling of Flink's connector, and their parsed values."""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import Table
from sqlstream.connectors.options import COUNT, DURATION, NUMBER, TEXT, OptionType, TableOption
from sqlstream.connectors.postgres_cdc.server import ServedTable
from sqlstream.errors import BindError
from sqlstream.units import Duration, parse_duration


def _one_of(*words: str) -> OptionType:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f'"{text}" is not one of {", ".join(words)}')
        return text

    return OptionType(" or ".join(words), parse)


_MOST, _INTERVAL, _RETRIES = "source.max-rows-per-batch", "source.monitor-interval", "connect.max-retries"
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
        _one_of("initial", "latest-offset"),
        "`initial`: all rows that there are, then changes; `latest-offset`: only changes, from now on or from where a slot is",
        "initial",
    ),
    TableOption(
        "scan.bounded.mode",
        _one_of("unbounded", "latest-offset"),
        "`latest-offset`: the table ends with the changes that there are when the job begins",
        "unbounded",
    ),
    TableOption(
        "scan.on-truncate",
        _one_of("fail", "ignore"),
        "what a TRUNCATE of the table does: the job fails, or goes on with the rows as they were",
        "fail",
        mutable=True,
    ),
    TableOption(_INTERVAL, DURATION, "how often to look for changes", "500 ms", mutable=True),
    TableOption(
        _MOST, COUNT, "how many changes a batch reads, at least: a transaction is not cut", "100000", mutable=True
    ),
    TableOption(
        _RETRIES,
        NUMBER,
        "how often a server that is away is asked again, each time after a longer wait",
        "10",
        mutable=True,
    ),
)
_PARTS = {"hostname": "host", "port": "port", "username": "user", "password": "password", "database-name": "dbname"}


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The parsed options of a table.

    Without a `snapshot` the job reads only changes, not the rows before them. A batch ends after the transaction with the
    `most`th change, as transactions are not cut. `retries` is how often a lost connection is tried again.
    """

    place: ServedTable
    slot: str | None
    publication: str | None
    snapshot: bool
    bounded: bool
    skips_truncate: bool
    interval: Duration
    most: int
    retries: int

    @classmethod
    def of(cls, table: Table) -> CdcSettings:
        """Return the settings of a table whose options are valid."""
        options = {o.name: o.default for o in OPTIONS} | dict(table.options)
        return cls(
            ServedTable(_url(table), options["schema-name"], options["table-name"]),
            options["slot.name"] or None,
            options["publication.name"] or None,
            options["scan.startup.mode"] == "initial",
            options["scan.bounded.mode"] == "latest-offset",
            options["scan.on-truncate"] == "ignore",
            parse_duration(options[_INTERVAL]),
            int(options[_MOST]),
            int(options[_RETRIES]),
        )


def validate(table: Table) -> None:
    """Raise BindError for the option `url` beside one of its parts, such as `hostname`."""
    both = sorted(set(_PARTS) & set(table.options)) if "url" in table.options else []
    if both:
        message = f'table "{table.name}" has both "url" and "{both[0]}"'
        raise BindError(message, table.option_span(both[0]), hint="The url says it: leave one of them out.")


def _url(table: Table) -> str:
    from psycopg.conninfo import make_conninfo

    if "url" in table.options:
        return table.options["url"]
    return str(make_conninfo("", **{_PARTS[name]: value for name, value in table.options.items() if name in _PARTS}))
