import pytest
import torch
from task_checks import check_addressing, check_fair, check_form, check_uniform, rows_of

from tapehead.streams import stream
from tapehead.tasks import make_task


@pytest.mark.parametrize("length", [(1, 20), 1, 13])
def test_against_the_oracle(length):
    task = make_task("parity", length=length)
    batch = task.sample(stream(3, "t", 0), batch_size=60)
    check_form(task, batch, (), 60)
    answers = set()
    for inputs, targets, mask in rows_of(batch):
        bits = [bit for bit, end in inputs if not end]
        count = len(bits)
        odd = float(sum(bits) % 2 == 1)
        assert inputs == [[bit, 0.0] for bit in bits] + [[0.0, 1.0]]
        assert targets == [[0.0]] * count + [[odd]]
        assert mask == [0.0] * count + [1.0]
        answers.add(odd)
    assert answers == {0.0, 1.0}


def test_distribution():
    batch = make_task("parity").sample(stream(range(10), "t", range(40)), batch_size=20)
    check_uniform(batch.lengths - 1, 1, 20)
    shown = torch.arange(batch.inputs.shape[-3]).unsqueeze(-1) < (batch.lengths - 1).unsqueeze(-2)
    check_fair(batch.inputs[..., 0][shown])
    check_fair(batch.targets[batch.mask.bool()])


def test_addressing():
    check_addressing(make_task("parity"))
    check_addressing(make_task("parity"), length=(30, 40))


def test_facts():
    task = make_task("parity")
    assert (task.input_size, task.output_size, task.chance_bits, task.solved_bits) == (2, 1, 1.0, 0.01)
    batch = task.sample(stream(0, "t", 0), batch_size=50)
    assert torch.equal(
        task.loss.bits(torch.zeros_like(batch.targets), batch.targets, batch.mask), torch.ones(50).double()
    )
    with pytest.raises(ValueError, match="length is 0"):
        make_task("parity", length=0)
