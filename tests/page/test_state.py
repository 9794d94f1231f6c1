"""The views of state, SQL and results in a browser: what they show is what queries find."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.page.conftest import PHONE, Shot
from tests.page.site import PER_STEP, Site
from tests.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.one_in(2, of="the page")]

SALES = """
SET 'execution.checkpointing.interval' = '20 ms';
SET 'sqlstream.unbounded-state' = 'allow';

CREATE TABLE sales (item STRING, window_start TIMESTAMP(3), orders BIGINT, total DOUBLE);
CREATE TABLE totals (item STRING, orders BIGINT, total DOUBLE, PRIMARY KEY (item) NOT ENFORCED);

INSERT INTO sales
WITH by_item AS (
    SELECT item, window_start, window_end, COUNT(*) AS orders, SUM(price) AS total
    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '10' SECOND))
    GROUP BY item, window_start, window_end
)
SELECT item, window_start, orders, total FROM by_item;

INSERT INTO totals SELECT item, COUNT(*) AS orders, SUM(price) AS total FROM orders GROUP BY item;
"""
STATE = "#/job/sales/state/by_item"
COLUMNS = "item, window_start, window_end, window_time, orders, total"


@pytest.fixture(scope="module", autouse=True)
def fed(site: Site) -> None:
    """Both jobs, which have read some seconds of orders, each in a batch of its own."""
    site.submit(SALES)
    feed(site, 8)


def feed(site: Site, steps: int = 1) -> None:
    for _ in range(steps):
        site.feed()
        for name in ("sales", "totals"):
            wait_until(lambda name=name: site.job(name).get("rows_in") == PER_STEP * site.steps)


def opened(site: Site, page: Page) -> Locator:
    """Open the state, and return its rows, which are those of the newest version."""
    page.goto(f"/{STATE}")
    expect(page.locator(".state-rows tbody tr").first).to_be_visible()
    rows = page.locator(".state-rows")
    await_newest(site, rows)
    return rows


def await_newest(site: Site, rows: Locator) -> int:
    """Wait until the rows are those of the newest version, also where empty batches have come behind it; return which one."""
    wait_until(lambda: rows.get_attribute("data-version") == str(versions(site)[-1]))
    return int(rows.get_attribute("data-version") or -1)


def shown(rows: Locator) -> list[list[str]]:
    """Return the texts of the rows, without that of the button."""
    return [
        line[: len(COLUMNS.split(", "))]
        for line in rows.locator("tbody tr").evaluate_all(
            "lines => lines.map(line => [...line.cells].map(cell => cell.textContent))"
        )
    ]


def queried(site: Site, version: int) -> list[list[object]]:
    texts = ", ".join(f"CAST({name} AS VARCHAR)" for name in COLUMNS.split(", "))
    return site.rows(f"SELECT {texts} FROM (FROM state.sales.by_item AT (VERSION => {version}) ORDER BY ALL)")


def slide(page: Page, label: str, *places: int) -> None:
    """Drag a mark over some places, as fast as a hand can, and let it stay at the last."""
    page.get_by_label(label, exact=True).evaluate(
        "(mark, places) => places.forEach(place => { mark.value = place;"
        " mark.dispatchEvent(new Event('input', {bubbles: true})); })",
        list(places),
    )


def versions(site: Site) -> list[int]:
    found = site.client.get("/v1/jobs/sales/versions", params={"state": "by_item"}).json()
    return [version["version"] for version in found["versions"]]


def test_rows_move_while_the_job_runs(site: Site, page: Page) -> None:
    rows = opened(site, page)
    before = shown(rows)
    feed(site)
    newest = await_newest(site, rows)
    assert shown(rows) == queried(site, newest) != before
    # A watermark that calls no operator is recorded by a batch of its own, a moment later.
    slider = page.get_by_label("Version", exact=True)
    wait_until(lambda: int(slider.get_attribute("max") or 0) == len(versions(site)) - 1)


def test_wound_back_it_shows_what_a_query_at_the_version_finds(site: Site, page: Page, shot: Shot) -> None:
    rows = opened(site, page)
    known = versions(site)
    middle = len(known) // 2
    asked: list[str] = []
    page.on("request", lambda request: asked.append(_sql(request)) if request.url.endswith("/v1/query") else None)
    slide(page, "Version", *range(len(known) - 1, middle - 1, -1))
    expect(rows).to_have_attribute("data-version", str(known[middle]))
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "false")
    assert shown(rows) == queried(site, known[middle]) != queried(site, known[-1])
    # One stop: the rows and the windows are asked for once.
    assert len(asked) == 2
    assert all(f"AT (VERSION => {known[middle]})" in sql for sql in asked)
    shot(page, "page-state")
    # By keyboard, one version on.
    page.get_by_label("Version", exact=True).press("ArrowRight")
    expect(rows).to_have_attribute("data-version", str(known[middle + 1]))
    assert shown(rows) == queried(site, known[middle + 1])
    windows = site.rows(
        f"SELECT count(DISTINCT window_end) FROM state.sales.by_item AT (VERSION => {known[middle + 1]})"
    )
    expect(page.locator(".windows li")).to_have_count(int(str(windows[0][0])))
    # It stays there while the job goes on.
    feed(site)
    expect(rows).to_have_attribute("data-version", str(known[middle + 1]))
    page.get_by_role("button", name="Live").click()
    await_newest(site, rows)


def _sql(request: Request) -> str:
    return str(json.loads(request.post_data or "{}").get("sql", ""))


def test_an_answer_that_comes_too_late_is_not_shown(site: Site, page: Page) -> None:
    rows = opened(site, page)
    first, second = versions(site)[1:3]
    held: list[Route] = []

    def hold(route: Route) -> None:
        if f"VERSION => {first})" in _sql(route.request):
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/query", hold)
    with page.expect_request(lambda request: f"VERSION => {first})" in _sql(request)):
        slide(page, "Version", 1)
    slide(page, "Version", 2)
    expect(rows).to_have_attribute("data-version", str(second))
    for route in held:
        route.continue_()
    page.get_by_role("button", name="Chart").click()
    expect(page.locator(".row-chart svg :is(.bar, .line, .dot)")).not_to_have_count(0)
    assert rows.get_attribute("data-version") == str(second)
    assert shown(rows) == queried(site, second)


def test_two_marks_show_what_differs(site: Site, page: Page, shot: Shot) -> None:
    rows = opened(site, page)
    known = versions(site)
    page.get_by_role("button", name="Compare").click()
    older, newer = known[2], known[-2]
    slide(page, "Newer version", len(known) - 2)
    slide(page, "Older version", 2)
    expect(page.locator(".version-title")).to_have_text(f"Version {older} → {newer}")
    expect(page.locator(".version-head .hint").last).to_contain_text(f"between version {older} and {newer}")
    found = site.client.post(
        "/v1/diff", json={"state": "sales.by_item", "older": older, "newer": newer, "text": True}
    ).json()
    kinds = {"added": "+", "removed": "−", "changed": "~"}
    expect(rows.locator("tbody tr")).to_have_count(len(found["rows"]))
    texts = rows.locator("tbody tr").evaluate_all(
        "lines => lines.map(line => [...line.cells].map(cell => cell.textContent))"
    )
    for (change, reason, before, after), cells in zip(found["rows"], texts, strict=True):
        values = [
            f"{old} → {new}" if change == "changed" and old != new else new if change != "removed" else old
            for old, new in zip((before or after).values(), (after or before).values(), strict=True)
        ]
        assert cells == [kinds[change], reason, *values]
    assert {row[0] for row in found["rows"]} & {"changed", "added"}
    shot(page, "page-diff")


def test_why_says_what_sqlstream_why_says(site: Site, page: Page, shot: Shot) -> None:
    rows = opened(site, page)
    item = rows.locator("tbody tr").first.locator("td").first.inner_text()
    version = int(rows.get_attribute("data-version") or -1)
    rows.get_by_role("button", name="Why?").first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("h2")).to_have_text(f"Why? item = {item}")
    said = site.client.post(
        "/v1/why", json={"state": "sales.by_item", "key": {"item": item}, "version": version}
    ).json()
    texts = [row[2] for row in said["rows"] if row[4] is None and row[0] != "version"]
    assert any("closes when the watermark passes" in text for text in texts)
    expect(dialog.locator(".finding span:last-child")).to_have_text(texts)
    expect(dialog.locator("tbody tr")).to_have_count(sum(row[0] == "state" for row in said["rows"]))
    shot(page, "page-why")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    # JavaScript's numbers have 53 bits.
    content = json.dumps({"n": (1 << 53) + 1, "s": "1.0"})
    columns = [{"name": name, "type": "VARCHAR"} for name in ("part", "name", "text", "time", "content")]
    answer = {"columns": columns, "rows": [["state", "by_item", None, None, content]], "truncated": False}
    page.route("**/v1/why", lambda route: route.fulfill(json=answer))
    rows.get_by_role("button", name="Why?").first.click()
    expect(dialog.locator("tbody td")).to_have_text(["9007199254740993", "1.0"])


def test_why_that_is_closed_is_not_answered(site: Site, page: Page) -> None:
    rows = opened(site, page)
    page.route("**/v1/why", lambda route: None)
    with page.expect_event("requestfailed") as ended:
        with page.expect_request("**/v1/why"):
            rows.get_by_role("button", name="Why?").first.click()
        page.keyboard.press("Escape")
    assert ended.value.url.endswith("/v1/why")


def test_a_slow_server_is_asked_for_one_answer_at_a_time(page: Page) -> None:
    page.goto("/")
    most = page.evaluate("""async () => {
        const { throttled } = await import("/assets/dom.js");
        const [seen, ends] = [{ running: 0, most: 0 }, []];
        const ask = throttled(1, null, () => {
            seen.most = Math.max(seen.most, ++seen.running);
            return new Promise((end) => ends.push(() => { seen.running -= 1; end(); }));
        });
        const passed = (wanted) => new Promise((done) => {
            const look = () => (wanted() ? done() : setTimeout(look, 1));
            look();
        });
        ask();
        await passed(() => ends.length === 1);
        ask();
        await new Promise((done) => setTimeout(done, 20));
        ends[0]();
        await passed(() => ends.length === 2);
        return seen.most;
    }""")
    assert most == 1


def test_a_slider_takes_the_versions_of_days(page: Page) -> None:
    page.goto("/")
    count = page.evaluate("""async () => {
        const { versionSlider } = await import("/assets/views/version_slider.js");
        const slider = versionSlider({ moved: () => {}, stopped: () => {}, signal: new AbortController().signal });
        slider.draw(Array.from({ length: 300_000 }, (_, version) => ({ version, committed_at: version, state_rows: 1 })), true);
        return slider.newer.version;
    }""")
    assert count == 299_999


def test_a_value_with_fields_is_written_out(page: Page) -> None:
    page.goto("/")
    text = page.evaluate("""async () => {
        const { stateTable } = await import("/assets/state_tables.js");
        const table = stateTable({ why: () => {}, sorted: () => {} });
        table.draw([{ name: "place", type: "STRUCT(x VARCHAR)" }], [[{ x: "<b>" }]], [], null);
        return table.element.querySelector("tbody td").textContent;
    }""")
    assert text == '{"x":"<b>"}'


def test_sql_is_answered_and_its_errors_have_carets(site: Site, page: Page, shot: Shot) -> None:
    page.goto("/#/sql")
    field = page.get_by_label("SQL", exact=True)
    sql = "SELECT item, sum(total) AS total\nFROM state.sales.by_item GROUP BY item ORDER BY item"
    field.fill(sql)
    field.press("Control+Enter")
    result = page.get_by_role("region", name="Result")
    lines = result.locator("tbody tr")
    expect(lines.first).to_be_visible()
    items = [line.split("\t")[0] for line in lines.all_inner_texts()]
    assert items == [row[0] for row in site.rows(sql)]
    page.get_by_role("button", name="Chart").click()
    expect(result.locator("svg .bar")).to_have_count(len(items))
    shot(page, "page-sql")
    wrong = "SELECT item,\n  nope FROM sales"
    field.fill(wrong)
    field.press("Control+Enter")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text('column "nope" does not exist')
    assert problem.inner_text() == site.client.post("/v1/query", json={"sql": wrong}).json()["text"].rstrip()
    assert "^^^^" in problem.inner_text()
    assert field.evaluate("f => f.value.slice(f.selectionStart, f.selectionEnd)") == "nope"
    page.get_by_text("History in this browser").click()
    page.get_by_role("button", name="SELECT item, sum(total)").click()
    expect(field).to_have_value(sql)
    page.get_by_role("button", name="totals").first.click()
    expect(page.get_by_role("status").last).to_contain_text("rows in")


def test_results_are_listed_as_they_come(site: Site, page: Page, shot: Shot) -> None:
    page.goto("/#/results")
    page.get_by_role("link", name="totals").click()
    lines = page.locator(".tail tbody tr")
    expect(page.locator(".tail tr.after").first).to_be_visible()
    feed(site)
    wanted = site.rows("SELECT CAST(max(orders) AS VARCHAR) FROM totals")[0][0]
    expect(page.locator(".tail tr.after", has_text=str(wanted)).first).to_be_visible()
    assert {text.split("\t")[0] for text in lines.all_inner_texts()} == {"+I", "-U", "+U"}
    shot(page, "page-results")
    page.get_by_role("button", name="Pause").click()
    count = lines.count()
    feed(site)
    expect(page.locator(".version-head [role=status]")).to_contain_text("changes wait")
    assert lines.count() == count
    page.get_by_role("button", name="Go on").click()
    wanted = site.rows("SELECT CAST(max(orders) AS VARCHAR) FROM totals")[0][0]
    expect(page.locator(".tail tr.after", has_text=str(wanted)).first).to_be_visible()


def test_results_say_where_changes_may_be_missing(page: Page) -> None:
    described = {"table": "totals", "columns": [{"name": "n", "type": "BIGINT"}], "key": [], "jobs": ["totals"]}
    # The versions that a connection brings before it breaks off, and the next one, and so on.
    heard = [[3], [3, 4], [6, 7], [8]]

    def event(kind: str, data: Mapping[str, object]) -> str:
        return f"event: {kind}\ndata: {json.dumps({'job': 'totals', **data})}\n\n"

    def changes(version: int) -> str:
        rows = [["+I", str(version)]]
        return event("changes", {"version": version, "committed_at": version, "count": 1, "rows": rows})

    def answer(route: Route) -> None:
        body = event("table", described) + "".join(map(changes, heard.pop(0) if heard else []))
        route.fulfill(body=body, content_type="text/event-stream")

    page.route("**/v1/tables/totals/changes", answer)
    page.goto("/#/results/totals")
    gap = "The connection was broken: there may be changes of meanwhile that are not shown"
    # The newest first.
    expect(page.locator(".tail tbody tr")).to_have_text(["+I88", "+I77", "+I66", gap, "+I44", "+I33"])


def test_on_a_phone_nothing_is_wider_than_the_screen(site: Site, page: Page, shot: Shot) -> None:
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.emulate_media(color_scheme="dark")
    for address in ("#/sql", "#/results/totals", STATE):
        page.goto(f"/{address}")
        expect(page.locator("main h1")).to_be_visible()
        if address == STATE:
            expect(page.locator(".state-rows tbody tr").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], address
    shot(page, "page-state-phone")
