"""The report's page as a person uses it, in a real browser: sorted, opened, turned dark, by mouse and by keyboard."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlay.report.command import report

pytestmark = pytest.mark.slow
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
SIZES = (1440, 390)

Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a small sweep: contexts under two selectors and budgets, and a document as answer to link to."""
    folder = tmp_path_factory.mktemp("page")
    words = ["generator=extract", "dataset.limit=8", "selector=lead,mmr,rcd", "budget.tokens=64,256"]
    done = subprocess.run(
        [sys.executable, "-m", "outlay", "-m", *words],
        cwd=folder,
        env={**os.environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report(
        [
            "--out",
            str(folder / "out"),
            "--output-dir",
            str(folder / "multirun_outputs"),
            "--title",
            "A <b>title</b>",
        ]
    )
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def answered_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of one single run whose model answers, so that its replies have sources."""
    folder = tmp_path_factory.mktemp("answered")
    words = ["dataset.limit=3", "dataset.questions=1", "selector=rcd", "budget.tokens=128"]
    done = subprocess.run(
        [sys.executable, "-m", "outlay", *words],
        cwd=folder,
        env={**os.environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    where = ["--out", str(folder / "out"), "--output-dir", str(folder / "multirun_outputs")]
    report(["--experiment", "outlay", *where])
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (the dev extra has it)"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Opened]:
    """Opens the page; at the end nothing may have been said on the console, or asked of a network."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []
    wanted: set[str] = set()

    def open_page(width: int = 1440, scheme: str = "light", file: Path = page_file) -> Any:
        own = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(own)
        page = own.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        wanted.add(file.as_uri())
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url for url in asked if not url.startswith("data:")} == wanted


def column(page: Any, table: str, at: int) -> list[str]:
    found: list[str] = page.locator(f"{table} tbody tr td:nth-child({at})").all_inner_texts()
    return found


def numbers(texts: list[str]) -> list[float]:
    return [float(re.sub(r"[^\d.\-]", "", text.split("[")[0].replace("−", "-"))) for text in texts]


OVERVIEW = 'section[aria-labelledby="table-overview"] table'


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_is_readable(opened: Opened, width: int, scheme: str) -> None:
    page = opened(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").inner_text() == "A <b>title</b>"
    dark = scheme == "dark"
    assert page.evaluate(LUMINANCE) < 0.1 if dark else page.evaluate(LUMINANCE) > 0.8
    assert page.evaluate(CONTRAST) == []


LUMINANCE = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}"""

CONTRAST = """() => {
  const light = (color) => {
    const [r, g, b] = color.map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("p, td, th button, a, li, h1, h2, h3, h4, mark, summary, button, small, label, span")) {
    const text = [...element.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!text || !element.offsetParent) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color).slice(0, 3)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}: ${element.textContent.slice(0, 30)}`);
  }
  return poor;
}"""
"""Texts below the 4.5 : 1 of WCAG's AA."""


@pytest.mark.parametrize("width", SIZES)
def test_a_click_on_a_heading_sorts_and_another_turns_the_order(opened: Opened, width: int) -> None:
    page = opened(width)
    heading = page.locator(f"{OVERVIEW} th", has_text="tokens a query")
    at = 1 + page.locator(f"{OVERVIEW} th").all_inner_texts().index(heading.inner_text())
    before = numbers(column(page, OVERVIEW, at))
    assert before != sorted(before)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert numbers(column(page, OVERVIEW, at)) == sorted(before)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert numbers(column(page, OVERVIEW, at)) == sorted(before, reverse=True)
    assert page.locator(f"{OVERVIEW} th[aria-sort]").count() == 1


@pytest.mark.parametrize("width", SIZES)
def test_an_example_is_found_opened_and_its_runs_compared(opened: Opened, width: int) -> None:
    page = opened(width)
    buttons = page.locator("#list button")
    assert buttons.count() == 8
    name = buttons.nth(3).evaluate("one => one.firstChild.data")
    page.fill("#search", name)
    assert page.locator("#found").inner_text() == "1 of 8 examples"
    page.locator("#list button").click()
    shown = page.locator("#shown")
    assert shown.locator("h3").inner_text() == name
    assert shown.locator(".pick").count() == 6
    kept = shown.locator(".document mark").all_inner_texts()
    assert kept
    shown.locator(".pick").nth(5).click()
    assert shown.locator('.pick[aria-current="true"]').inner_text().startswith("rcd")
    assert shown.locator(".document mark").all_inner_texts() != kept
    calls = shown.locator('[aria-label="Calls, with tokens and cost"] tbody tr')
    assert calls.count() == 1 and "attempt 1" in calls.first.inner_text()
    page.fill("#search", "no such text anywhere")
    assert page.locator("#found").inner_text() == "0 of 8 examples"


def test_the_kept_text_is_what_was_sent(opened: Opened) -> None:
    """The context is the answer here, so the marks must say what the reply says."""
    page = opened()
    shown = page.locator("#shown")
    marked = " ".join(shown.locator(".document mark").all_text_contents()).split()
    reply = shown.locator("p.reply").nth(1).text_content().split()
    assert marked[:8] == reply[:8] and abs(len(marked) - len(reply)) <= 2


def test_a_sentence_of_the_reply_lights_up_its_source(opened: Opened, answered_file: Path) -> None:
    page = opened(file=answered_file)
    for button in page.locator("#list button").all():
        button.click()
        if page.locator("#shown .said").count():
            break
    said = page.locator("#shown .said").first
    assert page.locator("#shown mark.hot").count() == 0
    said.click()
    assert said.get_attribute("aria-pressed") == "true"
    hot = page.locator("#shown mark.hot")
    assert hot.count() >= 1 and hot.first.is_visible()
    box, mark = page.locator("#shown .document").bounding_box(), hot.first.bounding_box()
    assert box["y"] <= mark["y"] <= box["y"] + box["height"]
    assert page.evaluate(CONTRAST) == []
    said.click()
    assert page.locator("#shown mark.hot").count() == 0


def test_the_theme_is_turned_and_remembered(opened: Opened) -> None:
    page = opened(1440, "light")
    button = page.locator("#theme")
    assert page.evaluate(LUMINANCE) > 0.8 and button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.evaluate(LUMINANCE) < 0.1 and button.get_attribute("aria-pressed") == "true"
    assert page.evaluate(CONTRAST) == []
    page.reload()
    assert page.evaluate(LUMINANCE) < 0.1
    button.click()
    assert page.evaluate(LUMINANCE) > 0.8


def test_a_dot_says_its_value_and_a_name_hides_its_line(opened: Opened) -> None:
    page = opened()
    figure = page.locator("#figure-accuracy_over_cost")
    point = figure.locator(".pt").first
    # Dots may lie on each other: the nearest one speaks.
    point.locator(".hit").hover(force=True)
    tip = page.locator("#tip")
    assert tip.inner_text() == point.get_attribute("aria-label")
    assert tip.is_visible() and "fact recall" in tip.inner_text() and "[" in tip.inner_text()
    name = figure.locator(".legend button").first
    line = figure.locator(f'g.series[data-line="{name.get_attribute("data-line")}"]')
    assert line.first.is_visible()
    name.click()
    assert not line.first.is_visible() and name.get_attribute("aria-pressed") == "false"


def test_the_data_of_a_figure_is_a_click_away(opened: Opened, page_file: Path) -> None:
    page = opened()
    with page.expect_download() as waited:
        page.locator("#figure-accuracy_over_cost a.file").click()
    assert waited.value.suggested_filename == "accuracy_over_cost.csv"
    assert (
        Path(waited.value.path()).read_bytes() == (page_file.parent / "accuracy_over_cost.csv").read_bytes()
    )


def test_everything_is_reached_by_keyboard(opened: Opened) -> None:
    page = opened()

    def focused(script: str) -> Any:
        return page.evaluate(f"() => {{ const one = document.activeElement; return {script}; }}")

    page.keyboard.press("Tab")
    assert focused("one.className") == "skip" and focused("one.getBoundingClientRect().left") >= 0
    page.keyboard.press("Tab")
    assert focused("one.id") == "theme"
    assert focused("getComputedStyle(one).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate(LUMINANCE) < 0.1

    seen: list[str] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        what = focused(
            "one.closest('th') ? 'heading' : one.closest('.pt') ? 'dot' : one.closest('#list') ? 'example' : one.classList.contains('pick') ? 'run' : one.tagName"
        )
        if what not in seen:
            seen.append(what)
            if what == "heading":
                page.keyboard.press("Enter")
                assert focused("one.closest('th').getAttribute('aria-sort')") == "ascending"
            elif what == "dot":
                first = page.locator("#tip").inner_text()
                page.keyboard.press("ArrowRight")
                assert focused("one.classList.contains('pt')") and page.locator("#tip").inner_text() != first
                page.keyboard.press("Escape")
                assert not page.locator("#tip").is_visible()
            elif what == "example":
                page.keyboard.press("Tab")
                page.keyboard.press("Space")
                assert focused("one.id") == "shown"
                assert page.locator("#shown h3").inner_text() == page.locator("#list button").nth(1).evaluate(
                    "one => one.firstChild.data"
                )
            elif what == "run":
                break
    assert {"heading", "dot", "example", "run"} <= set(seen)
