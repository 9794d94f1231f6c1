"""A client of the server over HTTP, for `sqlstream --server`; it needs only the standard library and Arrow."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import IO, Any, cast
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from sqlstream import secrets
from sqlstream.errors import SqlStreamError, UsageError

TOKEN = "SQLSTREAM_TOKEN"
_NOT_IN_HEADERS = re.compile(r"[^\x21-\x7e]")
_SECONDS = 900.0
_ARROW = "application/vnd.apache.arrow.stream"


class RemoteError(SqlStreamError):
    """An error in a server's answer. It renders as `text`, if the answer has that: the error as the server renders it."""

    def __init__(self, message: str, text: str | None = None, *, status: int = 500):
        super().__init__(message)
        self.text = text
        self.status = status
        self.exit_code = 1 if status >= 500 else 2

    def render(self, width: int | None = None) -> str:
        return self.text if self.text is not None else super().render(width)


class Client:
    """Sends requests to the server at a URL, with a token (default: the variable SQLSTREAM_TOKEN). Raises UsageError."""

    def __init__(self, url: str, token: str | None = None):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise UsageError(f'"{url}" is no address of a server', hint="Such as http://127.0.0.1:8642.")
        self._parts, self._url = parts, url
        self._token = _checked(token or os.environ.get(TOKEN, ""))

    def get(self, *path: str, **parameters: str) -> Any:
        """Return the JSON answer to GET /v1/PATH. Raises RemoteError and UsageError."""
        return self._json_answer("GET", path, None, parameters)

    def post(self, *path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON answer to POST /v1/PATH. Raises RemoteError and UsageError."""
        return self._json_answer("POST", path, body, {})

    def delete(self, *path: str) -> Any:
        """Return the JSON answer to DELETE /v1/PATH. Raises RemoteError and UsageError."""
        return self._json_answer("DELETE", path, None, {})

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a state query. Raises RemoteError and UsageError."""
        return self.rows("query", body={"sql": sql})

    def rows(self, *path: str, body: Mapping[str, Any]) -> pa.Table:
        """Return the rows of the Arrow answer to POST /v1/PATH. Raises RemoteError and UsageError."""
        response = self._opened("POST", path, body, {}, _ARROW)
        try:
            with pa.ipc.open_stream(cast(IO[bytes], response)) as reader:
                return reader.read_all()
        except (pa.ArrowInvalid, OSError, http.client.HTTPException) as error:
            raise RemoteError("the answer was cut off: the query failed, or took too long", status=500) from error

    def _json_answer(
        self, method: str, path: tuple[str, ...], body: Mapping[str, Any] | None, parameters: Mapping[str, str]
    ) -> Any:
        return json.load(self._opened(method, path, body, parameters, "application/json"))

    def _opened(
        self,
        method: str,
        path: tuple[str, ...],
        body: Mapping[str, Any] | None,
        parameters: Mapping[str, str],
        accept: str,
    ) -> http.client.HTTPResponse:
        address = "/".join([self._parts.path.rstrip("/"), "v1", *(quote(part, safe="") for part in path)])
        if parameters:
            address += f"?{urlencode(parameters)}"
        headers = {"Accept": accept, "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request(method, address, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            raise UsageError(
                f'the certificate of the server at "{self._url}" is not trusted',
                detail=f"{error.verify_message.capitalize()}.",
                hint="Name the certificate of its authority, or its own, in PEM: SSL_CERT_FILE=FILE in the environment.",
            ) from error
        except (OSError, http.client.HTTPException, socket.gaierror) as error:
            raise UsageError(
                f'the server at "{self._url}" does not answer', detail=str(error), hint="Start one: sqlstream serve."
            ) from error
        if response.status >= 400:
            raise _error(response)
        return response

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=_SECONDS)


def _checked(text: str) -> str:
    """Return a token without whitespace around it, such as a file's line break. Raises UsageError, which hides it."""
    token = text.strip()
    secrets.remember({"token": token})
    if wrong := _NOT_IN_HEADERS.search(token):
        raise UsageError(
            f"the token in {TOKEN} has a character that no token can have: {_called(wrong[0])}, the {wrong.start() + 1}. of it",
            hint="A token has letters, digits and signs of ASCII, and no spaces.",
        )
    return token


def _called(character: str) -> str:
    """Return a name for a character that may be invisible.

    >>> _called("\\n"), _called("ä")
    ('a line break', 'U+00E4')
    """
    return {"\n": "a line break", "\r": "a line break", " ": "a space", "\t": "a tab"}.get(
        character, f"U+{ord(character):04X}"
    )


def _error(response: http.client.HTTPResponse) -> RemoteError:
    """Return the error in an answer, which may come from a proxy before the server."""
    content = response.read(1 << 20)
    try:
        problem = json.loads(content)
        return RemoteError(str(problem["detail"]), problem.get("text"), status=response.status)
    except (ValueError, KeyError, TypeError):
        return RemoteError(f"the server answers {response.status} {response.reason}", status=response.status)
