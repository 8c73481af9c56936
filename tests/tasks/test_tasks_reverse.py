import math

import pytest
import torch
from task_checks import check_addressing, check_form, check_uniform, rows_of

from tapehead.losses import CATEGORICAL
from tapehead.streams import stream
from tapehead.tasks import make_task


def oracle(symbols, count):
    """A row from its symbols: inputs, targets, mask."""
    length = len(symbols)
    one_hot = [[float(symbol == k) for k in range(count)] for symbol in symbols]
    nothing = [0.0] * count
    inputs = [[*row, 0.0] for row in one_hot] + [[*nothing, 1.0]] + [[*nothing, 0.0]] * length
    targets = [nothing] * (length + 1) + one_hot[::-1]
    return inputs, targets, [0.0] * (length + 1) + [1.0] * length


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("length", [(1, 20), 1, 7])
def test_against_the_oracle(length, count):
    task = make_task("reverse", length=length, symbols=count)
    batch = task.sample(stream(3, "t", 0), batch_size=40)
    check_form(task, batch, (), 40)
    for inputs, targets, mask in rows_of(batch):
        shown = [row.index(1.0) for row in inputs if 1.0 in row[:count]]
        assert (inputs, targets, mask) == oracle(shown, count)


def test_distribution():
    task = make_task("reverse")
    batch = task.sample(stream(range(10), "t", range(40)), batch_size=20)
    lengths = (batch.lengths - 1) // 2
    check_uniform(lengths, 1, 20)
    asked = batch.mask.bool()
    check_uniform(batch.targets[asked].argmax(-1), 0, 7)


def test_addressing():
    check_addressing(make_task("reverse"))
    check_addressing(make_task("reverse", symbols=3), length=(2, 5))


def test_facts():
    task = make_task("reverse")
    assert (task.input_size, task.output_size, task.chance_bits) == (9, 8, 31.5)
    assert task.loss is CATEGORICAL
    batch = task.sample(stream(0, "t", 0), batch_size=4000)
    blind = task.loss.bits(torch.zeros_like(batch.targets), batch.targets, batch.mask)
    spread = 3 * math.sqrt((20**2 - 1) / 12 / 4000)  # of the mean, three bits a symbol
    assert abs(float(blind.mean()) - task.chance_bits) < 5 * spread
    assert task.label({"length": 30}) == "Length 30"


@pytest.mark.parametrize(("options", "message"), [({"symbols": 1}, "symbols is 1"), ({"length": 0}, "length is 0")])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make_task("reverse", **options)
