"""The page of ``noisychannel serve`` in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noisychannel import NoisyChannel
from noisychannel.serve.pages import main_page
from serving import GatedRun, Running, demo, running, toy_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
HOSTILE = "<svg onload=a()>"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed, so the page is not tested in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield one
        one.close()


class Visit:
    """A page, and everything that went wrong in it."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1100, "height": 900}, **settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.address = address
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda message: message.type in ("error", "warning") and self.problems.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, fragment: str = "") -> Any:
        self.page.goto(self.address + fragment)
        return self.page

    def outputs(self) -> list[str]:
        self.page.wait_for_selector("#outputs li")
        return [row.get_attribute("data-output") for row in self.page.locator("#outputs li").all()]

    def decoded(self, text: str) -> None:
        self.page.wait_for_function(
            "text => document.getElementById('status').textContent.includes(`“${text}” in`)", arg=text
        )


@pytest.fixture
def visit(browser: Any, server: Running) -> Iterator[Visit]:
    one = Visit(browser, server.address)
    yield one
    one.context.close()
    assert one.problems == []
    assert [url for url in one.asked if not url.startswith(server.address)] == []


def test_type_and_see_the_outputs(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("textbox", name="Input").fill("Baum")
    page.keyboard.press("Enter")
    visit.decoded("Baum")
    expected = NoisyChannel.load("demo", device="cpu")("Baum", n_best=5)
    assert visit.outputs() == [output.text for output in expected]
    costs = page.locator("#outputs .cost").all_inner_texts()
    assert [float(cost) for cost in costs] == pytest.approx([-o.hypothesis.score for o in expected], abs=0.006)
    assert f"{round(100 * (expected[0].confidence or 0))} % sure" in page.locator("#outputs li").first.inner_text()
    label = page.locator("#direct-alignment svg").get_attribute("aria-label")
    assert (
        label
        == "Direct model: B from B, ä from a, u from u, m from m, e from the end, n from the end, the end from the end"
    )
    assert page.locator("#channel-alignment svg").count() == 1
    assert page.locator("#tree g.best").count() == len("Bäumen") + 2, "the root and the end, too"


def test_what_the_models_do_not_know_is_told_and_is_not_sure(visit: Visit) -> None:
    page = visit.open("#input=中文")
    visit.decoded("中文")
    assert page.locator("#remarks").inner_text().startswith("The models do not know “中”, “文”, and can only guess")
    assert page.locator("#outputs .sure").all_inner_texts() == ["< 1 % sure"] * 5
    page.get_by_role("textbox", name="Input").fill("Baum")
    page.keyboard.press("Enter")
    visit.decoded("Baum")
    assert page.locator("#remarks").is_hidden()


def test_bars_add_up(visit: Visit) -> None:
    page = visit.open("#input=Land")
    visit.decoded("Land")
    for row in page.locator("#outputs li").all():
        box = {name: row.locator(f".{name}").bounding_box() for name in ("zero", "sum")}
        bars = [bar.bounding_box() for bar in row.locator(".bar").all()]
        assert len(bars) == 4
        rewards = sum(bar["width"] for bar in bars if bar["x"] < box["zero"]["x"] - 1)
        paid = sum(bar["width"] for bar in bars) - rewards
        middle = box["sum"]["x"] + box["sum"]["width"] / 2
        assert middle - box["zero"]["x"] == pytest.approx(paid - rewards, abs=3)


def test_click_an_example(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("button", name="Lehrerin").click()
    visit.decoded("Lehrerin")
    assert visit.outputs()[0] == "Lehrerinnen"
    assert page.get_by_role("textbox", name="Input").input_value() == "Lehrerin"


def test_slide_and_see_another_order(visit: Visit, server: Running) -> None:
    page = visit.open("#input=Land")
    visit.decoded("Land")
    before = visit.outputs()
    asked = len(visit.asked)
    for name in ("lm", "channel", "length"):
        slide(page, name, 0)
    after = visit.outputs()
    (result,) = server.post("/api/explain", {"input": "Land", "n_best": 5}).json()["results"]
    by_direct = sorted(result["hypotheses"], key=lambda one: -one["direct"])
    assert after == [one["output"] for one in by_direct]
    assert after[0] != before[0]
    assert len(visit.asked) == asked, "the browser ranks by itself"
    assert f"“{after[0]}” is now first instead of “{before[0]}”" in page.locator("#order").inner_text()
    assert page.locator("#aligned").inner_text() == after[0]
    page.get_by_role("button", name="Decode again with these weights").click()
    page.wait_for_function("() => document.getElementById('order').textContent.includes('with your weights')")
    searched = server.post("/api/decode", {"input": "Land", "n_best": 5, "system": "direct"}).json()["results"][0]
    assert visit.outputs() == [one["output"] for one in searched["hypotheses"]]
    page.get_by_role("button", name="Reset weights").click()
    page.wait_for_function("() => document.getElementById('order').textContent.includes('of the system')")
    assert visit.outputs() == before


def slide(page: Any, name: str, value: float) -> None:
    slider = page.locator(f"#weight-{name}")
    slider.evaluate("(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", value)


def test_sliders_answer_to_the_keyboard(visit: Visit) -> None:
    page = visit.open("#input=Baum")
    visit.decoded("Baum")
    page.locator("#weight-channel").focus()
    before = page.locator("#weight-channel-value").inner_text()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert float(page.locator("#weight-channel-value").inner_text()) > float(before)
    assert "still that of the search" in page.locator("#order").inner_text()


def test_the_focus_stays_when_a_button_goes_away(visit: Visit) -> None:
    page = visit.open("#input=Land")
    visit.decoded("Land")
    page.locator("#weight-lm").focus()
    page.keyboard.press("Home")
    page.locator("#again").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#again", state="hidden")
    assert page.evaluate("document.activeElement.id") == "link"
    page.locator("#reset").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#reset", state="hidden")
    assert page.evaluate("document.activeElement.id") == "link"


def test_a_link_reproduces_the_view(visit: Visit, browser: Any, server: Running) -> None:
    page = visit.open()
    page.get_by_role("textbox", name="Input").fill("Kunst")
    page.get_by_role("spinbutton", name="Outputs").fill("7")
    page.get_by_label("System").select_option("direct+lm")
    page.get_by_role("button", name="Decode", exact=True).click()
    visit.decoded("Kunst")
    slide(page, "lm", 1.5)
    page.get_by_role("button", name="Decode again").click()
    page.wait_for_function("() => document.getElementById('order').textContent.includes('with your weights')")
    slide(page, "length", -0.5)
    page.locator("#outputs li").nth(2).click()
    other = Visit(browser, page.url)
    second = other.open()
    other.decoded("Kunst")
    parts = ("#outputs", "#weights", "#order", "#alignments", "#tree-hint")
    assert [second.locator(part).inner_text() for part in parts] == [page.locator(part).inner_text() for part in parts]
    assert second.locator("#tree").inner_html() == page.locator("#tree").inner_html()
    assert second.locator("#outputs input:checked").get_attribute("value") == page.locator(
        "#outputs input:checked"
    ).get_attribute("value")
    assert other.problems == []
    other.context.close()
    assert "searched=" in page.url
    page.go_back()
    page.wait_for_function("() => !location.hash.includes('searched=')")
    visit.decoded("Kunst")


def test_the_tree_opens_by_keyboard(visit: Visit) -> None:
    page = visit.open("#input=Gebirgsbach")
    visit.decoded("Gebirgsbach")
    before = page.locator("#tree svg > g[class]").count()
    node = page.locator("#tree [role=button]").first
    assert node.get_attribute("aria-expanded") == "false"
    node.focus()
    page.keyboard.press("Enter")
    assert page.locator("#tree svg > g[class]").count() > before
    again = page.locator("#tree [role=button]").first
    assert again.get_attribute("aria-expanded") == "true"
    assert again.evaluate("node => node === document.activeElement")
    page.keyboard.press(" ")
    assert page.locator("#tree svg > g[class]").count() == before


def test_problems_are_told(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("textbox", name="Input").fill("x" * 300)
    page.keyboard.press("Enter")
    page.wait_for_selector("#status.bad")
    assert "the input has 300 symbols; at most 100 are allowed" in page.locator("#status").inner_text()
    assert page.get_by_role("button", name="Decode", exact=True).is_enabled()
    assert len(visit.problems) == 1, "the browser tells of the status"
    assert "422" in visit.problems.pop()


def test_tags_that_are_missing_are_told_beside_their_field(browser: Any, tmp_path: Path) -> None:
    with running([demo(), toy_run(tmp_path, "characters", "N;PL")]) as server:
        visit = Visit(browser, server.address)
        page = visit.open()
        page.get_by_label("Run").select_option("toy")
        page.get_by_role("textbox", name="Input").fill("ab")
        page.keyboard.press("Enter")
        problem = page.locator("#tags-field [role=alert]")
        problem.wait_for()
        assert problem.inner_text() == "This run needs tags, such as N;PL."
        assert page.get_by_label("Tags").evaluate("field => field === document.activeElement")
        assert not any("/api/explain" in url for url in visit.asked)
        page.get_by_label("Tags").fill("N;PL")
        assert problem.is_hidden()
        page.keyboard.press("Enter")
        visit.decoded("ab")
        assert any("/api/explain" in url for url in visit.asked)
        assert visit.problems == []
        visit.context.close()


def test_the_newest_input_is_decoded_even_while_another_one_is(browser: Any) -> None:
    gated = GatedRun()
    with running([gated]) as server:
        visit = Visit(browser, server.address)
        page = visit.open()
        for text in ("Land", "Tal", "Baum", "Baum"):
            page.get_by_role("textbox", name="Input").fill(text)
            page.keyboard.press("Enter")
            assert gated.working.wait(30)
        gated.gate.set()
        visit.decoded("Baum")
        assert visit.outputs()[0] == "Bäumen"
        assert sum("/api/explain" in url for url in visit.asked) == 3, "the same input is not sent twice"
        assert visit.problems == []
        visit.context.close()


def test_a_link_to_what_is_not_served_says_so(visit: Visit) -> None:
    page = visit.open("#run=gone&system=direct%2Bnews&input=Baum")
    visit.decoded("Baum")
    said = "The link names a run “gone” and a system “direct+news” that this server does not have; this is demo, "
    assert page.locator("#link-problem").inner_text() == said + "direct+channel+lm."
    page.get_by_role("button", name="Lehrerin").click()
    visit.decoded("Lehrerin")
    assert page.locator("#link-problem").is_hidden()


def test_the_tree_has_the_costs_of_the_list(visit: Visit) -> None:
    page = visit.open("#input=Baum")
    visit.decoded("Baum")
    cost = float(page.locator("#outputs .cost").first.inner_text())
    assert cost > 0
    assert float(page.locator("#tree g.best .score").text_content()) == pytest.approx(cost, abs=0.011)


def test_texts_stay_texts(visit: Visit) -> None:
    page = visit.open()
    page.get_by_role("textbox", name="Input").fill(HOSTILE)
    page.keyboard.press("Enter")
    visit.decoded(HOSTILE)
    assert page.locator("[onload]").count() == 0
    assert HOSTILE in page.locator("#status").inner_text()
    assert "do not know" in page.locator("#remarks").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_in_light_and_dark(browser: Any, server: Running, scheme: str) -> None:
    visit = Visit(browser, server.address, color_scheme=scheme, has_touch=True)
    visit.page.set_viewport_size({"width": 360, "height": 740})
    page = visit.open("#input=Gebirgsbach&n=10")
    visit.decoded("Gebirgsbach")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for details in page.locator("details").all():
        details.evaluate("one => one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 384) == (scheme == "light")
    page.locator("#outputs li").nth(1).tap()
    assert page.locator("#aligned").inner_text() == visit.outputs()[1]
    assert visit.problems == []
    visit.context.close()


def test_every_control_has_a_name(visit: Visit) -> None:
    page = visit.open("#input=Baum")
    visit.decoded("Baum")
    tree = page.locator("body").aria_snapshot()
    controls = re.findall(r"- '?(button|textbox|slider|combobox|spinbutton|radio|img|link)\b(.*)", tree)
    assert len(controls) >= 20
    assert [rest for _, rest in controls if not rest.strip().startswith('"')] == [], tree


def test_the_token_is_asked_for(browser: Any) -> None:
    with running(token="a-Secret") as server:
        visit = Visit(browser, server.address)
        page = visit.open("#input=Baum")
        page.wait_for_selector("#token")
        assert "a token is needed" in page.locator("#status").inner_text()
        page.get_by_label("Token of this server").fill("a-Secret")
        page.keyboard.press("Enter")
        visit.decoded("Baum")
        assert page.locator("#token-field").is_hidden()
        assert "a-Secret" not in page.url
        visit.context.close()


def test_the_page_needs_nothing_from_outside() -> None:
    page = main_page()
    assert not re.search(r'(src|href)\s*=\s*["\'](?![/#])|@import|url\(', page.html)
    assert len(re.findall("'sha256-", page.policy)) == page.html.count("<script>") + page.html.count("<style>")
    assert "unsafe" not in page.policy
