"""Figures and animations of machines on sequences of one's own: what is in them is the trace."""

import itertools

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import tapehead
from tapehead import cli
from tapehead.figures import animation
from tapehead.figures.sequence import OneSequence
from tapehead.tasks.copy import Copy

SMALL = {"controller_size": 5, "memory_slots": 6, "memory_width": 3}
TASK = Copy(width=2)
BATCH = TASK.sample(tapehead.stream(0, "own", 0), batch_size=3, length=(1, 4))


def machine(**options):
    torch.manual_seed(0)
    return tapehead.NTM(TASK.input_size, TASK.output_size, **(SMALL | options)).eval()


def titles(figure):
    return [axes.get_title("left") for axes in figure.axes]


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "num_heads": 2}])
def test_figures_of_a_batch(options):
    figures = tapehead.draw(machine(**options), BATCH, row=1)
    assert list(figures) == ["answers", "memory"]
    words = [text.get_text() for text in figures["answers"].texts]
    assert {"NTM: targets and outputs", "Sequence 0", "Sequence 2"} <= set(words)
    steps = int(BATCH.lengths[1])
    assert f"NTM: memory use (sequence 1, {steps} steps)" in [text.get_text() for text in figures["memory"].texts]
    shown = [image.get_array() for axes in figures["memory"].axes for image in axes.images]
    assert np.array_equal(shown[0], BATCH.inputs[:steps, 1].T.numpy())


def test_headings_do_not_touch():
    figure = tapehead.draw(machine(), BATCH)["answers"]
    notes = [text for text in figure.texts if " wrong, " in text.get_text()]
    assert len(notes) == 3
    assert not any("each" in note.get_text() for note in notes)  # each is of one sequence
    boxes = [note.get_window_extent(FigureCanvasAgg(figure).get_renderer()) for note in notes]
    for one, other in itertools.pairwise(boxes):
        assert one.x1 < other.x0 or one.y0 != other.y0


def test_inputs_alone_and_models_without_a_memory():
    assert list(tapehead.draw(machine(), BATCH.inputs, title="mine")) == ["memory"]
    lstm = tapehead.PaperLSTM(TASK.input_size, TASK.output_size, hidden_size=3, num_layers=1)
    assert list(tapehead.draw(lstm, BATCH)) == ["answers"]
    assert tapehead.draw(lstm, BATCH._replace(mask=torch.zeros_like(BATCH.mask))) == {}


@pytest.mark.parametrize(
    ("batch", "given", "message"),
    [
        (BATCH, {"row": 3}, "row is 3, but the batch has rows 0 to 2"),
        (BATCH.inputs[:, 0], {}, r"batch has shape .* but inputs are \[time, batch, 3\]"),
        (torch.zeros(4, 3, 7), {}, r"batch\.inputs has shape \(4, 3, 7\), but this model needs \(4, 3, 3\)"),
        (BATCH._replace(lengths=BATCH.lengths[:2]), {}, r"batch\.lengths has shape \(2,\)"),
        ([1, 2], {}, "batch is of type list"),
    ],
)
def test_batches_that_do_not_fit(batch, given, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        tapehead.draw(machine(), batch, **given)
    with pytest.raises((ValueError, TypeError), match=message):
        tapehead.animate(machine(), batch, tmp_path / "x.gif", **given)
    assert not list(tmp_path.iterdir())


def test_another_library_s_model_is_refused():
    with pytest.raises(TypeError, match=r"of type LSTM, but it must be a tapehead\.SequenceModel"):
        tapehead.draw(torch.nn.LSTM(3, 2), torch.rand(4, 1, 3))


def test_a_animation_shows_the_tape_after_every_step():
    ntm = machine(num_heads=2)
    task = OneSequence.of(BATCH, 1, TASK.loss)
    film = animation.Frames(ntm, task, "an animation")
    with torch.no_grad():
        _, _, trace = ntm(task.batch.inputs, return_trace=True)
    for t in (0, film.steps - 1):
        film.show(t)
        assert np.allclose(film._tape.get_array(), trace.memory[t, 0].T.numpy()[:, film.slots], atol=1e-6)
        for bars, kind in zip(film._bars, (trace.write, trace.read), strict=True):
            heights = [[bar.get_height() for bar in head] for head in bars]
            assert np.allclose(heights, kind.weightings[t, 0].numpy()[:, film.slots], atol=1e-6)
        assert np.isnan(film._answers.get_array()[:, t + 1 :].filled(np.nan)).all()
        assert film._marks[0].get_x() == t - 0.5


def test_an_animation_has_a_frame_for_each_step(tmp_path):
    path = tapehead.animate(machine(), BATCH, tmp_path / "new" / "tape.gif", row=1, frames_per_second=10)
    with Image.open(path) as film:
        assert film.n_frames == int(BATCH.lengths[1])
        assert film.info["duration"] == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tapehead.animate(machine(), BATCH, "tape.png"), r"tape\.png has no ending of \.gif or \.mp4"),
        (lambda: tapehead.animate(machine(), BATCH, "tape.mp4"), r"tape\.mp4 needs ffmpeg"),
        (lambda: tapehead.animate(tapehead.PaperLSTM(3, 2), BATCH, "tape.gif"), "PaperLSTM has no memory"),
        (lambda: tapehead.animate(machine(), BATCH, "tape.gif", frames_per_second=0), "frames_per_second is 0"),
    ],
)
def test_animations_that_cannot_be_made(call, message, monkeypatch):
    monkeypatch.setattr(animation.FFMpegWriter, "isAvailable", lambda: False)
    with pytest.raises(ValueError, match=message):
        call()


def test_the_command_makes_an_animation(tmp_path, capsys, monkeypatch):
    """Of a machine of the zoo, on the sequence of its figures; the frames are drawn elsewhere."""
    seen = []
    monkeypatch.setattr(animation, "animate", lambda model, batch, path, **given: seen.append((batch, given)) or path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", "copy-ntm-feedforward", "--format", "gif", "--out", str(tmp_path / "tape.gif")])
    assert not ended.value.code
    assert capsys.readouterr().out == f"{tmp_path / 'tape.gif'}\n"
    assert seen[0][0].inputs.shape == (41, 1, 9)
    assert seen[0][1]["title"] == "copy: the tape (length 20)"
