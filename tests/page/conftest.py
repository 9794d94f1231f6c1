"""A browser for tests of the page, and a server with jobs for it to look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.page.chromium import ChromiumError, found
from tests.page.site import Site, opened_site

IMAGES = Path(__file__).parents[2] / "sqlstream" / "docs" / "images"
LAPTOP, PHONE = (1280, 860), (390, 844)
# On a busy machine a process of Python takes seconds to start.
_PATIENCE = 60_000

Shot = Callable[[Page, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-screenshots", action="store_true", help="make the manual's pictures of the page anew")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module. While it is open, an event loop of Playwright runs here, which others cannot bear."""
    try:
        chromium = found()
    except ChromiumError as error:
        pytest.skip(str(error))
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        # Root has no sandbox.
        browser = playwright.chromium.launch(
            executable_path=chromium.path,
            env={**os.environ, **chromium.environment},
            args=["--no-sandbox", "--disable-gpu"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    """A server on a project of its own, for the tests of a module; see `Site`."""
    with opened_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A tab of the browser, as wide as a laptop, of whose page no script fails, and nothing is loaded that may not be."""
    context = browser.new_context(viewport={"width": LAPTOP[0], "height": LAPTOP[1]}, base_url=site.url)
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    # The browser itself says that an answer was 400: those are of tests that are about errors.
    page.on(
        "console",
        lambda said: failures.append(said.text) if said.type == "error" and "status of 4" not in said.text else None,
    )
    yield page
    context.close()
    assert failures == []


@pytest.fixture
def shot(request: pytest.FixtureRequest) -> Shot:
    """Make a picture of the page for the manual, with `--update-screenshots`; otherwise nothing."""
    is_wanted = request.config.getoption("--update-screenshots", default=False)

    def shot(page: Page, name: str) -> None:
        if is_wanted:
            IMAGES.mkdir(exist_ok=True)
            page.screenshot(path=IMAGES / f"{name}.png", animations="disabled", caret="hide")

    return shot
