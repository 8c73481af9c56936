"""What the captions of memory use say, on heads that go where the test puts them."""

import numpy as np
import pytest
import torch
from made_up_results import small_machine

from tapehead.figures.predictions import Prediction
from tapehead.paper.figures import figure06, figure09, figure12, figure14, figure15, figure17, sorting
from tapehead.paper.figures.memory import Locations, away, locations
from tapehead.streams import stream
from tapehead.tasks import make_task
from tapehead.tasks.task import Batch

SLOTS = 32


def heads(name, read, write, sequences=3, **sizes):
    """Locations of one read and one write head on sequences of a task: read and write are functions of the step."""
    task = make_task(name)
    batch = task.sample(stream(0, "heads", 0), batch_size=sequences, **sizes)
    steps = range(len(batch.inputs))
    places = [torch.tensor([[[function(t)]] * sequences for t in steps]) for function in (read, write)]
    return Locations(batch, *places, SLOTS)


def test_distances_go_around_the_tape():
    found = heads("copy", lambda t: 0, lambda t: 0, length=2)
    assert found.offset(torch.tensor([0, 1, 5]), torch.tensor([31, 0, 5])) == (1, pytest.approx(2 / 3))
    assert found.offset(torch.tensor([30, 31]), torch.tensor([1, 2])) == (-3, 1.0)
    assert [away(distance) for distance in (0, 1, -2)] == ["at", "1 slot after", "2 slots before"]


def test_figure_06_says_where_copies_are_read():
    """Five vectors go to slots 10, 9, ...; each is read two slots after where it was written."""
    says = figure06.says(heads("copy", lambda t: 12 - (t - 6), lambda t: 10 - t, length=5))
    assert "moves by -1 slot with every vector" in says
    assert "2 slots after the slot where the vector of each answer was written in 100.0 %" in says


def test_figure_09_says_where_repeats_begin():
    """Three vectors at slots 1 to 3, four repeats; from the second on, the first vector is read at slot 4."""

    def read(t):
        step = t - 4
        return 4 if step > 0 and step % 3 == 0 else 1 + step % 3

    says = figure09.says(heads("repeat-copy", read, lambda t: 1 + t, length=3, repeats=4))
    assert says.startswith(
        "in each of the 4 repeats the read head is at the slot where a vector was written for 100.0 %"
    )
    assert says.endswith("the first vector is read 3 slots after the slot where it was written in 100.0 %.")


def test_figure_12_finds_the_item_that_follows_the_query():
    """Step t writes slot t, and the answers are read one slot after those of the item that is wanted."""
    task = make_task("associative-recall")
    batch = task.sample(stream(0, "heads", 0), batch_size=6, items=4)
    steps, sequences = batch.mask.shape
    write = torch.arange(steps).view(-1, 1, 1).expand(steps, sequences, 1)
    read = torch.zeros_like(write)
    answer = int(batch.mask[:, 0].argmax())
    for row in range(sequences):
        inputs, targets = batch.inputs[:, row, :6], batch.targets[answer:, row]
        (begin,) = [t for t in range(1, answer - 4) if torch.equal(inputs[t : t + 3], targets)]
        read[answer:, row, 0] = torch.arange(begin, begin + 3) + 1
    says = figure12.says(Locations(batch, read, write, SLOTS))
    assert "the read head is 1 slot after the slot" in says
    assert "in 100.0 % of the answers" in says


def test_contexts_are_the_last_five_bits():
    bits = torch.tensor([[1, 0, 0, 1, 0, 1, 1]]).T
    assert figure15.contexts(bits)[:, 0].tolist() == [0b10010, 0b00101, 0b01011]


def test_returns_count_contexts_that_come_again():
    context = torch.tensor([[1, 2, 1, 1, 2], [3, 3, 3, 4, 4]]).T
    places = torch.tensor([[7, 8, 7, 9, 8], [5, 5, 6, 1, 1]]).T
    assert figure15.returns(context, places) == (6, 4)


def test_marked_contexts_come_often_enough_and_apart():
    seen = np.array([1] * 8 + [2] * 7 + [3] * 6 + [4] * 2)
    (first, at), (second, later) = figure15.shown_contexts(seen)
    assert (first, second) == (1, 3)  # 2 comes more often than 3, but follows 1 at once
    assert at.tolist() == list(range(4, 12))
    assert later.tolist() == list(range(19, 25))


