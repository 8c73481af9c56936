"""One file with the page, the machine and everything else in it: it works from `file://`, without a network.

Nothing is loaded from elsewhere, and the content security policy names the one script and the one style by their
hashes. A file has at most a million bytes. The machine's weights are stored exactly (float32) where they fit, otherwise
rounded (`packed.ENCODINGS`), which the page says. What is left is filled with snapshots of its training.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapehead import files
from tapehead.viewer import assets
from tapehead.viewer.bundle import bundle
from tapehead.viewer.catalogue import Machine, Weights
from tapehead.viewer.index import index, to_json
from tapehead.viewer.packed import ENCODINGS, pack

MOST_BYTES = 1_000_000
KEY_BYTES = 200
"""More than what a snapshot takes besides its weights."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written."""

    size: int
    encoding: str
    """Of the first machine's weights."""
    snapshots: int


def export(machines: Sequence[Machine], out: Path) -> Exported:
    """Write the page with these machines, of which it shows the first one first."""
    if out.is_dir():
        raise ValueError(f"{out} is a folder: give the file to write, such as {out / 'page.html'}.")
    files.expect_file(out)
    if machines[0].model["name"] == "lstm":
        raise ValueError(
            f"{machines[0].title} is an LSTM, which has no tape to show: export an NTM, and an LSTM to race against "
            "with --also."
        )
    page, weights = _page(), {machine.id: machine.weights() for machine in machines}
    for encoding in ENCODINGS:
        packed = {machine.id: _packed(machine, weights[machine.id], encoding) for machine in machines}
        size = len(_assemble(page, machines, packed))
        if size <= MOST_BYTES:
            break
    else:
        names = ", ".join(machine.title for machine in machines)
        raise ValueError(
            f"a page with {names} has {size:,} bytes in float16, but at most {MOST_BYTES:,} are possible: "
            "leave out a machine, or use tapehead site."
        )
    taken = _add_snapshots(machines[0], packed[machines[0].id], MOST_BYTES - size)
    data = _assemble(page, machines, packed)
    with files.writing(out.parent, "choose another file with --export."):
        files.make_folders(out.parent)
        files.replace(out, data)
    return Exported(len(data), encoding, taken)


def _packed(machine: Machine, weights: Weights, encoding: str) -> dict[str, Any]:
    entry = machine.entry() | {"snapshots": []}
    return {"entry": entry, "about": machine.about(), "weights": pack(weights, encoding), "snapshots": {}}


def _add_snapshots(machine: Machine, packed: dict[str, Any], room: int) -> int:
    """Put as many snapshots into the room as fit, spread evenly over the training; how many they are."""
    there = machine.snapshots()
    if not there or room <= 0:
        return 0
    whole = {key: pack(machine.snapshot(key), "float16") for key, _ in there}
    count = min(len(there), room // max(len(to_json(one)) + KEY_BYTES for one in whole.values()))
    chosen = [there[round(i * (len(there) - 1) / max(1, count - 1))] for i in range(count)]
    for key, episodes in chosen:
        packed["snapshots"][key] = whole[key]
        packed["entry"]["snapshots"].append({"key": key, "episodes": episodes})
    return count


def _page() -> str:
    """The page with its style and its script inside, where the data and the policy are still to come."""
    found = assets.page_files()
    sources = {name: data.decode() for name, data in found.items() if name.endswith(".js")}
    style, script = found["style.css"].decode(), bundle(sources, assets.ENTRY)
    page = assets.replaced(found[assets.INDEX].decode(), assets.STYLE, f"<style>{style}</style>")
    page = assets.replaced(page, assets.SCRIPT, "")
    page = assets.replaced(page, "</body>", f"DATA<script>{script}</script>\n</body>")
    rules = assets.policy(script=assets.digest(script), style=assets.digest(style), connect="'none'")
    return assets.with_policy(page, rules)


def _assemble(page: str, machines: Sequence[Machine], packed: dict[str, dict[str, Any]]) -> bytes:
    listed = index((), kind="embedded", first=machines[0].id)
    listed["machines"] = [packed[machine.id]["entry"] for machine in machines]
    inside = {name: {k: v for k, v in parts.items() if k != "entry"} for name, parts in packed.items()}
    data = to_json({"index": listed, "machines": inside}).decode().replace("<", "\\u003c")
    return page.replace(
        "DATA<script>", f'<script type="application/json" id="tapehead-data">{data}</script>\n<script>', 1
    ).encode()
