"""The page in a browser: jobs are submitted, seen moving, stopped; a job with its plan, its time and its batches."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from sqlstream.server.access import Role, Tokens
from tests.page.conftest import PHONE, Shot
from tests.page.site import PER_STEP, REVENUE, Site
from tests.processes import wait_until
from tests.server.serving import serving, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.one_in(2, of="the page")]

COPY = """
SET 'execution.checkpointing.interval' = '20 ms';
CREATE TABLE copies (id BIGINT, item STRING);
INSERT INTO copies SELECT id, item FROM orders;
"""


CHEAP = """
SET 'execution.checkpointing.interval' = '20 ms';
CREATE TABLE cheap (item STRING PRIMARY KEY NOT ENFORCED, orders BIGINT);
INSERT INTO cheap SELECT item, COUNT(*) FROM orders WHERE price < 5 GROUP BY item;
"""


POPULAR = """
CREATE TABLE popular (item STRING PRIMARY KEY NOT ENFORCED, orders BIGINT);
INSERT INTO popular SELECT item, COUNT(*) FROM orders GROUP BY item;
"""


@pytest.fixture(scope="module")
def revenue(site: Site) -> Site:
    """The site with a job that has read some steps of the feed."""
    site.submit(REVENUE + POPULAR)
    site.feed_slowly(18)
    return site


def card(page: Page, job: str) -> Locator:
    return page.locator(f'.job[data-job="{job}"]')


def write(page: Page, sql: str) -> Locator:
    """Open the box for SQL, and write into it."""
    page.get_by_role("button", name="Submit SQL").click()
    field = page.get_by_label("SQL to submit")
    field.fill(sql)
    return field


def overflows(page: Page) -> bool:
    """Whether the page is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def test_an_error_is_shown_at_its_place(page: Page, site: Site) -> None:
    page.goto("/")
    field = write(
        page, "CREATE TABLE r (a STRING, b STRING, n INT);\nINSERT INTO r SELECT '🍵', '<img src=x>', nope FROM orders"
    )
    page.get_by_role("button", name="Submit", exact=True).click()
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("^^^^")
    expect(problem).to_contain_text("<img src=x>")
    assert page.locator("main img").count() == 0
    assert field.evaluate("f => f.value.slice(f.selectionStart, f.selectionEnd)") == "nope"


def test_a_job_is_submitted_runs_stops_and_is_dropped(page: Page, site: Site) -> None:
    page.goto("/")
    field = write(page, COPY)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator(".plan-text")).to_contain_text("copies")
    submitted: list[str] = []
    page.on("request", lambda request: submitted.append(request.url) if request.method == "POST" else None)
    # Keys that are held down submit it once.
    pressed = "f.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', ctrlKey: true}))"
    field.evaluate(f"f => {{ {pressed}; {pressed}; }}")
    expect(page.locator(".done")).to_have_text("Submitted: copies")
    assert len(submitted) == 1
    expect(card(page, "copies").locator(".pill")).to_have_text("running")
    # Nobody loads the page again.
    for _ in range(3):
        site.feed()
        expect(card(page, "copies").locator(".written b")).to_have_text(f"{PER_STEP * site.steps:,}")
    expect(card(page, "copies").locator(".spark-line")).not_to_have_attribute("points", "")

    card(page, "copies").get_by_role("button", name="Savepoint").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("monday")
    page.get_by_role("button", name="Take it").click()
    expect(page.locator(".note")).to_contain_text('savepoint "monday" of copies')
    card(page, "copies").get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Cancel").click()
    assert site.job("copies")["status"] == "RUNNING"
    card(page, "copies").get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(card(page, "copies").locator(".pill")).to_have_text("stopped")
    card(page, "copies").get_by_role("button", name="Drop").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(card(page, "copies")).to_have_count(0)
    assert site.job("copies") == {}


