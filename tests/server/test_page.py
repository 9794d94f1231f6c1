"""The files of the page over HTTP: whole, without a token, and with headers that let nothing else in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from sqlstream.server.access import Role, Tokens
from tests.server.serving import serving, settings_of

_LINKS = re.compile(r"""(?:href|src)="([^"#]+)"|(?:from|import\()\s*"(\.[^"]+)\"""")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "catalog").mkdir()
    settings = replace(settings_of(folder), tokens=Tokens(((sha256(b"t" * 20).digest(), Role.READ),)))
    with serving(settings) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        yield client


def test_all_that_the_page_loads_is_there(client: httpx.Client) -> None:
    assert client.get("/v1/jobs").status_code == 401
    found: dict[str, httpx.Response] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = answer = client.get(path)
            assert answer.status_code == 200, path
            links = [a or b for a, b in _LINKS.findall(answer.text)] if not path.endswith(".svg") else []
            waiting += [urljoin(path, link) for link in links]
    static = Path(str(files("sqlstream.server.page") / "static"))
    names = {str(file.relative_to(static)) for file in static.rglob("*.*")}
    assert {path.removeprefix("/assets/") if path != "/" else "index.html" for path in found} == names
    for path, answer in found.items():
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';"), path
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        # Names and rows come from users: they are set as text, never as HTML.
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org)", answer.text
        ), path


def test_a_file_is_not_sent_again_as_long_as_it_is_the_same(client: httpx.Client) -> None:
    first = client.get("/assets/style.css")
    again = client.get("/assets/style.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/assets/style.css", headers={"If-None-Match": '"other"'}).content == first.content


@pytest.mark.parametrize("path", ["/assets/", "/assets/index.html", "/assets/../assets.py", "/assets/%2e%2e/assets.py"])
def test_there_is_nothing_else(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404
