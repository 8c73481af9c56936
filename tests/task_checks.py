"""What every task must do, used by the task tests: compare with an oracle, and be the same however it is asked."""

import torch

from tapehead.streams import stream


def rows_of(batch):
    """Each row as nested Python lists, cut to its length: (inputs, targets, mask); what is cut off must be zero."""
    for b, length in enumerate(batch.lengths.tolist()):
        inputs, targets, mask = batch.inputs[:, b], batch.targets[:, b], batch.mask[:, b]
        for tensor in (inputs, targets, mask):
            assert not tensor[length:].any()
        yield inputs[:length].tolist(), targets[:length].tolist(), mask[:length].tolist()


def check_form(task, batch, lead, rows):
    steps = int(batch.lengths.max())
    assert batch.inputs.shape == (*lead, steps, rows, task.input_size)
    assert batch.targets.shape == (*lead, steps, rows, task.output_size)
    assert batch.mask.shape == (*lead, steps, rows)
    assert batch.lengths.shape == (*lead, rows)
    assert all(tensor.dtype == torch.float32 for tensor in batch[:3])
    assert batch.lengths.dtype == torch.int64


def assert_same(batch, other):
    """Equal up to padding."""
    steps = int(batch.lengths.max())
    assert torch.equal(batch.lengths, other.lengths)
    for mine, theirs, time in zip(batch[:3], other[:3], (-3, -3, -2), strict=True):
        assert torch.equal(mine, theirs.narrow(time, 0, steps))


def check_addressing(task, **sizes):
    """A block of steps and seeds equals the single calls; a row does not depend on how many there are."""
    seeds, steps = [3, 4], range(5, 8)
    block = task.sample(stream(seeds, "t", steps), batch_size=4, **sizes)
    check_form(task, block, (3, 2), 4)
    for k, step in enumerate(steps):
        for s, seed in enumerate(seeds):
            source = stream(seed, "t", step)
            single = task.sample(source, batch_size=4, **sizes)
            check_form(task, single, (), 4)
            assert_same(single, type(block)(*(tensor[k, s] for tensor in block)))
            assert_same(single, task.sample(source, batch_size=4, **sizes))  # sampling does not use a stream up
    wide = task.sample(stream(3, "t", 5), batch_size=9, **sizes)
    assert_same(
        task.sample(stream(3, "t", 5), batch_size=2, **sizes),
        type(wide)(wide.inputs[:, :2], wide.targets[:, :2], wide.mask[:, :2], wide.lengths[:2]),
    )
    assert not torch.equal(block.inputs[0, 0], block.inputs[0, 1])
    assert not torch.equal(block.inputs[0, 0], block.inputs[1, 0])


def check_fair(bits):
    """Zeros and ones in equal parts, to five standard deviations."""
    assert set(bits.unique().tolist()) == {0.0, 1.0}
    assert abs(float(bits.mean()) - 0.5) < 5 * 0.5 * bits.numel() ** -0.5


def check_uniform(values, low, high):
    """Whole numbers, uniform over low..high: no count further than five standard deviations from its expectation."""
    counts = torch.bincount(values.flatten() - low, minlength=high - low + 1).double()
    assert len(counts) == high - low + 1
    p = 1 / len(counts)
    n = values.numel()
    assert float((counts - n * p).abs().max()) < 5 * (n * p * (1 - p)) ** 0.5