def test_the_list_is_for_laptops_and_phones(page: Page, revenue: Site, shot: Shot) -> None:
    page.goto("/")
    expect(card(page, "revenue").locator(".read b")).to_have_text(f"{2 * PER_STEP * revenue.steps:,}")
    expect(page.locator("#connection")).to_have_text("live")
    assert not overflows(page)
    page.set_viewport_size({"width": 1280, "height": 400})
    shot(page, "page-jobs")
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert not overflows(page)
    # By keyboard alone.
    card(page, "revenue").get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("revenue")


def test_a_job_is_seen_moving(page: Page, revenue: Site, shot: Shot) -> None:
    page.goto("/#/job/revenue")
    titles = page.locator(".node-title")
    expect(titles).to_have_text(["orders", "payments", "paid", "window_aggregate_1", "revenue"])
    sources = page.locator(".node.of-source .node-lines")
    expect(sources).to_contain_text([f"{PER_STEP * revenue.steps:,} rows"] * 2)
    expect(page.locator(".wire")).to_have_count(4)
    revenue.feed(1)
    expect(sources).to_contain_text([f"{PER_STEP * revenue.steps:,} rows"] * 2)
    expect(page.locator(".wire.flowing").first).to_be_attached()
    expect(page.locator(".wire-label")).to_have_text([re.compile(r"\d/s$")] * 4)

    # What is shown of state, windows and watermarks is what state queries say, once the last batch has been seen.
    window = page.locator(".operator", has_text="window_aggregate_1")
    sql = "SELECT state_rows FROM sqlstream.operators WHERE operator = 'window_aggregate_1'"
    wait_until(lambda: [[int(window.locator(".big").inner_text())]] == revenue.rows(sql))
    ends = "SELECT DISTINCT window_end FROM state.revenue.window_aggregate_1"
    sql = f"SELECT 'window to ' || strftime(window_end, '%H:%M:%S') FROM ({ends}) ORDER BY window_end"
    wait_until(lambda: [[text] for text in page.locator(".of-window b").all_inner_texts()] == revenue.rows(sql))
    # A join whose rows may be ten seconds apart holds them so long.
    expect(page.locator(".of-window small").first).to_contain_text("of event time, 10 s after its end")
    sql = "SELECT strftime(watermark, '%H:%M:%S') FROM sqlstream.jobs WHERE job = 'revenue'"
    wait_until(lambda: [[page.locator(".tile dd").nth(6).inner_text()]] == revenue.rows(sql))
    expect(page.locator(".axis-row.holds b")).to_have_text("payments")
    expect(page.locator(".bar").first).to_be_attached()
    assert not overflows(page)
    # Labels of axes are whole.
    left = "element => element.getBoundingClientRect().left"
    lefts = page.locator(".chart-drawing").evaluate_all(
        f"all => all.flatMap(svg => [...svg.querySelectorAll('.tick')].map(t => ({left})(t) - ({left})(svg)))"
    )
    assert min(lefts) >= 0
    # Boxes are made narrower before the last ones have to be scrolled to.
    page.set_viewport_size({"width": 1000, "height": 860})
    wait_until(lambda: page.locator(".graph").evaluate("g => g.scrollWidth <= g.clientWidth"))


def test_what_came_while_the_connection_was_broken_is_asked_for(browser: Browser, revenue: Site) -> None:
    def break_off(route: Route) -> None:
        route.fulfill(body="retry: 1000\n\n", content_type="text/event-stream")

    with browser.new_context(base_url=revenue.url) as context:
        page = context.new_page()
        page.route("**/v1/events*", break_off)
        page.goto("/#/job/revenue")
        expect(page.locator("#connection")).to_have_text("not connected")
        revenue.feed_slowly(3)
        page.unroute("**/v1/events*")
        # A bar for each of the last batches whose batch before is known.
        bars = page.locator("figure.chart", has_text="Rows read").locator(".bar")
        asked = "/v1/jobs/revenue/batches?last=61"
        wait_until(lambda: bars.count() == len(revenue.client.get(asked).json()["batches"]) - 1)


