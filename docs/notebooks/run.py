"""Run the notebooks, and record what their cells print and draw: the site shows it below each cell.

    make notebooks                            # all of them, in full: some minutes
    python docs/notebooks/run.py copy.md      # one of them

A notebook is Markdown that Jupyter opens through jupytext. Here its cells run as plain Python, without a kernel.
"""

import argparse
import ast
import contextlib
import datetime
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
sys.path.append(str(Path(__file__).parents[1] / "_ext"))
import torch
from cells import cells_of, fingerprint
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from tapehead.environment import environment

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
DPI = 110


def run_cell(source: str, names: dict[str, Any], where: str) -> Figure | None:
    """Run a cell as Jupyter does: a last line that is an expression is shown. Returned if it is a figure."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    if isinstance(value, Figure):
        return value
    if value is not None:
        print(repr(value))
    return None


def execute(path: Path) -> Iterator[tuple[str, str, list[Figure]]]:
    """Every cell of a notebook, with what it printed and drew."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(cells_of(path), 1):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            shown = run_cell(source, names, f"{path.name}, cell {number}")
        figures = [plt.figure(one) for one in plt.get_fignums()]
        yield source, said.getvalue(), figures + ([shown] if shown is not None and shown not in figures else [])
        plt.close("all")


def record(path: Path) -> None:
    """Run a notebook in a temporary folder, and write its outputs and figures."""
    began, cells, figures_so_far = time.process_time(), {}, 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for source, text, figures in execute(path):
            names = [f"{path.stem}-{figures_so_far + number}.png" for number in range(1, len(figures) + 1)]
            for name, figure in zip(names, figures, strict=True):
                figure.savefig(OUTPUTS / name, dpi=DPI)
            figures_so_far += len(figures)
            cells[fingerprint(source)] = {"text": text, "figures": names}
    where = environment("cpu", "auto")
    made = {"date": datetime.date.today().isoformat(), "device": where["device"], "threads": torch.get_num_threads()}
    made |= {"torch": torch.__version__, "processor_seconds": round(time.process_time() - began, 1), "cells": cells}
    (OUTPUTS / f"{path.stem}.json").write_text(json.dumps(made, indent=1) + "\n")
    print(f"{path.name}: {made['processor_seconds']} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", help="names of notebooks in docs/notebooks (default: all)")
    names = parser.parse_args().notebooks
    os.environ.pop("TAPEHEAD_QUICK", None)
    OUTPUTS.mkdir(exist_ok=True)
    for path in [HERE / name for name in names] or sorted(HERE.glob("*.md")):
        record(path.resolve())


if __name__ == "__main__":
    main()
