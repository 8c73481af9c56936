"""From an edit to the repaint in the viewer: copy at length 60 (121 steps on 128 slots), in the system's Chromium.

    python benchmarks/viewer_repaint.py [--edits 40] [--out benchmarks/results/DATE-viewer-repaint.json]
        [--before FOLDER]   another version of tapehead/viewer/page, measured by turns with this one, ten edits each

An edit is an input bit painted by the pointer, at any of the 60 input steps with equal chance (the machine runs again
from there) or at the first one, from which it runs through all 121 steps; a step of the cursor; or an intervention from
the first step on. Each is measured for every view below the score, in a window of 1280 x 900 pixels, which shows the
score and the tape; all but interventions also with the lineage in a window of 1280 x 1900, which shows the whole page.
An edit comes at a random moment between two frames. Its time is from the event to the end of the frame that shows it,
so the wait for that frame, up to 17 ms, is in it. `cpu` is the processor time of the page's main thread meanwhile,
which depends less on what else runs on the machine. `first_paint_ms` is from the navigation to the first contentful
paint, `ready_ms` to the first drawn score. `load` is the load average at the end.
"""

import argparse
import datetime
import json
import os
import random
import re
import shutil
import statistics
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from tapehead import zoo
from tapehead.environment import environment
from tapehead.viewer import assets
from tapehead.viewer.catalogue import ZooMachine
from tapehead.viewer.server import Content, Server

MACHINE, RIVAL, LENGTH = "copy-ntm-lstm", "copy-half-width-lstm", 60
TURN = 10
"""Edits of one version of the page before the other's turn."""
PANELS = ("microscope", "lineage", "interventions", "program", "training", "race")

LEFT, RIGHT, INPUT_TOP, CHANNEL, BITS = 50, 8, 30, 10, 8
"""Of the score: the margins of its plots, where its first band begins, the height of a channel, bits of a vector."""

PAINT = """{
    const score = document.querySelector('#score'), place = score.getBoundingClientRect();
    const step = (place.width - LEFT - RIGHT) / (2 * LENGTH + 1);
    const [x, y] = [LEFT + (T + 0.5) * step, INPUT_TOP + (BIT + 0.5) * CHANNEL];
    const at = { clientX: place.left + x, clientY: place.top + y };
    for (const type of ['pointerdown', 'pointerup'])
        score.dispatchEvent(new PointerEvent(type, { ...at, pointerId: 1, bubbles: true }));
}"""
EDITS = {
    "paint": PAINT,
    "paint the first step": PAINT,
    "step": "document.querySelector('#forward').click()",
    "intervene": """{
        const kind = document.querySelector('#edit-kind'), value = document.querySelector('#edit-value');
        const old = document.querySelector('#edits button');
        if (old) old.click();
        else { kind.value = 'gate'; value.value = '0.9'; document.querySelector('#edit-from').value = '0';
               document.querySelector('#edit').requestSubmit(); }
    }""",
}
TIMED = """() => new Promise(async (resolve) => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => { const channel = new MessageChannel();
        channel.port1.onmessage = done; channel.port2.postMessage(0); }));
    await frame(); await frame();
    await new Promise((done) => setTimeout(done, PHASE));
    const room = document.querySelector('#room'), drawn = room.dataset.drawn, start = performance.now();
    EDIT;
    while (room.dataset.drawn === drawn) await frame();
    resolve(performance.now() - start);
})"""


def script(edit: str, draw: random.Random) -> str:
    """One timed edit, at a random moment and place."""
    values = {
        "LEFT": LEFT,
        "RIGHT": RIGHT,
        "INPUT_TOP": INPUT_TOP,
        "CHANNEL": CHANNEL,
        "LENGTH": LENGTH,
        "PHASE": round(draw.uniform(0, 17), 1),
        "T": 0 if edit.endswith("first step") else draw.randrange(LENGTH),
        "BIT": draw.randrange(BITS),
    }
    code = TIMED.replace("EDIT", EDITS[edit])
    return re.sub(r"\b(" + "|".join(values) + r")\b", lambda found: str(values[found[1]]), code)


