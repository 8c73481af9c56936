import pytest
import torch
from task_checks import check_addressing, check_fair, check_uniform, rows_of

from tapehead.streams import Stream, stream
from tapehead.tasks import make_task


def oracle(inputs, width, outputs):
    """Reads vectors and priorities up to the flag, and sorts them by selection: the first of the highest goes first."""
    seen, t = [], 0
    while inputs[t][width + 1] == 0:
        seen.append((inputs[t][width], inputs[t][:width]))
        t += 1
    assert inputs[t] == [0.0] * (width + 1) + [1.0]
    assert all(not any(later) for later in inputs[t + 1 :])
    assert len(inputs) == t + 1 + outputs
    answer = []
    for _ in range(outputs):
        best = 0
        for i, (priority, _) in enumerate(seen):
            if priority > seen[best][0]:
                best = i
        answer.append(seen.pop(best)[1])
    return [[0.0] * width] * (t + 1) + answer, [0.0] * (t + 1) + [1.0] * outputs


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {}),
        ({"width": 3}, {"items": (8, 12), "outputs": (1, 8)}),
        ({}, {"items": 30, "outputs": 24}),
        ({"items": 1, "outputs": 1}, {}),
        ({"items": (2, 20)}, {}),
    ],
)
def test_oracle(options, sizes):
    task = make_task("priority-sort", **options)
    for inputs, targets, mask in rows_of(task.sample(stream(1, "t", 2), batch_size=12, **sizes)):
        assert (targets, mask) == oracle(inputs, task.width, int(sum(mask)))


def test_ties_keep_their_order(monkeypatch):
    exact = Stream.uniform
    monkeypatch.setattr(Stream, "uniform", lambda *args, **options: (exact(*args, **options) * 3).floor() / 3)
    task = make_task("priority-sort")
    for inputs, targets, mask in rows_of(task.sample(stream(1, "t", 2), batch_size=12)):
        assert len({row[8] for row in inputs[:20]}) <= 3
        assert (targets, mask) == oracle(inputs, 8, 16)


def test_addressing():
    check_addressing(make_task("priority-sort"))
    check_addressing(make_task("priority-sort"), items=(8, 12), outputs=(1, 8))
    check_addressing(make_task("priority-sort", items=(2, 20)))


def test_distribution():
    batch = make_task("priority-sort").sample(stream(1, "t", 0), batch_size=1000)
    check_fair(batch.inputs[:20, :, :8])
    priorities = batch.inputs[:20, :, 8]
    assert float(priorities.min()) >= -1
    assert float(priorities.max()) < 1
    check_uniform(((priorities + 1) * 8).floor().long(), 0, 15)
    varied = make_task("priority-sort").sample(stream(1, "t", 0), batch_size=1000, items=(8, 12), outputs=(1, 8))
    check_uniform(varied.mask.sum(0).long(), 1, 8)
    check_uniform(varied.inputs[..., 9].argmax(0), 8, 12)
    assert torch.equal(varied.lengths, varied.mask.sum(0).long() + varied.inputs[..., 9].argmax(0) + 1)


def test_numbers():
    task = make_task("priority-sort")
    assert (task.input_size, task.output_size, task.chance_bits) == (10, 8, 128)
    assert task.solved_bits == 1.0
    assert [task.label(s) for s in task.generalisation] == ["Items 20, Outputs 16", "Items 30, Outputs 24"]
    assert int(task.sample(stream(1, "t", 0), batch_size=1).lengths) == 37


def test_more_outputs_than_items_are_refused():
    with pytest.raises(ValueError, match="outputs is 16, but items is at most 10"):
        make_task("priority-sort").sample(stream(1, "t", 0), batch_size=1, items=10)


def test_a_row_is_never_asked_for_more_than_it_shows():
    task = make_task("priority-sort", items=(2, 20))
    batch = task.sample(stream(1, "t", 0), batch_size=1000)
    shown, asked = batch.inputs[..., 9].argmax(0), batch.mask.sum(0).long()
    check_uniform(shown, 2, 20)
    assert torch.equal(asked, shown.clamp(max=16))
    assert task.chance_bits == pytest.approx(8 * sum(min(shown, 16) for shown in range(2, 21)) / 19)
