"""Where the server listens: over its sockets asyncio sends small parts at once."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from sqlstream.server.serve import listening_socket
from tests.server.serving import settings_of


def test_no_part_of_an_answer_waits_for_the_client(tmp_path: Path) -> None:
    async def is_sent_at_once(listening: socket.socket) -> bool:
        taken = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _, writer: taken.set_result(writer), sock=listening)
        async with server:
            _, client = await asyncio.open_connection(*listening.getsockname())
            writer = await taken
            found = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for one in (writer, client):
                one.close()
                await one.wait_closed()
        return bool(found)

    with listening_socket(settings_of(tmp_path)) as listening:
        assert asyncio.run(is_sent_at_once(listening))
