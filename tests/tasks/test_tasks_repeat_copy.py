from math import sqrt

import pytest
import torch
from task_checks import check_addressing, check_fair, check_uniform, rows_of

from tapehead.streams import stream
from tapehead.tasks import make_task


def oracle(inputs, width, count, mean, sd):
    """Reads the vectors, the delimiter and the count, and says what must be answered."""
    seen, t = [], 0
    while inputs[t][width] == 0:
        assert inputs[t][width + 1] == 0
        seen.append(inputs[t][:width])
        t += 1
    assert not any(inputs[t][:width])
    if count == "scalar":
        number = inputs[t][width + 1] * sd + mean
        repeats = round(number)
        assert abs(number - repeats) < 1e-5
        t += 1
    else:
        assert inputs[t][width + 1] == 0
        t += 1
        repeats = 0
        while inputs[t] == [0.0] * (width + 1) + [1.0]:
            repeats += 1
            t += 1
    assert all(not any(later) for later in inputs[t:])
    answer = [[*vector, 0.0] for _ in range(repeats) for vector in seen] + [[0.0] * width + [1.0]]
    return [[0.0] * (width + 1)] * t + answer, [0.0] * t + [1.0] * len(answer)


@pytest.mark.parametrize("count", ["scalar", "pulses"])
@pytest.mark.parametrize(
    ("options", "sizes", "mean", "sd"),
    [
        ({}, {}, 5.5, sqrt(8.25)),
        ({"width": 6}, {"length": (1, 4)}, 5.5, sqrt(8.25)),
        ({}, {"length": 2, "repeats": 20}, 5.5, sqrt(8.25)),  # normalised as in training
        ({"repeats": (2, 4), "width": 1}, {"repeats": (1, 9)}, 3.0, sqrt(2 / 3)),
        ({"repeats": 3}, {}, 3.0, 1.0),
    ],
)
def test_oracle(options, sizes, mean, sd, count):
    task = make_task("repeat-copy", count=count, **options)
    batch = task.sample(stream(1, "t", 2), batch_size=10, **sizes)
    for inputs, targets, mask in rows_of(batch):
        assert (targets, mask) == oracle(inputs, task.width, count, mean, sd)


def test_addressing():
    check_addressing(make_task("repeat-copy"))
    check_addressing(make_task("repeat-copy", count="pulses", width=6), repeats=(1, 3))


def test_distribution():
    task = make_task("repeat-copy")
    batch = task.sample(stream(1, "t", range(10)), batch_size=300)
    given = batch.inputs[..., 9].sum(-2)  # the one step that has a count
    repeats = (given * sqrt(8.25) + 5.5).round().long()
    check_uniform(repeats, 1, 10)
    lengths = batch.inputs[..., 8].argmax(-2)
    check_uniform(lengths, 1, 10)
    assert abs(float(given.mean())) < 5 * 3000**-0.5
    assert abs(float(given.var()) - 1) < 0.1
    assert abs(float(torch.corrcoef(torch.stack((repeats.flatten(), lengths.flatten())))[0, 1])) < 5 * 3000**-0.5
    shown = torch.arange(batch.mask.shape[-2]).unsqueeze(-1) < lengths.unsqueeze(-2)
    check_fair(batch.inputs[..., :8][shown])


def test_numbers():
    task = make_task("repeat-copy")
    assert (task.input_size, task.output_size, task.chance_bits) == (10, 9, 242)
    six = make_task("repeat-copy", width=6)
    assert (six.input_size, six.output_size, six.chance_bits) == (8, 7, 181.5)  # Table 3, Figure 7
    assert [task.label(sizes) for sizes in task.generalisation] == [
        "Length 10, Repeat 10",
        "Length 10, Repeat 20",
        "Length 20, Repeat 10",
        "Length 20, Repeat 20",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats is 0"),
        ({"width": -1}, "width is -1"),
        ({"count": "pulse"}, "count is 'pulse', but it must be scalar or pulses"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make_task("repeat-copy", **options)
