"""All pictures of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tapehead import files
from tapehead.models.sequence import SequenceModel
from tapehead.pictures import style
from tapehead.pictures.answers import draw_answers
from tapehead.pictures.curves import draw_curves
from tapehead.pictures.memory import draw_memory
from tapehead.pictures.predictions import draw_predictions
from tapehead.pictures.scene import make_scene
from tapehead.tasks import Task
from tapehead.tasks.ngrams import NGrams


def draw_run(folder: Path, model: SequenceModel, task: Task, *, seed: int, metrics: list[dict[str, Any]]) -> list[Path]:
    """Draw into the run's `figures` folder; the files that were written, an SVG and a PNG of each picture.

    seed: whose weights the model holds. metrics: the lines of metrics.jsonl; without any there is no learning curve,
    and without a memory no picture of it.
    """
    pictures: dict[str, Callable[[], Figure | None]] = {
        "learning-curve": lambda: draw_curves(task, metrics) if metrics else None,
        "answers": lambda: (
            draw_predictions(model, task, seed) if isinstance(task, NGrams) else draw_answers(model, task, seed)
        ),
        "memory": lambda: draw_memory(scene, task, seed) if (scene := make_scene(model, task)) else None,
    }
    files.expect_folder(folder / "figures")
    written = []
    for name, draw in pictures.items():
        figure = draw()
        if figure is not None:
            written += style.save(figure, folder / "figures", name)
    return written
