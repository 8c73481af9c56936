"""Every label of a figure can be read: no two overlap, and none leaves the picture, on wide and on narrow screens.

Measured in saved pictures, which are drawn by the code that draws the page."""

from pathlib import Path

import pytest
import tape_room

STATES = {
    "addressing": "t=6&panel=microscope",
    "lineage": "t=18&pick=18&panel=lineage",
    "lineage of a long sequence": "size.length=60&t=99&panel=lineage",
    "interventions": "t=18&panel=interventions&edits=scramble.16.0-127.1",
    "training": "t=14&panel=training",
    "race": "t=14&panel=race",
    "sorter": "machine=priority-sort-ntm-lstm&t=26&panel=interventions&edits=mute.w4.21-",
    "counter": "machine=repeat-copy-pulses-ntm-lstm&t=14&panel=microscope",
    "recall": "machine=associative-recall-ntm-lstm&t=24&panel=lineage",
    "n-grams": "machine=ngrams-ntm-feedforward&size.length=60&t=31&panel=interventions",
}
OVERLAPS = """(svg) => {
    document.body.innerHTML = svg;
    const room = document.querySelector('svg').getBoundingClientRect();
    const boxes = [...document.querySelectorAll('text')].filter((one) => one.textContent.trim()).map((one) => {
        const { left, right, top, bottom } = one.getBoundingClientRect();
        const inside = Number(one.getAttribute('font-size')) / 4;  // lines of text may come close
        const turned = one.hasAttribute('transform');
        return { text: one.textContent, left: left + (turned ? inside : 0), right: right - (turned ? inside : 0),
                 top: top + (turned ? 0 : inside), bottom: bottom - (turned ? 0 : inside) };
    });
    const found = boxes.filter((one) => one.left < room.left - 1 || one.right > room.right + 1)
        .map((one) => `${one.text} leaves the picture`);
    boxes.forEach((one, i) => boxes.slice(i + 1).forEach((other) => {
        const apart = one.right <= other.left || other.right <= one.left || one.bottom <= other.top
            || other.bottom <= one.top;
        if (!apart) found.push(`${one.text} | ${other.text}`);
    }));
    return found;
}"""


@pytest.fixture(scope="module", params=[320, 1280])
def room(chromium, served, request):
    with tape_room.opened(chromium, served.url, viewport={"width": request.param, "height": 900}) as room:
        yield room


@pytest.fixture(scope="module")
def paper(chromium):
    """An empty page, to measure saved pictures in."""
    page = chromium.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("name", STATES)
def test_labels_do_not_overlap(room, paper, name):
    room.open(STATES[name])
    if name == "race":
        room.until(lambda: "running" not in room.text("race-text"))
    with room.page.expect_download() as saved:
        room.click("save-svg")
    assert paper.evaluate(OVERLAPS, Path(saved.value.path()).read_text()) == []
