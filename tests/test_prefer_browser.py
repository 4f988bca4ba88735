"""The page for raters in a real browser: Debian's Chromium through playwright. Without one, the tests are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noisychannel.prefer.key import Key
from noisychannel.prefer.page import PageRecord
from noisychannel.prefer.ratings import read_ratings
from noisychannel.prefer.tally import Tally
from preferring import HOSTILE, toy_page
from test_prefer_server import server

ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
AWAY = "() => { window.realFetch = window.fetch; window.fetch = async () => { throw new TypeError('away'); }; }"
BACK = "() => { window.fetch = window.realFetch; }"
STORED = "() => document.getElementById('status').textContent.startsWith('All your ratings are stored')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not tested in a browser")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium: pages are not tested in a browser")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


class Rater:
    """A robot, so its ratings are marked as artificial: it opens pages as a trial."""

    def __init__(self, context: Any, address: str, name: str) -> None:
        self.view = context.new_page()
        self.errors: list[str] = []
        self.view.on("pageerror", lambda error: self.errors.append(str(error)))
        self.view.on("console", lambda message: self.errors.append(message.text))
        self.view.on("dialog", self.dialog)
        self.name = name
        self.open(address)

    def dialog(self, dialog: Any) -> None:
        self.errors.append("a dialog")
        dialog.accept()

    def open(self, address: str) -> None:
        self.view.goto("about:blank")  # so that the same address is loaded again
        self.view.goto(f"{address}#trial")
        self.view.fill("#rater", self.name)
        self.view.keyboard.press("Enter")

    def open_again(self, address: str, rated: int) -> None:
        """Reload until so many ratings are there: a busy browser may store them later than a robot reloads."""
        for _ in range(40):
            self.open(address)
            if self.rated() == rated:
                return
            self.view.wait_for_timeout(250)
        raise AssertionError(f"{self.rated()} ratings instead of {rated} after reloading")

    def texts(self) -> tuple[str, str, str]:
        """Input and outputs as they are seen."""
        return (
            self.view.locator(".source .text").first.text_content(),
            self.view.text_content("#output-1"),
            self.view.text_content("#output-2"),
        )

    def rated(self) -> int:
        return int(self.view.text_content("#count").split()[0])

    def download(self, directory: Path) -> str:
        with self.view.expect_download() as waiting:
            self.view.click("#download")
        file = directory / waiting.value.suggested_filename
        waiting.value.save_as(file)
        return str(file)


def address_of(file: Path) -> str:
    return file.resolve().as_uri()


def choose_longer(rater: Rater, page: PageRecord, key: Key) -> dict[str, str]:
    """Rate everything: the longer output is better; what is hostile is bad. Returns the labels by input."""
    known, said = {item.input: item for item in key.items}, {}
    while rater.view.is_visible("#output-1"):
        given, left, right = rater.texts()
        item = known[given]
        assert {left, right} == {text or "(empty)" for text in (item.a, item.b)}
        if given in HOSTILE:
            rater.view.click("#answer-both-bad")
            said[given] = "both bad"
        else:
            rater.view.keyboard.press("1" if len(left) > len(right) else "ArrowRight")
            said[given] = "A better" if len(item.a) > len(item.b) else "B better"
    return said


def test_rating_undo_reload_and_download(browser: Any, tmp_path: Path) -> None:
    file, page, key = toy_page(tmp_path, hostile=True)
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    ann = Rater(context, address_of(file), "Ann")
    assert ann.view.is_visible("#trial"), "a trial says that it is one"

    before = ann.texts()
    assert ann.view.is_disabled("#undo")
    ann.view.keyboard.press("3")
    assert ann.rated() == 1
    after = ann.texts()
    assert after != before
    ann.view.click("#answer-left")
    assert ann.rated() == 2
    ann.view.keyboard.press("z")
    assert (ann.rated(), ann.texts()) == (1, after)
    ann.view.click("#undo")
    assert (ann.rated(), ann.texts()) == (0, before)
    ann.view.keyboard.press("b")
    ann.view.keyboard.press("2")
    ann.open_again(address_of(file), rated=2)
    for _ in range(2):
        ann.view.keyboard.press("Backspace")

    said = choose_longer(ann, page, key)
    assert ann.view.is_visible("#end")
    assert ann.rated() == len(page.items)
    bob = Rater(context, address_of(file), "bob")
    assert bob.rated() == 0, "another rater starts anew"
    assert choose_longer(bob, page, key) == said

    files = [ann.download(tmp_path), bob.download(tmp_path)]
    assert Path(files[0]).name == f"ratings-ann-{page.page}.jsonl"
    ratings = read_ratings(files, key, allow_artificial=True)
    assert len(ratings) == 2 * len(page.items) == sum(len(Path(name).read_text().splitlines()) for name in files)
    votes = {one.item.input: one.votes for one in Tally.of(key, ratings).segments}
    assert votes == {given: {"ann": label, "bob": label} for given, label in said.items()}
    sides = {name: {r.item: r.left for r in ratings if r.rater == name} for name in ("Ann", "bob")}
    assert sides["Ann"] != sides["bob"], "each rater has an order of their own"
    for own in sides.values():
        assert set(own.values()) == {"first", "second"}
    assert ann.view.evaluate("window.attacked") is None
    assert ann.errors == bob.errors == []
    context.close()


def test_a_page_becomes_a_trial_while_it_is_open(browser: Any, tmp_path: Path) -> None:
    file, _, key = toy_page(tmp_path)
    context = browser.new_context()
    rater = Rater(context, address_of(file), "Ann")
    rater.view.goto(f"{address_of(file)}#")  # the same document: only the fragment changes
    rater.view.wait_for_selector("#trial", state="detached")
    rater.view.evaluate("location.hash = '#trial'")
    rater.view.wait_for_selector("#trial")
    rater.view.fill("#rater", "Ann")
    rater.view.keyboard.press("Enter")
    rater.view.keyboard.press("3")
    (rating,) = read_ratings([rater.download(tmp_path)], key, allow_artificial=True)
    assert rating.artificial
    assert rater.errors == []
    context.close()


def test_a_phone(browser: Any, tmp_path: Path) -> None:
    file, page, _ = toy_page(tmp_path)
    context = browser.new_context(viewport={"width": 360, "height": 640}, is_mobile=True, has_touch=True)
    rater = Rater(context, address_of(file), "Ann")
    for _ in range(3):
        for answer in ("left", "both-good"):
            box = rater.view.locator(f"#answer-{answer}").bounding_box()
            assert box["height"] >= 44, "large enough for a finger"
            assert box["y"] + box["height"] <= 640, "in reach without scrolling"
            rater.view.tap(f"#answer-{answer}")
    assert rater.rated() == 6
    assert rater.view.evaluate("document.documentElement.scrollWidth") == 360
    assert len(page.items) > 6
    context.close()


def test_the_page_works_in_a_browser_that_keeps_nothing(browser: Any, tmp_path: Path) -> None:
    file, _, key = toy_page(tmp_path)
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied'); }});")
    rater = Rater(context, address_of(file), "Ann")
    for name in "1z32":
        rater.view.keyboard.press(name)
    assert rater.rated() == 2
    assert "not kept" in rater.view.text_content("#status")
    assert len(read_ratings([rater.download(tmp_path)], key, allow_artificial=True)) == 2
    context.close()


def test_a_served_page_stores_everything_even_if_the_server_is_away_for_a_while(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="no uvicorn: the server of pages is not tested")
    file, page, key = toy_page(tmp_path, hostile=True)
    context = browser.new_context()
    with server(file) as (_, port):
        rater = Rater(context, f"http://127.0.0.1:{port}/", "Ann")
        rater.view.evaluate(AWAY)
        rater.view.keyboard.press("1")
        rater.view.keyboard.press("z")
        status = "Trying again (the server does not answer)… 2 not stored yet. Your ratings are kept in this browser."
        rater.view.wait_for_function("text => document.getElementById('status').textContent === text", arg=status)
        rater.view.evaluate(BACK)
        said = choose_longer(rater, page, key)
        rater.view.wait_for_function(STORED, timeout=20000)
        assert rater.errors == []
    stored = tmp_path / "page.ratings.jsonl"
    assert len(stored.read_text().splitlines()) == len(page.items) + 2
    assert all(json.loads(line)["artificial"] for line in stored.read_text().splitlines())
    votes = {one.item.input: one.votes for one in Tally.of(key, read_ratings([str(stored)], key, True)).segments}
    assert votes == {given: {"ann": label} for given, label in said.items()}
    context.close()


def test_ratings_of_a_rater_who_has_left_are_sent_too(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="no uvicorn: the server of pages is not tested")
    file, page, key = toy_page(tmp_path)
    context = browser.new_context()
    with server(file) as (_, port):
        ann = Rater(context, f"http://127.0.0.1:{port}/", "Ann")
        ann.view.evaluate(AWAY)
        ann.view.keyboard.press("1")
        ann.view.keyboard.press("3")
        ann.view.click("#change")
        assert "Of Ann, 2 ratings are not stored yet." in ann.view.text_content("#status"), "before a name is given"
        ann.view.fill("#rater", "Bob")
        ann.view.keyboard.press("Enter")
        ann.view.keyboard.press("4")
        status = ann.view.text_content("#status")
        assert "1 not stored yet" in status
        assert "Of Ann, 2 ratings are not stored yet. This page keeps trying" in status
        ann.view.evaluate(BACK)
        ann.view.keyboard.press("2")
        ann.view.wait_for_function(STORED, timeout=20000)
        ann.view.wait_for_function("() => !document.getElementById('status').textContent.includes('Ann')")
        assert ann.errors == []
        # A page that was closed too early sends what it has when it is opened again, before anybody gives a name.
        ann.view.evaluate(AWAY)
        ann.view.keyboard.press("1")
        asked: list[str] = []
        ann.view.remove_listener("dialog", ann.dialog)
        ann.view.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
        ann.view.close(run_before_unload=True)
        again = context.new_page()
        again.goto(f"http://127.0.0.1:{port}/#trial")
        again.wait_for_function("() => document.getElementById('status').textContent === ''", timeout=20000)
        assert asked == ["beforeunload"], "the rater was told that something is not stored"
    said = read_ratings([str(tmp_path / "page.ratings.jsonl")], key, allow_artificial=True)
    assert sorted((one.rater, one.item) for one in said) == sorted(
        [("Ann", item.id) for item in page.items[:2]] + [("Bob", item.id) for item in page.items[:3]]
    )
    context.close()


def test_nothing_is_lost_between_raters_in_a_browser_that_keeps_nothing(browser: Any, tmp_path: Path) -> None:
    file, _, key = toy_page(tmp_path)
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied'); }});")
    rater = Rater(context, address_of(file), "Ann")
    rater.view.keyboard.press("1")
    rater.view.click("#change")
    rater.view.fill("#rater", "Bob")
    rater.view.keyboard.press("Enter")
    assert rater.rated() == 0
    rater.view.click("#change")
    rater.view.fill("#rater", "ann")
    rater.view.keyboard.press("Enter")
    assert rater.rated() == 1
    assert len(read_ratings([rater.download(tmp_path)], key, allow_artificial=True)) == 1
    context.close()
