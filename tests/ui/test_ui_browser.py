"""The pages in a headless Chromium: hostile names, narrow screens, both themes, keyboard, changes, live campaigns."""

import re
import time

import pytest
from test_ui_program import ask, start_campaign

import watcherml

VIEWS = ["/", "/projects", "/runs", "/failures", "/campaigns", "/memory", "/guide", "/settings"]
NARROW = {"width": 390, "height": 844}
WIDE = {"width": 1280, "height": 900}
# Relative luminance and contrast as WCAG 2 defines them, of every element that holds text of its own.
CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const light = (c) => c.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(parse(getComputedStyle(e).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const faded = (element) => {
    let o = 1;
    for (let e = element; e; e = e.parentElement) o *= getComputedStyle(e).opacity;
    return o;
  };
  const bad = [];
  for (const element of document.querySelectorAll("main *, .bar *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.getClientRects().length || element.closest(".hidden, .off, option")) continue;
    const under = ground(element), colour = parse(getComputedStyle(element).color);
    const text = over([...colour.slice(0, 3), colour[3] * faded(element)], under);
    const [a, b] = [light(text), light(under)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push([element.textContent.trim().slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return bad;
}"""
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE = """() => performance.getEntriesByType('resource').map((one) => one.name)
  .filter((name) => !name.startsWith(location.origin) && !name.startsWith('data:'))"""
SEEN = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def until(holds, seconds=30):
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def browse(chromium):
    """Open pages; the test fails for an error, a refused resource or a name that ran as a script."""
    opened = []

    def start(viewport=None, theme="light", **options):
        context = chromium.new_context(viewport=viewport or WIDE, color_scheme=theme, **options)
        context.set_default_timeout(60_000)
        page, problems = context.new_page(), []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: problems.append("a dialog") or dialog.dismiss())
        opened.append((context, page, problems))
        return page

    yield start
    for context, page, problems in opened:
        title = page.title()
        context.close()
        assert not problems, problems
        assert "owned" not in title


def every_page(ids):
    single = [f"/runs/{ids[one]}" for one in ("rich", "long", "hostile", "shape")]
    single += [f"/failures/{ids[one]}" for one in ("recovered", "hostile", "shape", "nan")]
    return [*VIEWS, *single, *(f"/campaigns/{ids[one]}" for one in ("verified", "imported_campaign"))]


@pytest.mark.parametrize(("theme", "viewport"), [("light", WIDE), ("dark", NARROW)])
def test_every_view_is_calm_readable_and_local_whatever_the_names(template, ids, serve, browse, theme, viewport):
    served, page = serve(template[0].path), browse(viewport, theme)
    for path in every_page(ids):
        page.goto(served.address + path)
        assert page.evaluate(TOO_WIDE) <= 0, path
        assert page.evaluate(OUTSIDE) == [], path
        assert page.evaluate("document.title") != "owned", path
        assert page.locator("h1").count() == 1 and page.locator("main script").count() == 0, path
        assert page.locator("img[onerror]").count() == 0, path
        assert page.evaluate(CONTRAST) == [], path
        pictures = page.evaluate("[...document.images].filter((one) => !one.naturalWidth).length")
        assert pictures == 0, path


def test_empty_old_and_big_stores_fit_a_phone(nothing, old, big, serve, browse):
    page = browse(NARROW, "light")
    for client, words in (
        (nothing, "There is no store here yet"),
        (old, "written by WatcherML 0.1"),
        (big, "2,000 runs"),
    ):
        served = serve(client.storage.path)
        for path in VIEWS[:6]:
            page.goto(served.address + path)
            assert page.evaluate(TOO_WIDE) <= 0, path
        page.goto(served.address)
        assert words in page.inner_text("main")
    # Pages are turned by their links.
    page.goto(f"{served.address}/runs")
    page.get_by_role("link", name="After →").click()
    page.wait_for_url("**/runs?page=2")
    assert "51 to 100 of 2,000" in page.inner_text("main")


def test_everything_is_reached_with_the_keyboard_and_shows_where_it_is(template, ids, serve, browse):
    served, page = serve(template[0].path), browse()
    page.goto(f"{served.address}/runs")
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to the content" and skip.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]")
        )
    assert [one for one in seen if one[0] == "A"] and all(style != "none" for _, style in seen), seen
    page.goto(served.address)
    page.get_by_role("link", name="Memory", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/memory")
    assert page.locator("nav [aria-current=page]").inner_text() == "Memory"


def test_the_theme_is_chosen_and_kept(nothing, serve, browse):
    served, page = serve(nothing.storage.path), browse()
    page.goto(f"{served.address}/settings")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("dark").check()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.goto(f"{served.address}/guide")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark != light


def test_a_run_is_renamed_and_a_failure_resolved_in_the_browser(own, ids, serve, browse):
    served, page = serve(own.storage.path), browse()
    page.goto(f"{served.address}/runs/{ids['failed']}")
    page.get_by_label("Name of this run").fill("<b>too big</b> a batch")
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("status").wait_for()
    assert page.inner_text("h1") == "<b>too big</b> a batch"
    page.goto(f"{served.address}/failures/{ids['failed']}")
    page.get_by_label("Who says so").fill("Ann")
    page.get_by_label("What resolved it").fill("half the batch")
    page.get_by_role("button", name="Mark as resolved").click()
    page.get_by_text("The failure is marked as resolved.").wait_for()
    row = own.storage.evidence.capsule(ids["failed"])
    assert (row["resolved_by"], row["resolved_note"]) == ("Ann", "half the batch")
    page.goto(f"{served.address}/memory")
    assert "half the batch" in page.inner_text("main")
    page.goto(f"{served.address}/failures/{ids['failed']}")
    page.get_by_role("button", name="Open it again").click()
    page.get_by_text("The failure is open again.").wait_for()
    assert own.storage.evidence.capsule(ids["failed"])["resolved_at"] is None


def test_a_page_of_another_site_can_neither_read_nor_change_nor_frame(own, ids, nothing, serve, chromium):
    ours, other = serve(own.storage.path), serve(nothing.storage.path)
    context = chromium.new_context()
    page = context.new_page()
    # Another port is another origin; this page's own policy is out of the way, as on a page of an attacker.
    page.route(
        f"{other.address}/guide", lambda route: route.fulfill(body="<title>evil</title>", content_type="text/html")
    )
    page.goto(f"{other.address}/guide")
    read = (
        "async (url) => { try { return (await (await fetch(url)).text()).length } catch (error) { return 'refused' } }"
    )
    assert page.evaluate(read, f"{ours.address}/runs") == "refused"
    send = """async ([url, run]) => {
      const form = document.createElement('form'); form.method = 'post'; form.action = url;
      for (const [name, value] of [['token', 'guess'], ['run_id', run], ['title', 'stolen']]) {
        const field = document.createElement('input'); field.name = name; field.value = value; form.append(field); }
      document.body.append(form); form.submit(); }"""
    with page.expect_navigation():
        page.evaluate(send, [f"{ours.address}/rename", ids["failed"]])
    assert "403 Forbidden" in page.inner_text("body")
    assert own.storage.get_run(ids["failed"])["title"] is None
    page.goto(f"{other.address}/guide")
    page.evaluate(
        "(url) => { const f = document.createElement('iframe'); f.src = url; document.body.append(f) }", ours.address
    )
    page.wait_for_timeout(500)
    assert all("Overview" not in (one.title() or "") for one in page.frames[1:])
    context.close()


def test_a_campaign_grows_on_its_page_until_its_verdict_stands_there(storage, failed_run, requirements, serve, browse):
    served, page = serve(storage.path), browse()
    campaign = start_campaign(storage, failed_run, requirements)
    page.goto(f"{served.address}/campaigns/{campaign.campaign_id}")
    page.evaluate("window.sameDocument = true")
    assert "Live" in page.inner_text("#live")
    page.locator("#trail li").nth(2).wait_for()
    # A page that nobody looks at holds no connection, and misses nothing when it is looked at again.
    page.evaluate(SEEN, "hidden")
    until(lambda: "campaign</dt><dd>0<" in ask(served, "/settings")[1])
    assert campaign.lifecycle == "running"
    page.evaluate(SEEN, "visible")
    page.get_by_text("The campaign has ended.").wait_for()
    assert page.evaluate("window.sameDocument") is True  # nobody reloaded the page
    verdict = campaign.wait(30).verdict
    page.get_by_text(re.compile(f"Checks: \\d+ of {len(verdict.checks)} passed")).wait_for()
    lines = page.locator("#trail li .number").all_inner_texts()
    assert lines == [str(number) for number in range(1, len(campaign.events()) + 1)]
    assert verdict.status == "verified" and "Verified" in page.inner_text("#face")


def test_lists_renew_themselves(tmp_path, serve, browse):
    served, page = serve(tmp_path / "store"), browse()
    page.goto(served.address)
    page.get_by_text("There is no store here yet").wait_for()
    with watcherml.Run("later", {}, tmp_path / "store", quiet=True) as run:
        run.log_metric("loss", 1.0, step=0)
    page.get_by_text("1 run in 1 project").wait_for()
