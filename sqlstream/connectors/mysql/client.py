"""PyMySQL, which talks to MySQL and MariaDB servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlstream.catalog import Table
from sqlstream.connectors.extras import imported
from sqlstream.errors import BindError, missing

SCHEMES = ("mysql", "mariadb")
# The query parameters that a URL may have.
_PARAMETERS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")
# The SQL mode of sessions: a value that does not fit is an error, double quotes enclose names, and 0 is stored as 0.
_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO"
# What PyMySQL is told of every connection.
SESSION = {"charset": "utf8mb4", "connect_timeout": 10, "program_name": "sqlstream"}
# Numbers of errors after which a retry may succeed: the connection is lost or refused, or another transaction has locked the
# rows, ..
_LOST = (0, 2002, 2003, 2006, 2013, 2055, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031)
_LOCKED = (1205, 1213)
# .. or the server begins or ends, has too many connections, or waits for its cluster.
_BUSY = (1040, 1047, 1053, 1077, 1080, 1203, 1226)
_PASSING = frozenset((*_LOST, *_LOCKED, *_BUSY))


def load(table: Table) -> ModuleType:
    """Return the module `pymysql`. Raises UsageError if it is not installed."""
    return imported(table, "mysql", ["pymysql"], called="PyMySQL")


def address(table: Table) -> dict[str, Any]:
    """Return the arguments of PyMySQL's `connect` for the URL of a table. Raises BindError if the URL is not valid."""
    at, form = table.option_span("url", value=True), "mysql://user:password@host:3306/database"
    try:
        url = urlsplit(table.options["url"])
        host, port = url.hostname, url.port
    except ValueError as error:
        raise BindError(f'table "{table.name}": the url is not one: {error}', at, hint=f"Write {form}.") from error
    if url.scheme not in SCHEMES:
        raise BindError(f'table "{table.name}": the url is not one of a MySQL server', at, hint=f"Write {form}.")
    parameters: dict[str, Any] = dict(parse_qsl(url.query))
    for name in parameters:
        if name not in _PARAMETERS:
            hint = missing("parameter", name, _PARAMETERS)
            raise BindError(f'table "{table.name}": the url has the unknown parameter "{name}"', at, hint=hint)
    if "ssl_ca" in parameters:
        # With an authority in the URL, the server's certificate is verified.
        parameters |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    return {
        "host": host or "localhost",
        "port": port or 3306,
        "user": unquote(url.username or "") or None,
        "password": unquote(url.password or "").encode(),
        "database": unquote(url.path.lstrip("/")) or None,
        **parameters,
    }


def connect(table: Table, to: Mapping[str, Any] | None = None, **settings: Any) -> Any:
    """Open a session in autocommit mode: strict SQL mode, time zone UTC, isolation level READ COMMITTED.

    `to` has the arguments of `address`, if the table has no URL; `settings` are further arguments of PyMySQL's `connect`. Raises
    PyMySQL's errors, after 10 seconds without an answer.
    """
    pymysql = load(table)
    con = pymysql.connect(**(to or address(table)), **SESSION, autocommit=True, **settings)
    run(con, f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00'")
    # So jobs that write rows with different keys do not wait for each other.
    run(con, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return con


def run(con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement with values for its `%s`; return its rows, none if it has no result."""
    with con.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def is_passing(error: Exception) -> bool:
    """Whether a retry may succeed after an error of PyMySQL."""
    return bool(error.args) and error.args[0] in _PASSING


def reason(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error.args[-1] if error.args else error).split()) or "the connection is closed"
