import pytest
import torch
from task_checks import check_addressing, check_fair, check_form, check_uniform, rows_of

from tapehead.streams import stream
from tapehead.tasks import make_task


def number(bits):
    """Bits as a number, the lowest first."""
    return sum(int(bit) << place for place, bit in enumerate(bits))


@pytest.mark.parametrize("length", [(1, 10), 1, 40])
def test_against_the_oracle(length):
    task = make_task("addition", length=length)
    batch = task.sample(stream(3, "t", 0), batch_size=60)
    check_form(task, batch, (), 60)
    carried = 0
    for inputs, targets, mask in rows_of(batch):
        size = [end for _, _, end in inputs].index(1.0)
        a, b = (number(step[k] for step in inputs[:size]) for k in (0, 1))
        total = a + b
        carried += total >= 2**size
        assert inputs[size] == [0.0, 0.0, 1.0]
        assert inputs[size + 1 :] == [[0.0, 0.0, 0.0]] * (size + 1)
        assert all(end == 0.0 for _, _, end in inputs[:size])
        assert targets[: size + 1] == [[0.0]] * (size + 1)
        assert targets[size + 1 :] == [[float(total >> place & 1)] for place in range(size + 1)]
        assert mask == [0.0] * (size + 1) + [1.0] * (size + 1)
    assert carried > 5  # into the last bit


def test_distribution():
    batch = make_task("addition").sample(stream(range(10), "t", range(40)), batch_size=20)
    lengths = batch.lengths // 2 - 1
    check_uniform(lengths, 1, 10)
    shown = torch.arange(batch.inputs.shape[-3]).unsqueeze(-1) < lengths.unsqueeze(-2)
    for channel in (0, 1):
        check_fair(batch.inputs[..., channel][shown])


def test_addressing():
    check_addressing(make_task("addition"))
    check_addressing(make_task("addition"), length=(12, 20))


def test_facts():
    task = make_task("addition")
    assert (task.input_size, task.output_size, task.chance_bits) == (3, 1, 6.5)
    batch = task.sample(stream(0, "t", 0), batch_size=3)
    asked = task.loss.bits(torch.zeros_like(batch.targets), batch.targets, batch.mask)
    assert torch.equal(asked, (batch.lengths // 2).double())  # a bit for each of L + 1 answers
    with pytest.raises(ValueError, match="length is 5 to 2"):
        make_task("addition", length=(5, 2))
