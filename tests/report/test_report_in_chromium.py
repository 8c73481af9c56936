"""The report in a real browser: no errors, no broken figure, tables that sort, a phone, the dark."""

import math
from pathlib import Path

import pytest
from browser import checked_page
from made_up_records import copies, made_up, results_of
from quick_figures import quick

from tapehead.report.page import render, write

RESULTS = Path(__file__).parents[2] / "results"
MOST_BYTES = 3_000_000
PHONE = {"width": 360, "height": 740}
LABELLED = """[...document.querySelectorAll("table")].every((table) => [...table.tBodies[0].rows].every((row) =>
    [...row.cells].every((cell, i) => cell.dataset.label === table.tHead.rows[0].cells[i].textContent)))"""
COLUMN = "t => [...t.tBodies[0].rows].map(row => row.cells[{}].textContent)"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The address of a report with failures of all sizes in it."""
    folder = tmp_path_factory.mktemp("report")
    failing = made_up("copy-ntm-feedforward", Length_120=[2.0, math.inf, 10.0, 0.5, 100.0])
    with quick():
        (folder / "index.html").write_text(render(results_of(folder, *copies(), failing)))
    return (folder / "index.html").as_uri()


def test_the_records_that_come_with_the_package_have_a_whole_report(chromium, tmp_path):
    file = write(RESULTS, tmp_path)
    assert file.stat().st_size < MOST_BYTES
    with checked_page(chromium, viewport=PHONE) as page:
        page.goto(file.as_uri())
        figures = page.locator("#figures figure")
        shown, explained = figures.locator("img"), figures.locator("figcaption.missing")
        assert shown.count() + explained.count() == figures.count() == 16
        assert shown.count() >= 12
        assert shown.evaluate_all("all => all.every(one => one.complete && one.naturalWidth > 100)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def table(page, name):
    return page.locator("table", has=page.locator("caption", has_text=name)).last


def test_figures_are_shown_and_tables_sort_by_a_click_or_a_key(page, report):
    page.goto(report)
    pictures = page.locator("figure img")
    assert pictures.count() == 15
    assert pictures.evaluate_all("all => all.every(one => one.complete && one.naturalWidth > 100)")
    failures = table(page, "Failures")
    header = failures.locator("th", has_text="what happened")
    said = [f"{bits} bits at Length 120" for bits in ("2", "10", "100")] + ["no finite cost at Length 120"]
    header.locator("button").click()
    assert failures.evaluate(COLUMN.format(4)) == said  # by number: 10 is not between 1 and 2
    assert header.get_attribute("aria-sort") == "ascending"
    header.locator("button").press("Enter")
    assert failures.evaluate(COLUMN.format(4)) == said[::-1]
    assert header.get_attribute("aria-sort") == "descending"
    failures.locator("th button").first.press("Space")
    assert header.get_attribute("aria-sort") is None
    page.locator("#summary a").first.click()
    assert page.evaluate("document.querySelector(':target').tagName") == "TR"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_without_scrolling_sideways(chromium, report, scheme):
    with checked_page(chromium, viewport=PHONE, color_scheme=scheme) as page:
        page.goto(report)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(LABELLED)
        assert page.evaluate(
            "[...document.querySelectorAll('td')].every(td =>"
            " getComputedStyle(td, '::before').content === JSON.stringify(td.dataset.label))"
        )
        assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 13
        ink, paper = (page.evaluate(f"getComputedStyle(document.body).{part}") for part in ("color", "backgroundColor"))
        assert (brightness(ink) < brightness(paper)) == (scheme == "light")
        assert contrast(ink, paper) > 7
        for kind in (".bad", ".open"):
            word = page.locator(kind).first.evaluate("one => getComputedStyle(one).color")
            assert contrast(word, paper) > 4.5


def brightness(colour):
    """The relative luminance of "rgb(29, 29, 31)", as WCAG defines it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)
