"""Notebooks on the site: their sources are Markdown; their outputs were recorded by docs/notebooks/run.py.

An output belongs to what its cell computes (`cells.fingerprint`): a cell that was changed afterwards shows none.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import jupytext
from cells import fingerprint
from nbformat.v4 import new_output
from sphinx.application import Sphinx

FOLDER = Path(__file__).parents[1] / "notebooks"
CELL = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def record(name: str) -> dict[str, Any]:
    path = FOLDER / "outputs" / f"{name}.json"
    empty: dict[str, Any] = {"cells": {}}
    return json.loads(path.read_text()) if path.exists() else empty


def with_outputs(text: str, page: Path) -> str:
    """The page with the output of each cell below it, and without the header for Jupyter."""
    cells = record(page.stem)["cells"]

    def shown(match: re.Match[str]) -> str:
        found = cells.get(fingerprint(match[1]), {})
        parts = [f"```text\n{found['text']}```"] if found.get("text") else []
        parts += [f"![Figure of the cell above](outputs/{name})" for name in found.get("figures", ())]
        body = "\n\n".join(parts)
        return f"{match[0]}\n\n:::{{container}} output\n{body}\n:::" if parts else match[0]

    return CELL.sub(shown, re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL))


def note(_: str, page: Path) -> str:
    """How the outputs of this page were made, and the file for Jupyter."""
    made = record(page.stem)
    link = f'<a href="../notebook-files/{page.stem}.ipynb" download>Download for Jupyter</a>\n'
    if "device" not in made:
        return link
    used = f"; {made['processor_seconds']:.0f} seconds of processor time" if "processor_seconds" in made else ""
    where = f"{made['device']}, threads: {made['threads']}, torch {made['torch']}"
    return f"*Outputs: {where}, {made['date']}{used}.* {link}"


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """The notebooks as Jupyter's files, with their outputs, beside the pages."""
    target = Path(app.outdir) / "notebook-files"
    for path in () if error else sorted(FOLDER.glob("*.md")):
        notebook, cells = jupytext.read(path), record(path.stem)["cells"]
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = outputs_of(cells.get(fingerprint(cell.source), {}))
        target.mkdir(exist_ok=True)
        jupytext.write(notebook, target / f"{path.stem}.ipynb")


def outputs_of(found: dict[str, Any]) -> list[Any]:
    outputs = [new_output("stream", name="stdout", text=found["text"])] if found.get("text") else []
    for name in found.get("figures", ()):
        picture = base64.b64encode((FOLDER / "outputs" / name).read_bytes()).decode()
        outputs.append(new_output("display_data", data={"image/png": picture}))
    return outputs
