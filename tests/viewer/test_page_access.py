"""The page for everybody: narrow and dark screens, the keyboard alone, names and contrast for assistive programs."""

import itertools

import pytest
import tape_room
from axe_playwright_python.sync_playwright import Axe

PANELS = ("microscope", "lineage", "interventions", "program", "training", "race")
SERIOUS = ("serious", "critical")
CONTROLS = """() => [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
    .filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0)
    .map((one) => one.id || one.tagName)"""
FOCUSED = """() => {
    const { id, tagName } = document.activeElement;
    return [id || tagName, getComputedStyle(document.activeElement).outlineStyle];
}"""


def findings(page):
    """What axe calls serious: rule, and where. Colours on their way to others are not judged."""
    page.wait_for_function("document.getAnimations().every(one => one.playState !== 'running')")
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found if one["impact"] in SERIOUS]


@pytest.fixture(scope="module")
def narrow(chromium, served):
    with tape_room.opened(chromium, served.url, viewport={"width": 320, "height": 1000}) as room:
        yield room


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_sticks_out_at_320_pixels(narrow, panel):
    narrow.open(f"panel={panel}&t=15")
    assert narrow.overflow() == []
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize(
    "state", ["chapter=6&machine=priority-sort-ntm-lstm&edits=mute.w4.21-", "machine=ngrams-ntm-feedforward&t=60"]
)
def test_nor_do_the_tour_and_larger_machines(narrow, state):
    narrow.open(state)
    assert narrow.overflow() == []


def test_cells_are_painted_and_picked_at_320_pixels(narrow):
    narrow.open("t=3").click_cell(5, 2)
    assert narrow.text("past") == "the input is painted"
    narrow.click_cell(17, 2, band=2)
    assert narrow.page.is_visible("#panel-lineage")


TOUR = "chapter=7&machine=repeat-copy-pulses-ntm-lstm&panel=program&t=9&edits=nonsense"


@pytest.mark.parametrize(
    ("scheme", "states"),
    [
        ("light", ["panel=microscope&t=5", "panel=lineage&t=15", "panel=training", TOUR]),
        ("dark", ["panel=interventions&edits=mute.w0.9-", "panel=race", TOUR]),
    ],
)
def test_axe_finds_nothing_serious(chromium, served, scheme, states):
    """Whatever is common to all views is checked in each, the views themselves in one theme."""
    with tape_room.opened(chromium, served.url, color_scheme=scheme, bypass_csp=True) as room:
        for state in states:
            room.open(state).page.evaluate("document.querySelector('.help').open = true")
            assert findings(room.page) == [], state


def test_the_dark_theme_follows_the_system(chromium, served):
    grounds = []
    for scheme in ("light", "dark"):
        with tape_room.opened(chromium, served.url, color_scheme=scheme) as room:
            room.open("t=5")
            grounds.append(room.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            corner = "Array.from(document.getElementById('tape').getContext('2d').getImageData(60, 60, 1, 1).data)"
            grounds.append(room.page.evaluate(corner)[0])
            if scheme == "light":
                room.page.emulate_media(color_scheme="dark")
                assert room.settle().page.evaluate(corner)[0] < 100  # drawn again at once
    assert grounds[0] != grounds[2]
    assert grounds[1] > 200 > 100 > grounds[3]


def test_the_keyboard_is_enough(chromium, served):
    """Tab reaches every control that is seen, in the order of the page, with a visible focus."""
    with tape_room.opened(chromium, served.url, viewport={"width": 1280, "height": 1000}) as room:
        room.open("t=5&panel=interventions")
        wanted = room.page.evaluate(CONTROLS)
        reached, unseen = [], []
        for _ in range(len(wanted) + 2):
            room.page.keyboard.press("Tab")
            name, outline = room.page.evaluate(FOCUSED)
            if name == "BODY":
                break
            reached.append(name)
            unseen += [name] if outline == "none" else []
        assert reached == wanted
        assert unseen == []
        room.page.focus("#edit-from")
        room.page.keyboard.type("2")
        room.press("Enter")
        assert "muted from step" in room.text("edits")
        room.page.focus("#edits button")
        room.press("Enter")
        assert "No intervention yet" in room.text("edits")


def test_sliders_and_lists_by_keyboard(chromium, served):
    with tape_room.opened(chromium, served.url) as room:
        room.open("t=5")
        room.page.focus("#size-length")
        room.press("ArrowRight", "ArrowRight")
        assert room.steps == 29
        room.page.focus("#time")
        assert room.press("ArrowRight").step == 6
        room.page.focus("#machine")
        room.page.keyboard.type("copy-ntm-f")
        room.until(lambda: room.text("headline").startswith("copy-ntm-feedforward"))


def test_the_skip_link_leads_to_the_figures(chromium, served):
    with tape_room.opened(chromium, served.url) as room:
        room.open("t=5").press("Tab")
        assert room.page.evaluate("document.activeElement.id") == "skip"
        room.press("Enter")
        assert room.page.evaluate("document.activeElement.id") == "main"
        assert room.step == 5


def test_every_figure_has_a_name_and_every_control_a_label(chromium, served):
    with tape_room.opened(chromium, served.url) as room:
        names = set()
        for panel, machine in itertools.product(PANELS, ("copy-ntm-lstm", "ngrams-ntm-feedforward")):
            room.open(f"panel={panel}&machine={machine}&size.length=9")
            for canvas in room.page.locator("canvas:visible").all():
                label = canvas.get_attribute("aria-label") or ""
                assert len(label) > 20, canvas.get_attribute("id")
                names.add(canvas.get_attribute("id"))
        assert names == {"score", "tape", "microscope", "arcs", "lineage-map", "edit-chart", "curve", "race"}
