"""The page of the viewer as tests use it: opened at a state, asked what it shows, clicked where its figures are."""

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator

from browser import TIMEOUT, checked_page

LEFT, RIGHT = 50, 8  # beside the score's plots
INPUT_TOP, CHANNEL, GAP = 30, 10, 21  # the first band's top, the height of a channel, between two bands
READY = "#room[data-drawn]"
_unique = itertools.count()


def plain(text: str) -> str:
    """Without the typographic signs of the page: minus, dash, times."""
    return text.translate({0x2212: "-", 0x2013: "-", 0xD7: "x"})


class TapeRoom:
    """A page at a state. What it shows is asked for after the frame in which it was drawn."""

    def __init__(self, page, url: str) -> None:
        self.page, self.url = page, url

    def open(self, state: str = "") -> "TapeRoom":
        """Show a state, as a link does; `x` is no part of it, and makes every link another one."""
        before = self.drawn()
        self.page.goto(f"{self.url}#x={next(_unique)}&{state}")
        self.until(lambda: self.drawn() not in ("", before))
        self.page.evaluate("document.activeElement.blur()")
        return self.settle()

    def settle(self) -> "TapeRoom":
        """Wait until nothing is left to draw or to write into the address."""
        frame = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))"
        self.page.evaluate(f"{frame}.then(() => {frame})")
        return self

    def drawn(self) -> str:
        """How often the page was drawn."""
        return self.page.evaluate("document.getElementById('room')?.dataset.drawn ?? ''")

    def until(self, true: Callable[[], bool]) -> "TapeRoom":
        """Wait for something; the page's policy forbids Playwright's own way of waiting for an expression."""
        end = time.monotonic() + TIMEOUT / 1000
        while not true():
            assert time.monotonic() < end, self.page.inner_text("body")[:500]
            self.page.wait_for_timeout(30)
        return self.settle()

    def text(self, name: str) -> str:
        return plain(self.page.inner_text(f"#{name}"))

    def label(self, name: str) -> str:
        return self.page.get_attribute(f"#{name}", "aria-label") or ""

    def value(self, name: str) -> str:
        return self.page.input_value(f"#{name}")

    def press(self, *keys: str) -> "TapeRoom":
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()
        return self

    def click(self, name: str) -> "TapeRoom":
        self.page.click(f"#{name}")
        return self.settle()

    def choose(self, name: str, value: str) -> "TapeRoom":
        self.page.select_option(f"#{name}", value)
        return self.settle()

    def set(self, name: str, value: float | str) -> "TapeRoom":
        """A slider or a field, as a person leaves it."""
        give = """(field, value) => {
            field.value = value;
            for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, {bubbles: true}));
        }"""
        self.page.locator(f"#{name}").evaluate(give, str(value))
        return self.settle()

    def tab(self, name: str) -> "TapeRoom":
        return self.click(f"tab-{name}")

    @property
    def step(self) -> int:
        return int(self.value("time"))

    @property
    def steps(self) -> int:
        return int(self.page.get_attribute("#time", "max") or 0) + 1

    @property
    def wrong(self) -> int:
        """Wrong answers, as the line above the score says."""
        verdict = self.text("verdict")
        if "answers are right" in verdict:
            return 0
        found = re.search(r"([\d,]+) wrong answers? of", verdict)
        assert found, verdict
        return int(found[1].replace(",", ""))

    @property
    def bits(self) -> float:
        found = re.search(r"([\d.]+) bits", self.text("verdict"))
        assert found, self.text("verdict")
        return float(found[1])

    def hash(self) -> str:
        """The address, when what is shown has been written into it."""
        self.page.wait_for_timeout(350)
        return self.page.evaluate("decodeURIComponent(location.hash)")

    def box(self, name: str) -> dict[str, float]:
        self.page.locator(f"#{name}").evaluate(
            "(one) => one.scrollIntoView({block: 'center'})"
        )  # not under the bar on top
        return self.page.locator(f"#{name}").bounding_box()

    def point(
        self, step: int, channel: int, band: int = 0, channels: tuple[int, ...] = (9, 8, 8)
    ) -> tuple[float, float]:
        """Where a cell of input (band 0), target or output is on the screen."""
        top = INPUT_TOP + sum(CHANNEL * count + GAP for count in channels[:band]) + (channel + 0.5) * CHANNEL
        score = self.page.locator("#score")
        score.evaluate(  # the score may be taller than the window, and a bar covers the window's top
            "(one, top) => scrollBy(0, one.getBoundingClientRect().top + top - innerHeight / 2)", top
        )
        box = score.bounding_box()
        width = (box["width"] - LEFT - RIGHT) / self.steps
        return box["x"] + LEFT + (step + 0.5) * width, box["y"] + top

    def click_cell(self, step: int, channel: int, band: int = 0) -> "TapeRoom":
        self.page.mouse.click(*self.point(step, channel, band))
        return self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> "TapeRoom":
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=8)
        self.page.mouse.up()
        return self.settle()

    def apply(self, kind: str, **fields: float | str) -> "TapeRoom":
        """Fill in the form of the interventions and apply it."""
        self.choose("edit-kind", kind)
        for name, value in fields.items():
            if name == "head":
                self.choose("edit-head", str(value))
            else:
                self.page.fill(f"#edit-{name.rstrip('_')}", str(value))
        self.page.click("#edit button[type=submit]")
        return self.settle()

    def pixels(self, name: str) -> str:
        """What a canvas shows, as text to compare."""
        return self.page.evaluate("(name) => document.getElementById(name).toDataURL()", name)

    def inked(self, heights: list[float]) -> list[list[bool]]:
        """For rows of the score, by their height in it: at which steps there is ink (of the light theme)."""
        read = """([heights, steps, left, right]) => {
            const canvas = document.getElementById('score');
            const [scale, width] = [canvas.width / canvas.clientWidth, (canvas.clientWidth - left - right) / steps];
            const red = (x, y) => canvas.getContext('2d').getImageData(x * scale, y * scale, 1, 1).data[0];
            return heights.map((y) => Array.from({ length: steps }, (_, t) => red(left + (t + 0.5) * width, y) < 128));
        }"""
        return self.page.evaluate(read, [heights, self.steps, LEFT, RIGHT])

    def overflow(self) -> list[str]:
        """Elements that stick out of the page to the right."""
        found = """() => {
            const width = document.documentElement.clientWidth + 1;
            const out = (one) => one.checkVisibility() && one.getBoundingClientRect().right > width;
            return [...document.querySelectorAll('body *')].filter((one) => out(one) && !one.closest('.code, .skip'))
                .map((one) => one.id || one.tagName);
        }"""
        return list(self.page.evaluate(found))


@contextlib.contextmanager
def opened(browser, url: str, **options) -> Iterator[TapeRoom]:
    """A room in a browser context of its own, which must end without errors on its console."""
    with checked_page(browser, **options) as page:
        yield TapeRoom(page, url)
