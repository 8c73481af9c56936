"""The pictures of a run: that they are drawn, say what they show, are the same twice, and hold the right numbers."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from tapehead.evaluation.metrics import bits_per_sequence, wrong_bits
from tapehead.experiment.metrics import Line
from tapehead.figures import style
from tapehead.figures.answers import arrange, cell_width, draw_answers, make_strip
from tapehead.figures.benchmarks import spread_apart
from tapehead.figures.curves import chance_level, curves, draw_curves
from tapehead.figures.draw import draw
from tapehead.figures.memory import draw_memory, label_channels, label_slots
from tapehead.figures.memory_trace import MemoryTrace, into_range, make_memory_trace, used_slots
from tapehead.figures.predictions import predict
from tapehead.figures.run_model import source
from tapehead.figures.style import number, save
from tapehead.figures.view import RunView
from tapehead.kernels.ntm_scan.contract import Trace
from tapehead.losses import CATEGORICAL
from tapehead.models.lstm import PaperLSTM
from tapehead.models.ntm import NTM
from tapehead.models.sequence import SequenceModel
from tapehead.registry import TASKS
from tapehead.tasks import Task, make_task

SMALL = {
    "copy": {"length": (1, 6)},
    "repeat-copy": {"length": (1, 3), "repeats": (1, 3)},
    "associative-recall": {"items": (2, 3)},
    "ngrams": {"length": 40},
    "priority-sort": {"items": 6, "outputs": 4},
    "reverse": {"length": (1, 6)},
    "parity": {"length": (1, 6)},
    "addition": {"length": (1, 6)},
    "graph": {"nodes": (2, 3), "hops": (1, 2), "degree": 1},
}


def test_all_tasks_are_drawn_here_but_text_which_has_a_learning_curve_alone() -> None:
    assert {*SMALL, "text"} == {*TASKS}
    assert make_task("text").figures == ("learning-curve",)


def small_task(name: str, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task whose pictures are quick: small in training and in `generalisation`."""
    task = make_task(name, **SMALL[name])
    shrunk = tuple({size: max(2, n // 5) for size, n in sizes.items()} for sizes in task.generalisation[:2])
    monkeypatch.setattr(type(task), "generalisation", shrunk)
    return task


def small_ntm(task: Task, **options: Any) -> NTM:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"controller_size": 8, "memory_slots": 16, "memory_width": 5, "backend": "reference"}
    return NTM(task.input_size, task.output_size, **sizes | options)


def small_lstm(task: Task) -> PaperLSTM:
    torch.manual_seed(0)
    return PaperLSTM(task.input_size, task.output_size, hidden_size=8)


def metrics(seeds: int = 1) -> list[Line]:
    """A run that falls from 80 bits to under a hundredth in 30 blocks; later seeds learn later."""
    return [
        Line(
            updates=100 * (k + 1),
            episodes=100 * (k + 1),
            seeds=tuple(range(seeds)),
            bits=tuple(80 / (1 + np.exp(min(50.0, k - 8.0 - seed))) + 0.003 for seed in range(seeds)),
            skipped=(0,) * seeds,
            rate=(1e-4,) * seeds,
            attempt=(1,) * seeds,
            curriculum=(False,) * seeds,
            validation=(None,) * seeds,
        )
        for k in range(30)
    ]


def draw_into(folder: Path, model: SequenceModel, task: Task, seed: int, lines: list[Line]) -> list[Path]:
    """The figures that a task names, as the files of a run."""
    drawn = draw(RunView(task, model, seed, lines))
    return [path for name, figure in drawn.items() for path in save(figure, folder / "figures", name)]


def words(svg: Path) -> str:
    return " | ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text()))


@pytest.mark.parametrize("name", SMALL)
def test_all_pictures_of_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task(name, monkeypatch)
    written = draw_into(tmp_path, small_ntm(task), task, 3, metrics())
    assert [path.relative_to(tmp_path / "figures").as_posix() for path in written] == [
        f"{picture}.{kind}"
        for picture in ("learning-curve", "predictions" if name == "ngrams" else "answers", "memory")
        for kind in ("svg", "png")
    ]
    for path in written:
        assert path.stat().st_size > 5_000
    curve, answers, memory = (words(path) for path in written[::2])
    for label in ("Training episodes (thousands)", "per sequence (bits)", "chance: ", "solved: under "):
        assert label in curve
    rows = ("Input", "Optimal", "Machine") if name == "ngrams" else ("Targets", "Outputs", "Wrong")
    for label in (*rows, "Time", "seed 3"):
        assert label in answers
    for label in ("Time (steps)", "Location (slot)", "Write weightings", "Read weightings", "Adds", "Reads", "Inputs"):
        assert label in memory


def test_headings_are_the_tasks_labels(tmp_path: Path) -> None:
    task = make_task("repeat-copy")
    strip = make_strip(small_lstm(task), task, {"length": 3, "repeats": 4})
    assert strip.heading == "Length 3, Repeat 4"
    assert strip.targets.shape == (9, 13)


def test_same_run_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task("copy", monkeypatch)
    model = small_ntm(task)
    first, second = (draw_into(tmp_path / where, model, task, 0, metrics(3)) for where in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    model.load_flat(model.flat_parameters() + 0.1)
    other = save(draw_answers(model, task, 0), tmp_path / "c", "answers")
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(first[2:4], other, strict=True))


def test_settings_of_the_user_neither_matter_nor_change(tmp_path: Path) -> None:
    task = make_task("copy")
    plain = save(draw_curves(task, metrics()), tmp_path, "plain")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        odd = save(draw_curves(task, metrics()), tmp_path, "odd")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in odd]


def test_a_model_without_memory_has_no_picture_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task("copy", monkeypatch)
    written = draw_into(tmp_path, small_lstm(task), task, 0, [])
    assert [path.name for path in written] == ["answers.svg", "answers.png"]


@pytest.mark.parametrize("name", [name for name in SMALL if name != "ngrams"])
def test_numbers_of_answers_are_those_of_the_metrics(name: str) -> None:
    task = make_task(name, **SMALL[name])
    model: SequenceModel = small_lstm(task)
    strip = make_strip(model, task, {})
    rows = 1 + int(np.isnan(strip.targets[0]).sum())
    batch = task.sample(source(task), batch_size=rows)
    logits = model(batch.inputs, None, batch.lengths)[0].detach()
    scored = (logits, batch.targets, batch.mask)
    symbols = task.loss is CATEGORICAL
    wrong = int((CATEGORICAL.wrong if symbols else wrong_bits)(*scored).sum())
    cost = float((CATEGORICAL.bits if symbols else bits_per_sequence)(*scored).mean())
    answers = int(batch.mask.sum()) * (1 if symbols else task.output_size)
    assert int(np.nansum(strip.wrong)) == wrong
    assert strip.note == f"{wrong} of {answers} wrong, {number(cost)} bits{' each' if rows > 1 else ''}"
    assert rows > 1 or name != "associative-recall"


def test_a_right_answer_has_no_marks_and_a_wrong_one_has() -> None:
    task = make_task("copy", length=10)

    class Oracle(PaperLSTM):
        """Knows the answer, but for one bit."""

        def forward(self, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
            logits = torch.zeros(x.shape[0], x.shape[1], 8)
            logits[11:] = 40 * x[:10, :, :8] - 20
            logits[13, 0, 5] *= -1
            return logits, None

    strip = make_strip(Oracle(9, 8, 4), task, {})
    assert np.argwhere(strip.wrong).tolist() == [[5, 2]]
    assert strip.marks.tolist() == [[0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]
    assert strip.note.startswith("1 of 80 wrong")


def test_predictions_are_bayes_and_the_machines() -> None:
    task = make_task("ngrams", length=30, scored="after_context")
    model = small_lstm(task)
    first = predict({"machine": model}, task)[0]  # type: ignore[arg-type]
    batch = task.sample(source(task), batch_size=4)
    bits, optimal, machine = first.bits, first.optimal, first.said["machine"]
    assert len(bits) == len(machine) == 25
    assert first.costs["machine"] == pytest.approx(-np.log2(np.where(bits > 0.5, machine, 1 - machine)).sum())
    assert first.far("machine").tolist() == np.flatnonzero(abs(machine - optimal) > 0.25).tolist()
    assert -np.log2(np.where(bits > 0.5, optimal, 1 - optimal)).sum() == pytest.approx(
        float(task.optimal_bits(batch)[0])
    )


def test_solved_is_judged_by_the_last_thousand_episodes() -> None:
    lines = metrics(2)
    lines[20] = replace(lines[20], bits=(lines[20].bits[0], None))  # a block of which nothing was finite
    first, second = curves(lines, threshold=0.1).values()
    assert first.solved is not None
    window = first.bits[first.solved - 9 : first.solved + 1].mean()
    assert window < 0.1 < first.bits[first.solved - 10 : first.solved].mean()
    assert first.mean[first.solved] == pytest.approx(window)
    assert second.solved is None or second.solved >= 30


def test_one_high_cost_is_in_one_window_alone() -> None:
    lines = [replace(line, bits=(0.01,)) for line in metrics(1)]
    lines[15] = replace(lines[15], bits=(1000.0,))
    (curve,) = curves(lines, threshold=0.1).values()
    assert curve.edges[:4].tolist() == [0, 1000, 2000, 3000]
    assert (curve.steps > 1).tolist() == [False, True, *[False] * (len(curve.steps) - 2)]
    assert curve.steps[1] == pytest.approx((9 * 0.01 + 1000) / 10)


def test_windows_end_with_an_attempt() -> None:
    lines = [replace(line, bits=(float(line.episodes),)) for line in metrics(1)]
    lines[13:] = [replace(line, attempt=(2,)) for line in lines[13:]]
    (curve,) = curves(lines, threshold=0.1).values()
    assert curve.edges[:4].tolist() == [0, 1000, 1300, 2300]
    assert curve.steps[:3].tolist() == pytest.approx([550, 1200, 1850])


def test_colours_of_bits_become_lighter_from_zero_to_one() -> None:
    red, green, blue, _ = style.BITS(np.linspace(0, 1, 50)).T
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    assert (np.diff(grey) > 0).all()
    assert grey[-1] - grey[0] > 0.5


def ticks(label: Callable[..., None], *given: Any) -> dict[float, str]:
    axes = Figure().add_subplot()
    label(axes, *given)
    return dict(zip(axes.get_yticks().tolist(), (text.get_text() for text in axes.get_yticklabels()), strict=True))


def test_slots_of_a_ring_have_ticks_that_do_not_touch() -> None:
    around = [slot % 128 for slot in range(106, 151)]
    assert ticks(label_slots, around, 4) == {22: "0", 42: "20"}  # 120 would touch 0
    assert ticks(label_slots, list(range(10)), 5) == {0: "0", 2: "2", 4: "4", 6: "6", 8: "8"}


def test_sizes_of_a_benchmark_have_labels_that_do_not_touch() -> None:
    assert spread_apart((128, 512, 2048, 8192, 16384)) == [128, 512, 2048, 16384]
    assert spread_apart((1, 2, 4, 8, 16, 32)) == [1, 2, 4, 8, 16, 32]


def test_channels_are_named() -> None:
    assert ticks(label_channels, 10, {8: "delimiter", 9: "count"}) == {
        0: "0",
        2: "2",
        4: "4",
        6: "6",
        8: "delimiter",
        9: "count",
    }
    assert ticks(label_channels, 3, {2: "delimiter"}) == {0: "0", 1: "1", 2: "delimiter"}
    for name in TASKS:
        task = make_task(name)
        assert all(channel < task.input_size for channel in task.named_inputs)
        assert all(channel < task.output_size for channel in task.named_outputs)


def test_what_a_curriculum_cost_is_not_judged(tmp_path: Path) -> None:
    lines = metrics(1)
    lines = [replace(line, curriculum=(True,), bits=(0.0,)) for line in lines[:12]] + [
        replace(line, bits=(2.0,)) for line in lines[12:]
    ]
    (curve,) = curves(lines, threshold=0.1).values()
    assert curve.solved is None
    assert curve.mean[11] == 0.0
    assert curve.mean[12] == 2.0  # no window reaches back
    lines[14:] = [replace(line, bits=(0.0,)) for line in lines[14:]]
    (curve,) = curves(lines, threshold=0.1).values()
    assert curve.solved == 23  # ten blocks of 100 episodes without the last of the twos
    assert save(draw_curves(make_task("copy"), lines), tmp_path, "curve")


@pytest.mark.parametrize("name", ["copy", "ngrams"])
def test_a_run_without_a_finite_cost_has_a_picture_too(name: str, tmp_path: Path) -> None:
    lines = metrics(2)
    lines[3:] = [replace(line, bits=(None, None)) for line in lines[3:]]
    for shown in (lines, lines[3:], lines[:1]):
        assert save(draw_curves(make_task(name), shown), tmp_path, "curve")


def test_chance_of_a_paired_task_is_above_its_optimum() -> None:
    assert chance_level(make_task("copy")) == 84
    assert chance_level(make_task("ngrams")) == pytest.approx(200 - 132.98, abs=4)


def trace_of(writing: np.ndarray, reading: np.ndarray | None = None) -> MemoryTrace:
    """A trace of weightings [H, N, T] alone."""
    heads, _, steps = writing.shape
    blank = np.zeros((heads, 3, steps))
    return MemoryTrace(
        np.zeros((2, steps)), np.zeros((2, steps)), blank, blank, writing, writing if reading is None else reading, 1
    )


def test_used_slots_leave_out_the_longest_unused_stretch_of_the_ring() -> None:
    writing = np.zeros((1, 20, 4))
    assert used_slots(trace_of(writing)) == list(range(20))
    writing[0, [18, 19, 0, 3], range(4)] = 1.0
    assert used_slots(trace_of(writing)) == [16, 17, 18, 19, 0, 1, 2, 3, 4, 5]
    writing[0, [9, 13], 0] = 1.0
    assert used_slots(trace_of(writing)) == [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 1, 2, 3, 4, 5]
    writing[0, 6, 0] = 1.0
    assert used_slots(trace_of(writing)) == list(range(20))


@pytest.mark.parametrize(("reads", "writes"), [(1, 1), (1, 2), (9, 9)])
def test_any_number_of_heads(reads: int, writes: int, tmp_path: Path) -> None:
    task = make_task("copy", length=4)
    shown = make_memory_trace(small_ntm(task, read_heads=reads, write_heads=writes), task)
    assert shown is not None
    text = words(save(draw_memory(shown, task, 0), tmp_path, "memory")[0])
    assert (f"Head {min(8, max(reads, writes))}" in text) == (max(reads, writes) > 1)
    assert ("The first 8 of 9 heads" in text) == (reads == 9)


def test_what_is_drawn_is_the_trace() -> None:
    task = make_task("copy", length=(2, 4))
    model = small_ntm(task, batch_first=True)
    shown = make_memory_trace(model, task)
    assert shown is not None
    batch = task.sample(source(task), batch_size=1, length=4)
    trace = model(batch.inputs.transpose(0, 1), return_trace=True)[2]
    assert isinstance(trace, Trace)
    np.testing.assert_allclose(shown.adds[0], trace.add[:, 0, 0].T)
    np.testing.assert_allclose(shown.reading[0], trace.read.weightings[:, 0, 0].T)
    assert shown.answer == 5
    assert np.isnan(shown.outputs[:, :5]).all()
    assert np.isfinite(shown.outputs[:, 5:]).all()


def test_inputs_beyond_a_bit_are_scaled_and_said_so() -> None:
    scaled, note = into_range(np.array([[0.0, 1.0], [-0.5, 0.25], [0.0, 1.6]]), {2: "count"})
    np.testing.assert_allclose(scaled, [[0, 1], [0, 0.75], [0, 1]])
    assert note == " (channel 1: -0.5 to 0.5, count: 0 to 1.6)"


def test_costs_in_few_characters() -> None:
    assert [number(value) for value in (0.0, 0.0004, 0.00305, 0.5, 17.46, 135.2, 2100.0)] == [
        *("0.000", "<0.001", "0.003", "0.500", "17.5", "135", "2,100")
    ]


def test_strips_stay_on_the_page() -> None:
    for columns in ([10, 20, 30, 50, 120], [101, 201, 201, 401], [27] * 4, [16, 24], [3]):
        widths = [n * cell_width(columns) for n in columns]
        places, lines = arrange(widths, 1.0)
        assert max(place.x + width for place, width in zip(places, widths, strict=True)) <= 8.8 + 1e-6
        assert sum(place.first for place in places) == lines


def test_a_figure_that_is_asked_for_and_shows_nothing_is_said() -> None:
    task = make_task("copy", length=(1, 2), width=2)
    view = RunView(task, small_lstm(task), 0, [])
    assert "memory" not in draw(view)
    with pytest.raises(ValueError, match="the figure memory shows nothing of this run, whose model is PaperLSTM"):
        draw(view, ["memory"])
