"""From an edit to the repaint in the viewer: copy at length 60 (121 steps on 128 slots), in the system's Chromium.

    python benchmarks/viewer_repaint.py [--edits 40] [--out benchmarks/results/DATE-viewer-repaint.json]

An edit is a painted input bit (the machine runs again from there), a step of the cursor, or an intervention; each once
for every view below the score. A time is from the event to the end of the frame that shows it, so the wait for that
frame, up to 17 ms, is in it. `cpu` is the processor time of the page's main thread meanwhile, which depends less on
what else runs on the machine. `first_paint_ms` is from the navigation to the first contentful paint, `ready_ms` to the
first drawn score.
"""

import argparse
import datetime
import json
import platform
import shutil
import statistics
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from tapehead.viewer.catalogue import ZooMachine
from tapehead.viewer.server import Content, Server

MACHINE, LENGTH = "copy-ntm-lstm", 60
PANELS = ("microscope", "lineage", "interventions", "program", "training", "race")

EDITS = {
    "paint": "document.querySelector('#paint-bits button').click()",
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
    const room = document.querySelector('#room'), drawn = room.dataset.drawn, start = performance.now();
    EDIT;
    while (room.dataset.drawn === drawn) await frame();
    resolve(performance.now() - start);
})"""


def busy(session: CDPSession) -> float:
    """Milliseconds of processor time that the page's main thread has taken so far."""
    values = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * values["TaskDuration"]


def measure(page: Page, session: CDPSession, edit: str, edits: int) -> dict[str, float]:
    wall, cpu = [], []
    for _ in range(edits):
        before = busy(session)
        wall.append(page.evaluate(TIMED.replace("EDIT", EDITS[edit])))
        cpu.append(busy(session) - before)
    wall, cpu = sorted(wall), sorted(cpu)
    last = int(0.95 * (edits - 1))
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


def run(url: str, edits: int) -> dict[str, Any]:
    address = f"{url}#size.length={LENGTH}&t=30"
    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--headless", "--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        found["opening"] = open_page(page, address)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for panel in PANELS:
            page.click(f"#tab-{panel}")
            for edit in EDITS if panel == "interventions" else ("paint", "step"):
                page.locator("#time").evaluate("(time) => { time.value = 30; time.dispatchEvent(new Event('input')); }")
                page.wait_for_timeout(100)
                measure(page, session, edit, 4)  # compiled by then
                found[f"{panel}, {edit}"] = measure(page, session, edit, edits)
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    machines = [ZooMachine(MACHINE)]
    server = Server(Content(lambda: (list(machines), machines[0].id)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = run(server.url, options.edits)
    server.shutdown()
    for name, values in found.items():
        print(f"{name:28}", "  ".join(f"{key} {value:7.1f}" for key, value in values.items()))
    if options.out:
        about = {
            "machine": MACHINE,
            "length": LENGTH,
            "date": str(datetime.date.today()),
            "processor": platform.processor(),
        }
        options.out.write_text(json.dumps({**about, "results": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
