"""The report in a real browser: it works, keeps to itself, and shows the figures of its inputs.

Skipped where there is no Chromium or no Playwright; `CHROMIUM` may say where the browser is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_cli import SUB_AGENTS, data, printed
from test_report import HOSTILE, hostile_inputs

from agentsim.report.page import page
from agentsim.report.read import read

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Path:
    """Return a folder with a report of a run and a comparison, and one of hostile names."""
    made = tmp_path_factory.mktemp("reports")
    printed("run", SUB_AGENTS, "--on", "8xb200", "--output-dir", str(made / "run"))
    comparison = data("compare", SUB_AGENTS, "--on", "coding-tool", "--on", "8xb200", "--runs", "2")
    (made / "compare.json").write_text(json.dumps(comparison), "utf-8")
    inputs = read([str(made / "run"), str(made / "compare.json")])
    (made / "report.html").write_text(page(inputs), "utf-8")
    (made / "hostile.html").write_text(page(hostile_inputs()), "utf-8")
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


class Opened:
    """A page in a browser, with what it said on the console and what it asked for."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_context(**context).new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("#lanes rect")

    def facts(self) -> dict[str, str]:
        """Return what the panel says of the chosen turn."""
        names, values = (self.page.locator(f"#facts {tag}").all_inner_texts() for tag in ("dt", "dd"))
        return dict(zip(names, values, strict=True))

    def timeline(self) -> Any:
        return self.page.evaluate("JSON.parse(document.getElementById('data').textContent).timeline")


@pytest.fixture
def opened(browser, reports):
    return Opened(browser, reports / "report.html")


@pytest.mark.parametrize("name", ["report", "hostile"])
def test_a_page_makes_no_error_and_no_request(name, browser, reports):
    found = Opened(browser, reports / f"{name}.html")
    found.page.locator("#turns summary").click()
    found.page.locator("#next").click()
    assert found.said == []
    assert found.requests == [(reports / f"{name}.html").as_uri()]


def test_hostile_names_are_shown_as_they_are(browser, reports):
    found = Opened(browser, reports / "hostile.html")
    assert " ".join(HOSTILE.split()) in " ".join(found.page.locator("main").inner_text().split())
    assert found.page.locator("main img, main script").count() == 0


def test_the_figures_in_the_page_are_those_of_the_json(opened, reports):
    columns = json.loads((reports / "compare.json").read_text("utf-8"))["columns"]
    rows = opened.page.locator("table.numbers").first.locator("tbody tr")
    shown = {row.locator("th").inner_text(): row.locator("data") for row in rows.all()}
    means = [float(value.get_attribute("value")) for value in shown["task time, mean"].all()]
    assert means == [column["task_completion_s"]["avg"] for column in columns]
    tools = [float(value.get_attribute("value")) for value in shown["– tools"].all()]
    assert tools == [column["breakdown_s"]["tool"] for column in columns]


def test_bars_are_as_long_as_the_parts_that_they_show(opened, reports):
    columns = json.loads((reports / "compare.json").read_text("utf-8"))["columns"]
    longest = max(column["task_completion_s"]["avg"] for column in columns)
    for bar, column in zip(opened.page.locator(".bars").first.locator(".bar").all(), columns, strict=True):
        whole = bar.locator("svg").bounding_box()["width"]
        tool = bar.locator("rect.p-tool").bounding_box()["width"]
        assert tool / whole == pytest.approx(column["breakdown_s"]["tool"] / longest, abs=0.01)


def test_a_click_chooses_a_turn_and_shows_its_figures(opened):
    turns = opened.timeline()["turns"]
    lane = opened.page.locator("#lanes")
    box = opened.page.locator("#lanes g[data-event='0'] rect").first.bounding_box()
    top = lane.bounding_box()
    lane.click(position={"x": box["x"] - top["x"] + 2, "y": box["y"] - top["y"] + 2})
    first = min(range(len(turns["index"])), key=lambda place: turns["start_ns"][place])
    assert opened.page.locator("#facts").get_attribute("data-turn") == str(turns["index"][first])
    assert opened.facts()["prompt"] == f"{turns['prompt'][first]:,} tokens"
    assert opened.facts()["context after"] == f"{turns['context_after'][first]:,} tokens"
    assert opened.page.locator("rect.chosen").count() == 1


@pytest.mark.parametrize("chart", ["context", "latency"])
def test_a_click_in_the_other_charts_chooses_a_turn(chart, opened):
    opened.page.locator(f"#{chart}").click(position={"x": 200, "y": 60})
    assert "prompt" in opened.facts()


def test_the_keyboard_goes_from_turn_to_turn(opened):
    turns = opened.timeline()["turns"]
    opened.page.locator("#charts").focus()
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        opened.page.keyboard.press(key)
        seen.append(int(opened.page.locator("#facts").get_attribute("data-turn")))
    assert seen == [0, 1, 2, 1, max(turns["index"])]


def test_zoom_shows_less_and_whole_run_shows_all_again(opened):
    count = opened.page.locator("#lanes g[data-event]").count()
    for _ in range(4):
        opened.page.locator("#closer").click()
    assert 0 < opened.page.locator("#lanes g[data-event]").count() < count
    opened.page.keyboard.press("0")
    assert opened.page.locator("#lanes g[data-event]").count() == count


def test_a_drag_moves_and_chooses_nothing(opened):
    for _ in range(3):
        opened.page.locator("#closer").click()
    before = opened.page.locator("#lanes").inner_html()
    box = opened.page.locator("#lanes").bounding_box()
    opened.page.mouse.move(box["x"] + 400, box["y"] + 40)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 300, box["y"] + 40, steps=4)
    opened.page.mouse.up()
    assert opened.page.locator("#lanes").inner_html() != before
    assert opened.facts() == {}


def test_the_table_lists_every_call_and_its_rows_choose(opened):
    turns = opened.timeline()["turns"]
    opened.page.locator("#turns summary").click()
    buttons = opened.page.locator("#turns tbody button")
    assert [int(text) - 1 for text in buttons.all_inner_texts()] == sorted(turns["index"])
    buttons.nth(3).click()
    assert opened.page.locator("#facts").get_attribute("data-turn") == "3"
    assert opened.page.locator("#turns tr[aria-selected=true]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_no_width_scrolls_sideways_and_text_stands_out(scheme, width, browser, reports):
    found = Opened(browser, reports / "report.html", viewport={"width": width, "height": 800},
                   color_scheme=scheme)  # fmt: skip
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    colours = found.page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.documentElement).backgroundColor]"
    )
    ink, paper = (luminance(colour) for colour in colours)
    assert (ink < paper) == (scheme == "light")
    assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_in_print_the_charts_stay_and_the_controls_go(browser, reports):
    found = Opened(browser, reports / "report.html", color_scheme="dark")
    found.page.emulate_media(media="print")
    assert not found.page.locator(".controls").is_visible()
    assert not found.page.locator("#facts").is_visible()
    assert found.page.locator("#lanes").is_visible()
    paper = found.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert luminance(paper) == 1.0
    assert found.page.pdf(format="A4").startswith(b"%PDF")
