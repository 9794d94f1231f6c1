"""A server for PostgreSQL's clients in a process of its own: `python -m tests.server.postgres.serving PROJECT OPTIONS`.

OPTIONS are JSON: a `token`, a `certificate`, and limits.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlstream.project import Project
from sqlstream.server.postgres.backend import ClientLimits
from sqlstream.server.postgres.server import PostgresServer
from sqlstream.server.query_processes.pool import QueryProcesses
from tests.server import child


def started(project: Path, **options: Any) -> AbstractContextManager[int]:
    """Start a server, yield its port, and end it."""
    return child.started("tests.server.postgres.serving", str(project), json.dumps(options))


async def _serve(project: Path, token: str | None, certificate: str | None, **limits: Any) -> None:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    processes = QueryProcesses(Project(str(project), str(project / "warehouse")))
    server = PostgresServer(
        processes,
        port=0,
        allows=None if token is None else lambda given: given == token,
        certificate=context,
        limits=ClientLimits(**limits),
    )
    async with server:
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
    processes.close()


if __name__ == "__main__":
    given = {"token": None, "certificate": None, **json.loads(sys.argv[2])}
    asyncio.run(_serve(Path(sys.argv[1]), **given))
