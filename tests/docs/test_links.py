"""Links between the pages of the manual lead somewhere, and the contents name every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sqlstream.cli.docs import contents
from tests.docs.pages import DOCS, README, page_name, pages

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in _LINK.findall(_FENCED.sub("", path.read_text("utf-8"))):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(linked), f"{target}: the page has no such heading"


def test_the_contents_name_every_page() -> None:
    names = sorted(page_name(path) for path in pages() if path not in (README, DOCS / "README.md"))
    assert sorted(page.name for page in contents()) == names


def test_the_readme_links_every_page() -> None:
    linked = {target.partition("#")[0] for target in _LINK.findall(README.read_text("utf-8"))}
    for page in contents():
        assert f"sqlstream/docs/{page.name}.md" in linked
