"""Serves the files of the page. They hold no data, so a client needs no token for them; they load nothing from other servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "index.html"
_MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Scripts and styles come from files of this server alone: text of a row that looks like a script stays text.
_POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def page_routes(headers: Mapping[str, str]) -> list[Route]:
    """Return a route per file of the page; answers have `headers` and a Content-Security-Policy.

    The page itself is at `/`, the files that it loads are below `/assets/`.
    """
    contents = dict(_page_files(files(__package__) / "static", ""))
    paths = {name: "/" if name == INDEX else f"/assets/{name}" for name in contents}
    return [
        Route(paths[name], _answer(content, name, headers), methods=["GET"], name=f"page {name}")
        for name, content in contents.items()
    ]


def _page_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield (path, content) of each file in a folder and below."""
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _page_files(item, f"{prefix}{item.name}/")
        elif item.name.rpartition(".")[2] in _MEDIA:
            yield f"{prefix}{item.name}", item.read_bytes()


def _answer(content: bytes, name: str, headers: Mapping[str, str]) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{sha256(content).hexdigest()[:16]}"'
    # A browser asks each time whether a file has changed: after an upgrade it must not mix old files with new ones.
    sent = {**headers, "Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "ETag": tag}
    media = _MEDIA[name.rpartition(".")[2]]

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=sent)
        return Response(content, headers=sent, media_type=media)

    return answer
