"""What `sqlstream serve --postgres PORT` adds to the server."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from sqlstream.errors import UsageError
from sqlstream.server.access import Role, Tokens
from sqlstream.server.serve import opened_service
from sqlstream.testing.kafka_broker import free_port
from tests.queries.small_job import SmallJob
from tests.server.serving import settings_of

TOKEN = "a token that is long enough"


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
