"""A server that speaks S3, with conditional puts, in this process; it counts the requests for each kind of file."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

KEY, SECRET = "test-key-id", "test-secret-of-the-store"


class S3Server:
    """moto's server on a free port. Processes reach it with `environment`."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, type: str, message: str, *args: object) -> None:
                """Say nothing."""

        self.requests: Counter[str] = Counter()
        self._is_away = self._breaks_off = False
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._counted, threaded=True, request_handler=Quiet)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self) -> str:
        """Make a bucket, and return its URI."""
        name = f"bucket-{uuid4().hex[:12]}"
        with urlopen(Request(f"{self.url}/{name}", method="PUT")) as answer:
            assert answer.status == 200
        return f"s3://{name}"

    @contextmanager
    def away(self) -> Iterator[None]:
        """Answer all requests as S3 does when something behind it does not answer: clients do not ask again."""
        self._is_away = True
        try:
            yield
        finally:
            self._is_away = False

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Send half of each object that is asked for."""
        self._breaks_off = True
        try:
            yield
        finally:
            self._breaks_off = False

    def close(self) -> None:
        self._server.shutdown()

    def _counted(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        kind = "LIST" if "list-type" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]
        path = environ["PATH_INFO"] if kind != "LIST" else environ["QUERY_STRING"]
        self.requests[f"{kind} {re.sub(r'[0-9a-f-]{8,}|[0-9]+', '*', path)}"] += 1
        if self._is_away:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            respond("400 Bad Request", [("Content-Type", "application/xml")])
            return [b"<Error><Code>RequestTimeout</Code><Message>Your socket connection timed out.</Message></Error>"]
        answer: Iterable[bytes] = self._app(environ, respond)
        if self._breaks_off and kind == "GET":
            body = b"".join(answer)
            return [body[: len(body) // 2]]
        return answer
