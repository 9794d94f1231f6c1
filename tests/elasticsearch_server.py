"""An Elasticsearch or OpenSearch server for tests: a real node, from the jars of Maven Central.

`python -m tests.elasticsearch_server` fetches the jars into the user's cache: the last version of Elasticsearch with the Apache
License, and OpenSearch. A node needs Java 17 or newer and 500 MB of memory, and starts in some seconds. It listens on 127.0.0.1
only. What the distributions have besides, users and TLS among it, is not in Maven Central: `Guarded` stands before a node, as
a proxy that has both.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from tests.kafka_broker import BrokerError, fetch_jars, free_port

_SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.disable.jmx=true")


class NoServer(Exception):
    """A server that cannot be had on this machine, or does not start."""


def fetch(kind: str = "elasticsearch") -> list[Path]:
    """Return the jars of a server, `elasticsearch` or `opensearch`, downloaded once. Raises NoServer."""
    try:
        return fetch_jars(Path(__file__).with_name(f"{kind}_jars.txt"), kind)
    except BrokerError as error:
        raise NoServer(str(error)) from error


class SearchServer:
    """A server of a folder. It keeps its port and its documents when it is stopped, or killed, and started again."""

    def __init__(self, folder: Path, kind: str = "elasticsearch"):
        self._folder, self._kind = folder, kind
        self.port, self._inner_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "config").mkdir(parents=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and return when it answers. Raises NoServer where it does not come so far."""
        jars = fetch(self._kind)
        with open(self._folder / "log", "ab") as log:
            port, token, self._process = launch_gateway(
                jarpath=_py4j(),
                classpath=":".join(map(str, jars)),
                javaopts=[*_SMALL],
                java_path=_java(),
                die_on_exit=True,
                enable_auth=True,
                redirect_stdout=log,
                redirect_stderr=log,
                return_proc=True,
            )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            self._start_node()
        except Py4JError as error:
            reason = str(error)
            self.kill()
            raise NoServer(reason) from None

    def _start_node(self) -> None:
        jvm = self._gateway.jvm
        package, named = getattr(jvm.org, self._kind), jvm.java.lang.Class.forName
        settings = package.common.settings.Settings.builder()
        for name, value in {
            "path.home": str(self._folder),
            "node.name": "test",
            "http.port": str(self.port),
            "transport.port": str(self._inner_port),
            "network.host": "127.0.0.1",
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }.items():
            settings.put(name, value)
        environment = package.env.Environment(settings.build(), jvm.java.io.File(str(self._folder / "config")).toPath())
        # The node of a program that has its plugins on the class path, as Elasticsearch's own tests make it.
        plugins = jvm.java.util.ArrayList()
        plugins.add(named(f"org.{self._kind}.transport.Netty4Plugin"))
        constructors = named(f"org.{self._kind}.node.Node").getDeclaredConstructors()
        constructor = next(one for one in constructors if one.getParameterCount() == 3)
        constructor.setAccessible(True)
        values = self._gateway.new_array(jvm.java.lang.Object, 3)
        values[0], values[1], values[2] = environment, plugins, False
        constructor.newInstance(values).start()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        assert self._process is not None
        self._gateway.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def crash(self) -> None:
        """Kill the server, and start it again."""
        self.kill()
        self.start()

    def ask(self, method: str, route: str, body: Any = None) -> Any:
        """Send a request; return the answer as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + route, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def documents(self, index: str) -> dict[str, Any]:
        """Return the documents of an index, or of those that a pattern such as `logs-*` names, by their ids."""
        self.ask("POST", f"/{index}/_refresh")
        hits = self.ask("GET", f"/{index}/_search?size=10000")["hits"]["hits"]
        assert len(hits) == len({hit["_id"] for hit in hits})
        return {hit["_id"]: hit["_source"] for hit in hits}


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        raise NoServer("it needs Java 17 or newer: install it, or set JAVA_HOME")
    return java


def _py4j() -> str:
    """Return the jar through which Python calls Java: it is among PySpark's."""
    return str(next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")))


@contextmanager
def started(kind: str = "elasticsearch") -> Iterator[SearchServer]:
    """Start a server for as long as the block runs. Raises NoServer."""
    with TemporaryDirectory() as folder:
        server = SearchServer(Path(folder), kind)
        server.start()
        try:
            yield server
        finally:
            if server.is_running:
                server.kill()


class Guarded:
    """A proxy before a server, for as long as the block runs: it wants a login, as `user:password`, and TLS of a certificate."""

    def __init__(self, server: SearchServer, login: str, certificate: Path | None = None):
        wanted = f"Basic {base64.b64encode(login.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                if self.headers.get("Authorization") != wanted:
                    self._answer(401, b'{"error":"who are you?"}')
                    return
                kinds = {"Content-Type": self.headers.get("Content-Type", "application/json")}
                request = urllib.request.Request(server.url + self.path, body or None, kinds, method=self.command)
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self._answer(answer.status, answer.read())

            do_GET = do_HEAD = do_POST = _pass_on

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # A client that does not trust the certificate ends the connection, in a thread of its own.
            self._proxy.socket = context.wrap_socket(
                self._proxy.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._proxy.server_port}"

    def __enter__(self) -> Guarded:
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()


if __name__ == "__main__":
    try:
        for server_kind in ("elasticsearch", "opensearch"):
            fetch(server_kind)
    except NoServer as failed:
        print(f"{failed}\ntests of Elasticsearch will be skipped", file=sys.stderr)
