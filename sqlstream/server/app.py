"""The server as an ASGI application: it checks hosts, origins and tokens, and sends answers, streams and errors over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import assert_never
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.secrets import masked
from sqlstream.server.access import Role
from sqlstream.server.computations import Computation
from sqlstream.server.connections import Connections
from sqlstream.server.endpoints import (
    ENDPOINTS,
    EVENT_STREAM,
    PLAIN,
    CallEndpoint,
    Endpoint,
    EventEndpoint,
    HttpCall,
    ProcessEndpoint,
    QueryEndpoint,
    Service,
    TextEndpoint,
    check_parameters,
)
from sqlstream.server.http_answers import JSON
from sqlstream.server.openapi import description
from sqlstream.server.page.assets import page_routes
from sqlstream.server.problems import MEDIA_TYPE, HttpError, problem_of
from sqlstream.server.settings import ServerSettings

# The most calls that are answered at the same time; some take minutes, such as stopping jobs, and must not block others.
_CALLS = 64
# The most seconds that the body of a request may take.
_BODY_SECONDS = 30.0
_LOG = logging.getLogger("uvicorn.error")
# No page of another site can read an answer or show it in a frame; no proxy stores it.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def make_app(service: Service) -> ASGIApp:
    """Return the application that answers the endpoints, the page and /v1/openapi.json for a service."""
    threads = ThreadPoolExecutor(_CALLS, thread_name_prefix="call")
    routes = [Route(e.path, _Route(service, e, threads), methods=[e.method], name=e.summary) for e in _by_path()]
    document = msgspec.json.encode(description())
    routes.append(Route("/v1/openapi.json", lambda request: _json(document, 200), methods=["GET"]))
    routes += page_routes(_HEADERS)
    app = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _no_method})
    return _AccessMiddleware(app, service.settings, service.connections)


def _by_path() -> list[Endpoint]:
    return sorted(ENDPOINTS, key=lambda e: e.path.count("{"))


def _json(content: bytes, status: int, headers: Mapping[str, str] | None = None, media: str = JSON) -> Response:
    return Response(content, status, {**_HEADERS, **(headers or {})}, media)


def problem_response(error: SqlStreamError) -> Response:
    """Return the response for an error: problem JSON with its HTTP status."""
    problem = problem_of(error)
    headers = error.headers if isinstance(error, HttpError) else {}
    return _json(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


async def _not_found(request: Request, error: Exception) -> Response:
    hint = "GET /v1/openapi.json describes what there is."
    return problem_response(HttpError(404, f'there is nothing at "{request.url.path}"', hint=hint))


async def _no_method(request: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None)
    return problem_response(
        HttpError(405, f'"{request.url.path}" has no method {request.method}', headers=headers or {})
    )


class _AccessMiddleware:
    """Middleware that refuses requests by their Host, Origin or size, and finds the role of each request's token."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, connections: Connections):
        self._app, self._settings, self._connections = app, settings, connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, send)
        finally:
            self._connections.answered(scope.get("client"))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check_host(headers)
            self._check_origin(headers)
            role = scope.setdefault("state", {})["role"] = self._role(headers)
            if role is None:
                # The connection would keep one of few places with requests that need no token.
                send = _closing(send)
            else:
                self._connections.know(scope.get("client"))
            if "\0" in scope["path"]:
                raise HttpError(400, "an address has no zero character")
            if int(headers.get("content-length", "0") or 0) > self._settings.limits.body:
                raise _too_large(self._settings.limits.body)
        except ValueError:
            message = "a header is not as HTTP has it: Host, Origin or Content-Length"
            await problem_response(HttpError(400, message))(scope, receive, send)
            return
        except HttpError as error:
            await problem_response(error)(scope, receive, _closing(send))
            return
        body = _Body(receive, send, headers, self._settings.limits.body)
        await self._app(scope, body.receive, body.send)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        hosts = self._settings.hosts
        if hosts is None:
            return
        host = urlsplit(f"//{headers.get('host', '')}").hostname
        if host is None or host.lower() not in hosts:
            hint = "Name the host with --host-name when the server is started."
            raise HttpError(403, "the request is for another host", hint=hint)

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise HttpError(403, "the request comes from a page of another site")

    def _role(self, headers: Mapping[str, str]) -> Role | None:
        """Return the role of a request's token, None for none or an unknown one; without tokens everybody is an admin."""
        if self._settings.tokens is None:
            return Role.ADMIN
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self._settings.tokens.role_of(token.strip()) if scheme.lower() == "bearer" else None


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"the body is larger than {most:,} bytes")


