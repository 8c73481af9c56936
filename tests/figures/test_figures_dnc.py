"""The figure of a DNC's allocation, links and read modes."""

import io

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import tapehead
from tapehead.figures.dnc import draw_links, link_use
from tapehead.figures.dnc_trace import LinkTrace, links_after, make_link_trace, slots_in_use, strongest_links
from tapehead.figures.draw import draw
from tapehead.figures.style import look
from tapehead.tasks import make_task


def small_dnc(task, **options):
    torch.manual_seed(0)
    return tapehead.DNC(
        task.input_size, task.output_size, controller_size=8, memory_slots=12, memory_width=4, **options
    )


def words(figure: Figure) -> str:
    """The text of a figure, as an SVG holds it."""
    with look():
        written = io.StringIO()
        figure.savefig(written, format="svg")
    return written.getvalue()


def test_links_are_those_of_the_state():
    task = make_task("copy", length=4)
    dnc = small_dnc(task)
    batch = task.sample(tapehead.stream(0, "t", 0), batch_size=1)
    _, state, trace = dnc(batch.inputs, return_trace=True)
    links = links_after(trace.write.weightings[:, 0, 0])
    torch.testing.assert_close(links, state.link[0], rtol=0, atol=1e-7)


def test_the_trace_has_every_quantity():
    task = make_task("copy", length=(1, 5))
    shown = make_link_trace(small_dnc(task, read_heads=2), task)
    assert shown is not None
    assert (shown.linked, shown.answer) == (5, 6)
    shapes = {name: np.shape(value) for name, value in shown._asdict().items()}
    assert shapes["write_gate"] == shapes["allocation_gate"] == (11,)
    assert shapes["usage"] == shapes["allocation"] == shapes["writing"] == (12, 11)
    assert (shapes["free_gates"], shapes["reading"], shapes["modes"]) == ((2, 11), (2, 12, 11), (2, 3, 11))
    assert np.allclose(shown.modes.sum(axis=1), 1)
    assert make_link_trace(tapehead.PaperLSTM(9, 8), task) is None


def written_in_order(order: list[int], slots: int = 6) -> LinkTrace:
    """A head that writes these slots, one in each step, and nothing else."""
    writing = np.zeros((slots, len(order)))
    writing[order, range(len(order))] = 1
    links = links_after(torch.from_numpy(writing.T.copy())).numpy()
    ones, reading = np.ones(len(order)), np.zeros((1, slots, len(order)))
    modes = np.stack([ones, 0 * ones, 0 * ones])[None]
    return LinkTrace(ones, ones, ones[None], writing, writing, writing, reading, modes, links, len(order) - 1, 0)


def test_slots_and_links_in_the_order_of_use():
    trace = written_in_order([4, 1, 5, 1])
    assert slots_in_use(trace) == [4, 1, 5]
    trace.reading[0, 0, 1] = 0.5  # read first, and never written
    assert slots_in_use(trace) == [4, 1, 5, 0]
    # 4 -> 1 was replaced when slot 1 was written again after 5
    assert strongest_links(trace.links, [4, 1, 5], 0.1) == [(2, 1, 1.0)]
    assert strongest_links(written_in_order([4, 1, 5]).links, [4, 1, 5], 0.1) == [(0, 1, 1.0), (1, 2, 1.0)]


@pytest.mark.parametrize("heads", [1, 6])
def test_the_figure_says_what_it_shows(heads: int):
    task = make_task("copy", length=(1, 5))
    view = tapehead.RunView(task, small_dnc(task, read_heads=heads), 3, [])
    text = words(draw(view, ["links"])["links"])
    for label in ("Copy: allocation and links (length 5, seed 3)", "Usage", "Allocation", "Write weighting", "Gates"):
        assert label in text
    for label in ("backward", "content", "forward", "Links after step 5", "in the order of first writes"):
        assert label in text
    assert ("The first 4 of 6 read heads." in text) == (heads == 6)


def test_arcs_that_lead_back_and_a_machine_that_does_nothing():
    task = make_task("copy", length=2)
    trace = written_in_order([0, 1, 2, 0])
    assert "0.1 and stronger" in words(draw_links(trace, task, 0))
    idle = trace._replace(writing=0 * trace.writing, links=0 * trace.links)
    assert "none is as strong as 0.1" in words(draw_links(idle, task, 0))


def test_other_models_have_no_such_figure():
    task = make_task("copy", length=2)
    view = tapehead.RunView(task, tapehead.PaperLSTM(9, 8, 4, 1), 0, [])
    assert link_use(view) is None
    with pytest.raises(ValueError, match="the figure links shows nothing of this run, whose model is PaperLSTM"):
        draw(view, ["links"])
