"""`examples/shop`: its jobs over a short history, between a real broker, a real database and Delta tables, with a restart."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest

from sqlstream.testing import Stream
from tests.postgres_server import PostgresServer
from tests.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "shop"
MINUTES, PER_MINUTE = 16, 100


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Returns a module of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module


@pytest.mark.thorough
def test_every_result_is_that_of_all_messages_at_once(
    kafka: str,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: Callable[[str], ModuleType],
) -> None:
    events, generate, servers, answers = map(part, ("events", "generate", "servers", "answers"))
    database, prefix = postgres.database().url, f"shop-{uuid4().hex[:8]}-"
    for name, value in {"KAFKA": kafka, "POSTGRES": database, "LAKE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    servers.make_topics(kafka, prefix)
    servers.fill_database(database)
    messages = events.messages(11, MINUTES, PER_MINUTE)
    script = "\n".join((EXAMPLE / f"{name}.sql").read_text() for name in ("tables", "orders", "sessions"))
    parts = [messages[i : i + 250] for i in range(0, len(messages), 250)]
    sent = 0
    with Stream(script.replace("'topic' = '", f"'topic' = '{prefix}")) as stream:

        def all_read() -> bool:
            for run in stream.runs.values():
                run.pull()
            return stream.query("SELECT sum(rows_in) FROM sqlstream.jobs") == [(sent,)]

        for number, some in enumerate(parts):
            sent += generate.send(kafka, some, prefix=prefix)
            wait_until(all_read)
            stream.advance(1000)
            if number == len(parts) // 2:
                stream.restart()
        [(open_sessions,)] = stream.query("SELECT count(*) FROM state.sessions.by_customer")
        assert open_sessions > 0
        stream.finish()
    with servers.Alerts(kafka, f"{prefix}alerts") as alerts:
        alerts.read_to_end()
        found = answers.found(database, tmp_path, alerts.rows)
    late = answers.late_orders(database)
    assert late
    assert found == answers.expected(messages, late)
    assert all(rows for rows in found.values())