class _Body:
    """Counts the bytes of a request's body, and closes the connection if the answer is sent before all of it was read.

    Otherwise the server would wait for the rest of the body, as long as its client likes.
    """

    def __init__(self, receive: Receive, send: Send, headers: Mapping[str, str], most: int):
        self._receive, self._send, self._most = receive, send, most
        self._count = 0
        self._is_whole = "transfer-encoding" not in headers and int(headers.get("content-length", "0") or 0) == 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._count += len(message.get("body", b""))
        if self._count > self._most:
            raise _too_large(self._most)
        self._is_whole = self._is_whole or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        await (self._send if self._is_whole else _closing(self._send))(message)


def _closing(send: Send) -> Send:
    """Return a `send` whose answer closes the connection."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [header for header in message.get("headers", ()) if header[0] != b"connection"]
            message = {**message, "headers": [*others, (b"connection", b"close")]}
        await send(message)

    return sent


class _Route:
    """Answers the requests of an endpoint."""

    def __init__(self, service: Service, endpoint: Endpoint, threads: Executor):
        self._service, self._endpoint, self._threads = service, endpoint, threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, endpoint = Request(scope, receive), self._endpoint
        status = 500
        try:
            call = await self._call(request)
            match endpoint:
                case CallEndpoint(role=None):
                    # Probes answer without a thread: a server whose threads all wait must not be killed.
                    response = _json(msgspec.json.encode(endpoint.call(call)), endpoint.status)
                case CallEndpoint():
                    answer = await asyncio.get_running_loop().run_in_executor(self._threads, endpoint.call, call)
                    response = _json(msgspec.json.encode(answer), endpoint.status)
                case TextEndpoint():
                    text = await asyncio.get_running_loop().run_in_executor(self._threads, endpoint.text, call)
                    response = _json(text, endpoint.status, media=f"{PLAIN}; version=0.0.4")
                case QueryEndpoint() | ProcessEndpoint() | EventEndpoint():
                    await self._stream(endpoint, call, request, receive, send)
                    return
                case _:
                    assert_never(endpoint)
        except SqlStreamError as error:
            response = problem_response(error)
        except Exception as error:
            message = f"{type(error).__qualname__}: {error}"
            if isinstance(error, ValueError) and "embedded null" in str(error):
                # It would be the name of a file.
                message, status = "a name has no zero character", 400
            response = problem_response(HttpError(status, masked(message)))
        await response(scope, receive, send)

    async def _call(self, request: Request) -> HttpCall:
        """Return the call of a request. Raises HttpError and UsageError."""
        endpoint, role = self._endpoint, request.scope["state"]["role"]
        if endpoint.role is not None:
            if role is None:
                raise _no_token(request.headers.get("authorization"))
            if role < endpoint.role:
                raise HttpError(403, f"this takes a token of the role {endpoint.role.name.lower()}")
        parameters: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            parameters.setdefault(name, []).append(value)
        check_parameters(endpoint, parameters)
        body = None
        if endpoint.body is not None:
            body = _decoded(await _body(request), endpoint.body, request.headers.get("content-type", ""))
        return HttpCall(self._service, role or Role.READ, request.path_params, parameters, body)

    async def _stream(
        self,
        endpoint: QueryEndpoint | ProcessEndpoint | EventEndpoint,
        call: HttpCall,
        request: Request,
        receive: Receive,
        send: Send,
    ) -> None:
        match endpoint:
            case EventEndpoint():
                form, parts = EVENT_STREAM, endpoint.listen(call)
            case ProcessEndpoint():
                form, parts = JSON, self._computed(endpoint.computation(call))
            case QueryEndpoint():
                form = _accepted_type(request.headers.get("accept", "*/*"), (JSON, *endpoint.streams))
                parts = self._service.queries.stream(endpoint.query(call), form)
        # A client that does not read its answer must not keep its place for ever.
        patience = self._service.settings.limits.query_seconds
        await _sent(parts, form, request.scope, receive, _within(patience, send), endpoint.status)

    async def _computed(self, computation: Computation) -> AsyncIterator[bytes]:
        """Yield the answer of a computation, in one part."""
        async with contextlib.aclosing(computation.turns.parts(computation.call)) as parts:
            value = await anext(parts)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, computation.answer, value)
        yield msgspec.json.encode(answer)


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises HttpError if it takes too long."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            body: bytes = await request.body()
            return body
    except TimeoutError:
        raise HttpError(408, f"the body has not come within {_BODY_SECONDS:g} s") from None


def _no_token(authorization: str | None) -> HttpError:
    message = "there is no token" if authorization is None else "the token is not known"
    hint = "Put it into the variable SQLSTREAM_TOKEN for `sqlstream --server`, or into the header Authorization: Bearer TOKEN."
    return HttpError(401, message, hint=hint, headers={"WWW-Authenticate": "Bearer"})


def _decoded(body: bytes, kind: type[msgspec.Struct], media: str) -> msgspec.Struct:
    if media.partition(";")[0].strip().lower() != JSON:
        # A form of another site can send other types without a preflight request.
        raise HttpError(415, f"a body is {JSON}", hint=f"Say Content-Type: {JSON}.")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError("the body is not what is read here", detail=str(error)) from error


def _accepted_type(accept: str, kinds: tuple[str, ...]) -> str:
    """Return the first type that a client accepts among `kinds`; the first of `kinds` if it accepts none."""
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((kind for kind in named if kind in kinds), kinds[0])


async def _sent(
    parts: AsyncIterator[bytes], media: str, scope: Scope, receive: Receive, send: Send, status: int = 200
) -> None:
    """Send parts as they come, until the client disconnects. An error before the first part is sent as problem JSON."""
    gone = asyncio.create_task(_gone(receive))
    begun = False
    try:
        while True:
            part = await _first(anext(parts, None), gone)
            if part is None:
                break
            if not begun:
                headers = [(k.lower().encode(), v.encode()) for k, v in {**_HEADERS, "Content-Type": media}.items()]
                await send({"type": "http.response.start", "status": status, "headers": headers})
                begun = True
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if not gone.done():
            if not begun:
                raise HttpError(500, "there is no answer")
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    except SqlStreamError as error:
        if not begun:
            await problem_response(error)(scope, receive, send)
            return
        # The answer has begun. It is cut off here: so the client sees that it is incomplete.
        _LOG.error("an answer was cut off: %s", error.render())
    except Exception as error:
        if not begun:
            raise
        _LOG.error("an answer was cut off: %s", masked(f"{type(error).__qualname__}: {error}"))
    finally:
        gone.cancel()
        await _closed(parts)


def _within(seconds: float, send: Send) -> Send:
    """Return a `send` that raises HttpError if the client does not take a message within `seconds`."""

    async def sent(message: Message) -> None:
        try:
            await asyncio.wait_for(send(message), seconds)
        except TimeoutError:
            raise HttpError(504, f"the client has read nothing for {seconds:g} s") from None

    return sent


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first(part: Awaitable[bytes | None], gone: asyncio.Task[None]) -> bytes | None:
    """Return the next part; None if there is none, or the client disconnects first."""
    work = asyncio.ensure_future(part)
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        return work.result()
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, SqlStreamError):
        await work
    return None


async def _closed(parts: AsyncIterator[bytes]) -> None:
    close: Callable[[], Awaitable[None]] | None = getattr(parts, "aclose", None)
    if close is not None:
        await close()