def busy(session: CDPSession) -> float:
    """Milliseconds of processor time that the page's main thread has taken so far."""
    values = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * values["TaskDuration"]


def measure(page: Page, session: CDPSession, edit: str, edits: int, draw: random.Random) -> list[tuple[float, float]]:
    """Milliseconds of each edit: on the clock, and of processor time."""
    found = []
    for _ in range(edits):
        code = script(edit, draw)
        before = busy(session)
        wall = page.evaluate(code)
        found.append((wall, busy(session) - before))
    return found


def summary(times: list[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = (sorted(values) for values in zip(*times, strict=True))
    last = int(0.95 * (len(times) - 1))
    return {
        "median_ms": round(statistics.median(wall), 1),
        "p95_ms": round(wall[last], 1),
        "cpu_median_ms": round(statistics.median(cpu), 1),
        "cpu_p95_ms": round(cpu[last], 1),
    }


def open_page(page: Page, url: str) -> dict[str, float]:
    page.goto(url)
    page.wait_for_selector("#room[data-drawn]")
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return {"first_paint_ms": round(page.evaluate(paint)), "ready_ms": round(page.evaluate("performance.now()"))}


def prepare(page: Page, panel: str, height: int) -> None:
    """The panel open and the cursor at step 30."""
    page.bring_to_front()
    page.set_viewport_size({"width": 1280, "height": height})
    page.click(f"#tab-{panel}")
    page.locator("#time").evaluate("(time) => { time.value = 30; time.dispatchEvent(new Event('input')); }")
    page.wait_for_timeout(100)


def run(urls: dict[str, str], edits: int) -> dict[str, dict[str, Any]]:
    """Results of each version of the page, which take turns."""
    found: dict[str, dict[str, Any]] = {version: {} for version in urls}
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--headless", "--no-sandbox"])
        opened = {}
        for version, url in urls.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            found[version]["opening"] = open_page(page, f"{url}#size.length={LENGTH}&t=30")
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            opened[version] = page, session
        for panel, height in [*((panel, 900) for panel in PANELS), ("lineage", 1900)]:
            for edit in EDITS:
                if edit == "intervene" and panel != "interventions":
                    continue
                times: dict[str, list[tuple[float, float]]] = {version: [] for version in urls}
                draws = {version: random.Random(0) for version in urls}
                for done in range(0, edits, TURN):
                    for version, (page, session) in opened.items():
                        prepare(page, panel, height)
                        measure(page, session, edit, 4, draws[version])  # compiled by then
                        times[version] += measure(page, session, edit, min(TURN, edits - done), draws[version])
                where = f"{panel}, {edit}{', whole page' if height > 900 else ''}"
                for version in urls:
                    found[version][where] = summary(times[version])
        browser.close()
    return found


def serve(machines: list[ZooMachine], page: Path | None = None) -> Server:
    """A running server of the zoo machine; page: the folder of the page's files, if not the package's."""
    own = assets.PAGE
    assets.PAGE = page or own
    try:
        server = Server(Content(lambda: (list(machines), machines[0].id)))
    finally:
        assets.PAGE = own
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    machines = [ZooMachine(name) for name in (MACHINE, RIVAL) if name in zoo.names()]
    servers = {"before": serve(machines, options.before)} if options.before else {}
    servers["results"] = serve(machines)
    found = run({version: server.url for version, server in servers.items()}, options.edits)
    for server in servers.values():
        server.shutdown()
    for version, results in found.items():
        print(version)
        for name, values in results.items():
            print(f"{name:42}", "  ".join(f"{key} {value:7.1f}" for key, value in values.items()))
    if options.out:
        about = {
            "machine": MACHINE,
            "length": LENGTH,
            "edits": options.edits,
            "date": str(datetime.date.today()),
            "processor": environment("cpu", "")["device"],
            "load": round(os.getloadavg()[0], 1),
        }
        options.out.write_text(json.dumps({**about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
