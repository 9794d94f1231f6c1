"""Azurite, Microsoft's emulator of Azure's store, for tests.

`python -m tests.azurite_server` fetches it into the user's cache: a package of npm, which Node.js runs. Where there is no npm,
the tests that need it are skipped.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

from tests.kafka_broker import cache_folder, free_port
from tests.processes import wait_until

VERSION = "3.37.0"
ACCOUNT = "sqlstream"
KEY = base64.b64encode(b"test-secret-of-the-account").decode()
# Of the protocol.
_PROTOCOL = "2021-08-06"
_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"


class ServerError(Exception):
    """A server that does not start, or whose program cannot be had."""


def folder() -> Path:
    """Return where the program is, or would be."""
    return cache_folder() / f"azurite-{VERSION}"


def fetch() -> None:
    """Let npm bring the program and what it needs, once (186 MB)."""
    if folder().exists():
        return
    folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder().parent) as partial:
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", partial, f"azurite@{VERSION}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise ServerError(f"npm cannot install azurite {VERSION}:\n{done.stdout[-2000:].rstrip()}")
        # Another process may have been faster.
        with contextlib.suppress(OSError):
            os.rename(partial, folder())
        Path(partial).mkdir(exist_ok=True)


def why_not() -> str | None:
    """Return why the server cannot be started here, None where it can."""
    if shutil.which("node") is None:
        return "Azurite needs Node.js"
    return None if folder().exists() else "Azurite is not installed: make azurite"


class AzuriteServer:
    """A server on a free port, with its containers in memory. Processes reach it with `environment`."""

    def __init__(self) -> None:
        self._port = free_port()
        listen = ["--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        self._process = subprocess.Popen(
            ["node", str(folder() / _PROGRAM), *listen, "--inMemoryPersistence", "--disableTelemetry", "--silent"],
            env=os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._listens)

    def _listens(self) -> bool:
        if self._process.poll() is not None:
            raise ServerError(f"Azurite ended with {self._process.returncode}")
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}/{ACCOUNT}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://{self.endpoint}",
        }

    def container(self) -> str:
        """Make a container, and return its URI."""
        name, date = f"container-{uuid4().hex[:12]}", formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": _PROTOCOL}
        # The method, eleven headers that are not sent, those that are, and what is asked for: in a path with the account.
        signed = "PUT" + "\n" * 12 + "".join(f"{k}:{v}\n" for k, v in headers.items())
        signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        url = f"http://{self.endpoint}/{name}?restype=container"
        with urlopen(Request(url, method="PUT", headers=headers)) as answer:
            assert answer.status == 201
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@contextmanager
def started() -> Iterator[AzuriteServer]:
    """Start a server, and stop it at the end."""
    server = AzuriteServer()
    try:
        yield server
    finally:
        server.close()


if __name__ == "__main__":
    # Without it all other tests run: npm's registry is no part of what they need.
    if not folder().exists() and shutil.which("npm") is None:
        print("there is no npm: tests of abfss:// will be skipped")
    else:
        try:
            fetch()
        except ServerError as failed:
            print(f"{failed}\ntests of abfss:// will be skipped")
