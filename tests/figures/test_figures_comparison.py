"""Several runs in one picture."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tapehead.evaluation.generalisation import Score
from tapehead.experiment.metrics import Line
from tapehead.figures.comparison import LOOKS, RunCurves, draw_comparison, labels
from tapehead.tasks import make_task


def a_run(name: str, costs: list[float | None], seeds: int = 3, task: str = "copy") -> RunCurves:
    """Blocks of 500 episodes with these costs, the second seed twice as much."""
    line = Line(
        updates=0, episodes=0, seeds=tuple(range(seeds)), bits=(0.0,) * seeds, skipped=(0,) * seeds,
        rate=(1e-3,) * seeds, attempt=(1,) * seeds, curriculum=(False,) * seeds, validation=(None,) * seeds,
    )  # fmt: skip
    lines = [
        replace(
            line, episodes=500 * (k + 1), bits=tuple(None if cost is None else cost * (s + 1) for s in range(seeds))
        )
        for k, cost in enumerate(costs)
    ]
    many = {"sequences": 5, "wrong": (0.0,) * seeds, "accuracy": (1.0,) * seeds, "perfect": (1.0,) * seeds}
    scores = [
        Score(label=f"Length {n}", sizes={"length": n}, bits=(0.0, None, *(float(n),) * seeds)[:seeds], **many)
        for n in (10, 20)
    ]
    return RunCurves(name, make_task(task), lines, scores)


def test_lines_are_medians_of_windows() -> None:
    figure = draw_comparison([a_run("one", [4.0, 2.0, 1.0, 0.5])])
    stairs = figure.axes[0].patches[-1]
    values, edges, _ = stairs.get_data()
    assert edges.tolist() == [0, 1, 2]
    assert values.tolist() == [6.0, 1.5]  # of the second of three seeds
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "one (0 of 3 solved)"


@pytest.mark.parametrize("count", [1, 2, 9])
def test_nothing_lies_on_anything_else_and_nothing_is_cut(count: int) -> None:
    figure = draw_comparison([a_run(f"run {k}", [4.0, None, 1.0 + k, 0.5]) for k in range(count)])
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [text.get_window_extent(renderer) for text in figure.texts]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_runs_without_scores_and_paired_tasks_are_drawn() -> None:
    paired = a_run("grams", [3.0, -0.1], task="ngrams")
    assert draw_comparison([paired]).axes[0].get_yscale() == "symlog"
    assert (
        len(draw_comparison([a_run("a", [1.0])._replace(scores=()), a_run("b", [1.0])._replace(scores=())]).axes) == 1
    )


def test_runs_differ_without_colours() -> None:
    assert len({str(line) for _, line, _ in LOOKS}) == len({mark for _, _, mark in LOOKS}) == len(LOOKS)


def test_labels_are_as_short_as_they_may_be() -> None:
    assert labels([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert labels([Path("x/run"), Path("y/run"), Path("z")])[:2] == ["x/run", "y/run"]
    assert np.unique(labels([Path("a"), Path("a")])).tolist() == ["a"]