def test_figure_15_finds_the_lag_of_the_write_head():
    """Slots are contexts; the write head is beside the slot that was read two steps before."""
    task = make_task("ngrams")
    batch = task.sample(stream(0, "heads", 0), batch_size=2)
    context = figure15.contexts(batch.inputs[..., 0])
    read = torch.cat([torch.full((4, 2), 40), context])
    write = torch.cat([torch.full((2, 2), 60), read[:-2] + 1])
    says = figure15.says(Locations(batch, read.unsqueeze(-1), write.unsqueeze(-1), 128))
    assert "is at the slot of the last time in 100.0 %" in says
    assert "2 steps after the read in 100.0 %" in says


def test_figure_14_marks_the_largest_disagreements():
    optimal = np.full(6, 0.5)
    said = {"NTM": np.array([0.5, 0.9, 0.4, 0.2, 0.55, 0.51])}
    one = Prediction(np.zeros(6), optimal, 6.0, said, {"NTM": 7.0})
    assert figure14.largest(one, "NTM").tolist() == [1, 2, 3]
    closer = Prediction(np.zeros(6), optimal, 6.0, {"NTM": optimal}, {"NTM": 6.0})
    assert figure14.worst([closer, one], "NTM") == (1, "NTM", 1)


# --- sorting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priority", "position", "says"),
    [(0.9, 0.0, "sorts as it writes"), (0.1, 0.9, "in the order in which they come"), (0.1, 0.2, "Neither")],
)
def test_how_a_machine_sorts_is_said_only_where_something_explains_it(priority, position, says):
    fits = (sorting.Fit(1.0, 0.0, r2) for r2 in (priority, position))
    assert says in figure17.method(*fits)


def test_a_line_is_fitted_and_judged():
    x = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert sorting.fit_line(x, 2 * x + 1) == pytest.approx((2.0, 1.0, 1.0))
    slope, intercept, r2 = sorting.fit_line(x, torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert (slope, intercept) == pytest.approx((0.2, 0.2))
    assert r2 == pytest.approx(np.corrcoef([0, 1, 2, 3], [0, 1, 0, 1])[0, 1] ** 2)
    assert sorting.fit_line(x, torch.full((4,), 5.0)) == (0.0, 5.0, 0.0)


def test_locations_do_not_jump_at_the_end_of_the_tape():
    assert sorting.unrolled(torch.tensor([[30], [31], [0], [1], [0]]), 32).flatten().tolist() == [30, 31, 32, 33, 32]
    assert sorting.unrolled(torch.tensor([3, 12, 7, 3]), 16).tolist() == [3, 12, 7, 3]
    assert sorting.unrolled(torch.tensor([5, 5]), 16).tolist() == [5, 5]


def test_a_machine_that_sorts_as_it_writes_is_recognised(monkeypatch):
    """As the paper describes it: the location is a linear function of the priority, and reads run along the tape."""
    machine = small_machine("priority-sort-ntm-lstm")
    task = machine.task
    drawn = task.sample(stream(0, "heads", 0), batch_size=5)
    items, outputs = 6, 4
    order = torch.stack([torch.randperm(items, generator=torch.Generator().manual_seed(s)) for s in range(5)], dim=1)
    inputs = drawn.inputs.clone()
    inputs[:items, :, task.width] = order / 3 - 0.8
    steps = len(inputs)
    write, read = torch.zeros(steps, 5, 2, dtype=torch.long), torch.full((steps, 5, 2), 15)
    write[:items, :, 1] = 2 * order + 3
    read[items + 1 :, :, 0] = (2 * torch.arange(items - 1, items - 1 - outputs, -1) + 3).unsqueeze(-1)
    write[items + 2 :, :, 0] = read[items + 1 : -1, :, 0]
    placed = Locations(Batch(inputs, *drawn[1:]), read, write, 16)
    monkeypatch.setattr(sorting, "locations", lambda machine: placed)
    found = sorting.sorting(machine)
    assert (found.writer, found.reader, found.eraser) == (1, 0, 0)
    assert found.by_priority == pytest.approx((6.0, 3 + 6 * 0.8, 1.0))
    assert found.by_position.r2 < 0.9
    assert (found.reads_next, found.follows) == (1.0, 1.0)
    assert found.ranks_read().tolist() == np.eye(items)[:, :outputs].tolist()


def test_locations_are_those_of_the_greatest_weightings():
    found = locations(small_machine("copy-ntm-lstm"))
    assert found.read.shape == found.write.shape == (9, 20, 1)
    assert found.answer == 5
    assert found.slots == 16
