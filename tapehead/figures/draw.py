"""Figures of a run: those that its task names, or any others of the registry or from outside."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from tapehead import files
from tapehead.experiment.folder import load, read_config, read_metrics, read_result
from tapehead.figures import style
from tapehead.figures.view import RunView
from tapehead.registry import FIGURES


def view_run(folder: Path, seed: int | None = None) -> RunView:
    """What the figures of a run are drawn from; of a population, by default, the machine of median cost."""
    experiment = read_config(folder)
    if seed is None:
        result = read_result(folder)
        known = result is not None and result.generalisation and len(experiment.seeds) > 1
        seed = result.median_seed() if result is not None and known else experiment.seeds[0]
    return RunView(experiment.task, load(folder, seed), seed, read_metrics(folder))


def draw_run(
    folder: Path, seed: int | None = None, names: Sequence[str] | None = None, out: Path | None = None
) -> list[Path]:
    """Draw into a folder, by default the run's `figures`; the files that were written, an SVG and a PNG of each figure.

    names: of figures in the registry, or module:function; by default those that the task names.
    """
    view = view_run(folder, seed)
    if out is None:
        files.expect_folder(folder / "figures")
    return draw_view(view, out or folder / "figures", names)


def draw_view(view: RunView, target: Path, names: Sequence[str] | None = None) -> list[Path]:
    """Draw into a folder; the files that were written."""
    written = []
    for name, figure in draw(view, names).items():
        written += style.save(figure, target, name)
    return written


def draw(view: RunView, names: Sequence[str] | None = None) -> dict[str, Figure]:
    """Figures by name; without those that have nothing to show."""
    functions = {name: FIGURES.resolve(name) for name in (view.task.figures if names is None else names)}
    files_of = [name.rpartition(":")[2] for name in functions]
    if len(set(files_of)) < len(files_of):
        raise ValueError(f"the figures {', '.join(functions)} would be written to one file: draw them one by one.")
    drawn = {name.rpartition(":")[2]: function(view) for name, function in functions.items()}
    empty = [name for name, figure in drawn.items() if figure is None]
    if names and empty:
        model = type(view.model).__name__
        raise ValueError(f"the figure {empty[0]} shows nothing of this run, whose model is {model}: leave it out.")
    return {name: figure for name, figure in drawn.items() if figure is not None}
