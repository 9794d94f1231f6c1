"""A schema registry over HTTP, with what the formats ask of one: schemas by id, subjects, references, authorization."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class Registry:
    """What a server has. `asked` are the routes; it fails `failing` times before it answers.

    The first schema of a subject is compatible with no other one, if the subject is `closed`.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorization: str | None = None
        self.failing = 0
        self.closed: set[str] = set()
        self.url = ""

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: tuple[Any, ...] = ()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found = {"schema": text, **({"schemaType": kind} if kind != "AVRO" else {}), "references": list(references)}
        if found not in self.schemas:
            self.schemas.append(found)
        id = self.schemas.index(found)
        if id not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(id)
        return 100 + id

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match method, [unquote(part) for part in path.partition("?")[0].split("/")[1:]]:
            case "GET", ["schemas", "ids", text]:
                known = 100 <= int(text) < 100 + len(self.schemas)
                found = self.schemas[int(text) - 100] if known else None
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case "GET", ["subjects", subject, "versions", version]:
                if subject not in self.subjects:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                ids = self.subjects[subject]
                number = len(ids) if version == "latest" else int(version)
                return 200, {
                    "subject": subject,
                    "version": number,
                    "id": 100 + ids[number - 1],
                    **self.schemas[ids[number - 1]],
                }
            case "POST", ["subjects", subject, "versions"] if subject in self.closed and all(
                self.schemas[number]["schema"] != body["schema"] for number in self.subjects[subject]
            ):
                return 409, {
                    "error_code": 409,
                    "message": "Schema being registered is incompatible with an earlier one",
                }
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))}
            case "POST", ["subjects", subject]:
                for number in self.subjects.get(subject, ()):
                    if self.schemas[number]["schema"] == body["schema"]:
                        return 200, {"id": 100 + number, "version": 1}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        raise AssertionError(path)


@contextmanager
def serving(certificate: Path | None = None, clients: Path | None = None) -> Iterator[Registry]:
    """Serve an empty registry on a port of its own, over https with a PEM file of a key and its certificate.

    With `clients`, the certificate of an authority, it answers only those that have a certificate of it.
    """
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            if registry.failing:
                registry.failing -= 1
                status, found = 503, {}
            elif registry.authorization not in (None, self.headers["Authorization"]):
                status, found = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                length = int(self.headers["Content-Length"] or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, found = registry.answer(self.command, self.path, body)
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
