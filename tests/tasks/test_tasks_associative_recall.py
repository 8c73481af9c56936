import pytest
import torch
from task_checks import check_addressing, check_fair, check_uniform, rows_of

from tapehead.streams import stream
from tapehead.tasks import make_task


def oracle(inputs, width, item_length):
    """Reads items and query; returns targets, mask, the number of items and the query's index."""
    items, t = [], 0
    while inputs[t][width] == 1:
        assert inputs[t] == [0.0] * width + [1.0, 0.0]
        items.append(inputs[t + 1 : t + 1 + item_length])
        t += 1 + item_length
    bound = [0.0] * width + [0.0, 1.0]
    assert inputs[t] == bound
    query = inputs[t + 1 : t + 1 + item_length]
    t += 1 + item_length
    assert inputs[t] == bound
    assert all(row[width:] == [0.0, 0.0] for item in [*items, query] for row in item)
    assert all(not any(later) for later in inputs[t + 1 :])
    found = items.index(query)
    answer = [row[:width] for row in items[found + 1]]  # an IndexError if the last item was asked for
    return [[0.0] * width] * (t + 1) + answer, [0.0] * (t + 1) + [1.0] * item_length, len(items), found


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {}),
        ({"width": 9, "item_length": 2, "items": 4}, {}),
        ({}, {"items": (15, 20)}),
        ({"item_length": 1, "width": 16}, {}),
    ],
)
def test_oracle(options, sizes):
    task = make_task("associative-recall", **options)
    batch = task.sample(stream(1, "t", 2), batch_size=20, **sizes)
    for inputs, targets, mask in rows_of(batch):
        expected, scored, items, _ = oracle(inputs, task.width, task.item_length)
        assert (targets, mask) == (expected, scored)
        assert len(inputs) == items * (task.item_length + 1) + 2 + 2 * task.item_length


def test_addressing():
    check_addressing(make_task("associative-recall"))


def test_distribution():
    task = make_task("associative-recall")
    batch = task.sample(stream(1, "t", 0), batch_size=1500)
    check_fair(batch.targets[batch.mask > 0])
    read = [oracle(inputs, 6, 3)[2:] for inputs, _, _ in rows_of(batch)]
    check_uniform(torch.tensor([items for items, _ in read]), 2, 6)
    for items in range(3, 7):
        check_uniform(torch.tensor([query for n, query in read if n == items]), 0, items - 2)


def test_numbers():
    task = make_task("associative-recall")
    assert (task.input_size, task.output_size, task.chance_bits) == (8, 6, 18)
    assert [task.label(sizes) for sizes in task.generalisation] == [f"Items {n}" for n in (6, 10, 15, 20)]


def test_one_item_is_refused():
    with pytest.raises(ValueError, match="items is 1, but needs 2 <= low"):
        make_task("associative-recall", items=1)
    with pytest.raises(ValueError, match="items is 1 to 6"):
        make_task("associative-recall").sample(stream(1, "t", 0), batch_size=1, items=(1, 6))
