import subprocess
import sys

import pytest
import torch
from task_checks import check_addressing, check_fair, check_uniform, rows_of

from tapehead.registry import TASKS
from tapehead.streams import stream
from tapehead.tasks import make_task


def oracle(inputs, width, outputs):
    """Reads the vectors up to the delimiter, and says what must be answered."""
    seen, t = [], 0
    while inputs[t][width] == 0:
        seen.append(inputs[t][:width])
        t += 1
    assert inputs[t] == [0.0] * width + [1.0] + [0.0] * (len(inputs[t]) - width - 1)
    assert all(not any(later) for later in inputs[t + 1 :])
    silent = [[0.0] * outputs for _ in range(t + 1)]
    answer = [vector + [0.0] * (outputs - width) for vector in seen]
    return silent + answer, [0.0] * (t + 1) + [1.0] * len(seen)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {}),
        ({"width": 3, "length": (2, 5)}, {}),
        ({"paper_channels": True}, {}),
        ({}, {"length": 1}),
        ({}, {"length": (30, 33)}),
    ],
)
def test_oracle(options, sizes):
    task = make_task("copy", **options)
    batch = task.sample(stream(1, "t", 2), batch_size=12, **sizes)
    for inputs, targets, mask in rows_of(batch):
        assert (targets, mask) == oracle(inputs, task.width, task.output_size)
        assert len(inputs) == 2 * sum(mask) + 1


def test_addressing():
    check_addressing(make_task("copy"))
    check_addressing(make_task("copy"), length=(1, 3))


def test_distribution():
    batch = make_task("copy").sample(stream(1, "t", range(20)), batch_size=200)
    lengths = (batch.lengths - 1) // 2
    check_uniform(lengths, 1, 20)
    check_fair(batch.targets[batch.mask > 0])


def test_channels():
    assert (make_task("copy").input_size, make_task("copy").output_size) == (9, 8)
    paper = make_task("copy", paper_channels=True)
    assert (paper.input_size, paper.output_size) == (10, 9)  # Table 3
    plain = make_task("copy").sample(stream(1, "t", 0), batch_size=3)
    padded = paper.sample(stream(1, "t", 0), batch_size=3)
    assert torch.equal(padded.inputs[..., :9], plain.inputs)
    assert not padded.inputs[..., 9].any()
    assert torch.equal(padded.targets[..., :8], plain.targets)
    assert not padded.targets[..., 8].any()


def test_numbers():
    task = make_task("copy")
    assert task.chance_bits == 84
    assert task.solved_bits == 0.1
    assert not task.paired
    assert [task.label(sizes) for sizes in task.generalisation] == [f"Length {n}" for n in (10, 20, 30, 50, 120)]
    assert task.label({}) == "Length 1 to 20"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0, but needs 1 <= low"),
        ({"length": (5, 3)}, "length is 5 to 3"),
        ({"length": 2.5}, "length is 2.5, but it must be a whole number or a list of 2"),
        ({"length": (1, 2, 3)}, "must be a whole number or a list of 2"),
        ({"width": 0}, "width is 0, but it must be"),
        ({"lenght": 3}, "unknown option of copy 'lenght'. Did you mean 'length'?"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        make_task("copy", **options)


def test_bad_calls():
    task, source = make_task("copy"), stream(1, "t", 0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        task.sample(source, batch_size=0)
    with pytest.raises(ValueError, match=r"unknown size of copy 'lengths'\. Did you mean 'length'"):
        task.sample(source, batch_size=1, lengths=3)
    with pytest.raises(ValueError, match=r"unknown task 'cpoy'\. Did you mean 'copy'"):
        make_task("cpoy")


def test_registry_is_read_without_torch():
    code = "import sys, tapehead.registry; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for name in TASKS:
        assert make_task(name).name == name


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(TASKS))
def test_gpu_samples_the_same_batches(name):
    task = make_task(name)
    here = task.sample(stream([1, 2], "t", range(50)), batch_size=8)
    there = task.sample(stream([1, 2], "t", range(50), device="cuda"), batch_size=8)
    for mine, theirs in zip(here, there, strict=True):
        assert torch.equal(mine, theirs.cpu())
