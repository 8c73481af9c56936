"""The page and machines as files that any web server can offer, under any path: all addresses in them are relative."""

import os
from collections.abc import Sequence
from pathlib import Path

from tapehead import files
from tapehead.viewer import assets
from tapehead.viewer.catalogue import Machine, to_safetensors
from tapehead.viewer.index import index, to_json

ADVICE = "choose another folder with --out."


def write_site(machines: Sequence[Machine], out: Path) -> list[Path]:
    """Write the site; what is in the folder must be an earlier one. The files written."""
    _refuse_other(out)
    contents = dict(assets.page_files())
    contents[assets.INDEX] = assets.with_policy(contents[assets.INDEX].decode(), assets.BESIDE).encode()
    for machine in machines:
        place = f"machines/{machine.id}"
        contents[f"{place}/machine.json"] = to_json(machine.about())
        contents[f"{place}/weights.safetensors"] = to_safetensors(machine.weights())
        for key, _ in machine.snapshots():
            contents[f"{place}/snapshots/{key}.safetensors"] = to_safetensors(machine.snapshot(key))
    first = machines[0].id if machines else None
    contents["machines/index.json"] = to_json(index(machines, kind="static", first=first))
    with files.writing(out, ADVICE):
        for name, data in contents.items():
            files.make_folders((out / name).parent)
            files.replace(out / name, data)
    return [out / name for name in contents]


def _refuse_other(out: Path) -> None:
    """Refuse a folder that holds anything but a site of ours, or nothing."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file, but a site needs a folder: {ADVICE}")
    try:
        ours = assets.GENERATOR.partition("content")[0].encode() in files.read(out / assets.INDEX)
    except (OSError, files.NotPlain):
        ours = False
    if not ours and any(out.iterdir()):
        raise ValueError(f"{out} has files in it, but no site of tapehead: {ADVICE}")