def test_pictures_of_a_job(page: Page, revenue: Site, shot: Shot) -> None:
    page.set_viewport_size({"width": 1280, "height": 1330})
    page.goto("/#/job/revenue")
    expect(page.locator(".of-window").first).to_be_visible()
    revenue.feed_slowly(6)
    expect(page.locator(".wire.flowing").first).to_be_attached()
    shot(page, "page-job")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch between dark and light").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.set_viewport_size({"width": PHONE[0], "height": 1500})
    expect(page.locator(".graph")).to_be_visible()
    assert not overflows(page)
    shot(page, "page-phone")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_filter_is_a_box_between_those_that_it_is_between(page: Page, site: Site) -> None:
    site.feed()
    site.submit(CHEAP)
    page.goto("/#/job/cheap")
    expect(page.locator(".node-title")).to_have_text(["orders", "aggregate_1", "filter", "cheap"])
    expect(page.locator(".of-fragment .node-lines")).to_have_text('WHERE "price" < 5')
    expect(page.locator(".wire")).to_have_count(3)
    # What passes it is not counted, what comes and what goes is.
    expect(page.locator(".wire-label")).to_have_text([re.compile(r"\d/s$"), "", re.compile(r"\d/s$")])
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert not overflows(page)
    # All of the text is to be seen, or is said to go on.
    lines = page.locator(".of-fragment .node-lines")
    assert lines.evaluate("e => e.getBoundingClientRect().bottom <= e.parentElement.getBoundingClientRect().bottom")


def test_a_job_that_is_not_there(page: Page, site: Site) -> None:
    page.goto("/#/job/nope")
    expect(page.get_by_role("alert")).to_contain_text('job "nope" does not exist')
    page.goto("/#/nowhere")
    expect(page.get_by_text("There is nothing here")).to_be_visible()


def test_a_job_that_is_dropped_and_submitted_again(page: Page, site: Site) -> None:
    sql = "CREATE TABLE IF NOT EXISTS once (a INT); INSERT INTO once VALUES (1)"

    def submit() -> None:
        assert site.client.post("/v1/jobs", json={"sql": sql}).is_success
        wait_until(
            lambda: (
                (site.job("once_values").get("status"), site.service.supervisor.about("once_values"))
                == ("FINISHED", None)
            )
        )

    submit()
    page.goto("/#/job/once_values")
    expect(page.locator(".head .pill")).to_have_text("finished")
    assert site.client.delete("/v1/jobs/once_values").is_success
    expect(page.get_by_role("alert")).to_contain_text('job "once_values" does not exist')
    submit()
    expect(page.locator(".head .pill")).to_have_text("finished")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_with_tokens_the_page_asks_once(browser: Browser, site: Site) -> None:
    tokens = Tokens(((sha256(b"t" * 20).digest(), Role.READ),))
    settings = replace(settings_of(site.folder), tokens=tokens)
    with serving(settings) as (url, _), browser.new_context(base_url=url) as context:
        page = context.new_page()
        page.goto("/")
        # A header cannot have it: it is not even sent.
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_label("A token of the role").fill("t\u2013t")
        page.get_by_role("button", name="Go on").click()
        for token, said in (("wrong", "wants to know"), ("t" * 20, "does not know this token")):
            expect(page.get_by_role("dialog")).to_contain_text(said)
            page.get_by_label("A token of the role").fill(token)
            page.get_by_role("button", name="Go on").click()
        expect(page.locator("#connection")).to_have_text("live")
        page.reload()
        expect(page.locator("#connection")).to_have_text("live")
        assert page.get_by_role("dialog").count() == 0
        page.get_by_role("button", name="Submit SQL").click()
        page.get_by_label("SQL to submit").fill(COPY)
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("a token of the role submit")
        assert urlsplit(page.url).query == ""
