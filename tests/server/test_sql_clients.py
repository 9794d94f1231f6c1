"""What `sqlstream serve --postgres PORT --flight PORT` adds to the server."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import adbc_driver_manager
import psycopg
import pytest

from sqlstream.errors import UsageError
from sqlstream.queries.query import QueryLimits
from sqlstream.server.access import Role, Tokens
from sqlstream.server.serve import opened_service
from sqlstream.server.settings import Address, Limits, parse_address
from tests.kafka_broker import free_port
from tests.queries.small_job import SmallJob
from tests.server.flight.conftest import connect, fetch
from tests.server.serving import await_idle, settings_of

TOKEN = "a token that is long enough"


@pytest.mark.slow
def test_each_role_may_query_and_nobody_else(tmp_path: Path) -> None:
    SmallJob(tmp_path / "warehouse").batch([("a", 1, 10)], [("a", 1)])
    tokens = Tokens(((sha256(TOKEN.encode()).digest(), Role.READ),))
    settings = replace(settings_of(tmp_path), postgres=free_port(), tokens=tokens)
    said: list[str] = []
    with opened_service(settings, said.append):
        url = f"host=127.0.0.1 port={settings.postgres} user=bi"
        assert said[-1] == f"PostgreSQL's clients: host=127.0.0.1 port={settings.postgres}"
        with psycopg.connect(url, password=TOKEN) as con:
            assert con.execute("SELECT k, n FROM state.hourly.departures").fetchall() == [("a", 1)]
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(url, password="another")
        # The port is taken.
        with pytest.raises(UsageError, match="cannot be listened on"), opened_service(settings, said.append):
            pass
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url, password=TOKEN)


@pytest.mark.slow
def test_flight_sql_has_the_tokens_and_the_limits_of_the_server(tmp_path: Path) -> None:
    SmallJob(tmp_path / "warehouse").batch([("a", 1, 10)], [("a", 1)])
    tokens = Tokens(((sha256(TOKEN.encode()).digest(), Role.READ),))
    flight = Address(free_port())
    limits = Limits(query_seconds=0.5, query=QueryLimits(memory=64 << 20, spilled=0))
    settings = replace(settings_of(tmp_path), flight=flight, tokens=tokens, limits=limits)
    said: list[str] = []
    with opened_service(settings, said.append) as service:
        await_idle(service.queries._reader._processes)
        url = f"grpc://127.0.0.1:{flight.port}"
        assert said[-1] == f"Arrow Flight SQL: {url}"
        with connect(url, username="bi", password=TOKEN) as connection, connection.cursor() as cursor:
            assert fetch(cursor, "SELECT k, n FROM state.hourly.departures") == [("a", 1)]
            with pytest.raises(connection.Error, match=r"longer than 0\.5 s"):
                fetch(cursor, "SELECT count(*) FROM range(1000000000000) r WHERE r.range % 7 = 3")
            with pytest.raises(connection.Error, match="failed to allocate data"):
                fetch(cursor, "SELECT list(repeat('x', 1000)) FROM range(1000000)")
        with pytest.raises(adbc_driver_manager.Error, match="UNAUTHENTICATED"):
            connect(url, username="bi", password="another token that is long")
    with pytest.raises(adbc_driver_manager.Error, match=r"(?i)refused"):
        connect(url, username="bi", password=TOKEN)


def test_an_address_for_flight_sql(tmp_path: Path) -> None:
    assert parse_address(31337) == Address(31337)
    assert parse_address("0.0.0.0:1") == Address(1, "0.0.0.0")
    for text in ("", "host", "host:", "::1:5", "70000", "[::1]", "-1"):
        with pytest.raises(UsageError, match="is no port, and no host and port"):
            parse_address(text)
    # It is another address than that of the server, which may be open while the server is not.
    settings = replace(settings_of(tmp_path), flight=Address(0, "0.0.0.0"))
    with pytest.raises(UsageError, match=r'would listen on "0\.0\.0\.0" without tokens and without TLS'):
        settings.check()
    replace(settings, flight=Address(0, "::1")).check()
    replace(settings, flight=Address(0, "0.0.0.0"), insecure=True).check()
