from math import log2, pi

import pytest
import torch
from task_checks import check_addressing, check_fair, rows_of

from tapehead.streams import stream
from tapehead.tasks import make_task
from tapehead.tasks.ngrams import arcsine


def counting_loop(bits, order):
    """Eq. 10 with a dictionary of counts."""
    counts, predictions = {}, []
    for t, bit in enumerate(bits):
        if t < order - 1:
            predictions.append(0.5)
            continue
        context = tuple(bits[t - order + 1 : t])
        zeros, ones = counts.get(context, (0, 0))
        predictions.append((ones + 0.5) / (ones + zeros + 1))
        counts[context] = (zeros + (bit == 0), ones + (bit == 1))
    return predictions


@pytest.mark.parametrize(
    ("options", "sizes", "unscored"),
    [({}, {}, 0), ({"scored": "after_context"}, {"length": (20, 30)}, 5), ({"order": 2}, {"length": (1, 9)}, 0)],
)
def test_oracle(options, sizes, unscored):
    batch = make_task("ngrams", **options).sample(stream(1, "t", 2), batch_size=10, **sizes)
    for inputs, targets, mask in rows_of(batch):
        bits = [row[0] for row in targets]
        assert set(bits) <= {0.0, 1.0}
        assert [row[0] for row in inputs] == [0.0, *bits[:-1]]
        assert mask == [0.0] * unscored + [1.0] * (len(bits) - unscored)


@pytest.mark.parametrize("sizes", [{}, {"length": (3, 40)}])
def test_addressing(sizes):
    check_addressing(make_task("ngrams"), **sizes)


@pytest.mark.parametrize("order", [1, 2, 6])
def test_bayes_predictor_counts(order):
    task = make_task("ngrams", order=order)
    batch = task.sample(stream([1, 2], "t", 2), batch_size=4, length=(2, 200))
    predictions = task.bayes_predictions(batch.targets.squeeze(-1))
    costs = task.optimal_bits(batch)
    for s in range(2):
        for b in range(4):
            bits = batch.targets[s, : batch.lengths[s, b], b, 0].tolist()
            expected = counting_loop(bits, order)
            assert predictions[s, : len(bits), b].tolist() == expected
            cost = -sum(log2(p if bit else 1 - p) for p, bit in zip(expected, bits, strict=True))
            assert costs[s, b] == pytest.approx(cost, abs=1e-9)


def test_optimum():
    # 132.98 +- 0.25 over all bits; the first five always cost one bit each.
    task, late = make_task("ngrams"), make_task("ngrams", scored="after_context")
    batch = task.sample(stream(1, "t", 0), batch_size=4000)
    costs = task.optimal_bits(batch)
    error = float(costs.std()) / 4000**0.5
    assert 33 < float(costs.std()) < 39
    assert abs(float(costs.mean()) - 132.98) < 3 * error + 0.25
    after = late.optimal_bits(late.sample(stream(1, "t", 0), batch_size=4000))
    assert torch.allclose(after + 5, costs)


def test_tables_are_beta_one_half():
    """Order 1 has one probability for all bits; its frequency in a long sequence is the arcsine-distributed p."""
    batch = make_task("ngrams", order=1).sample(stream(1, "t", 0), batch_size=2000, length=4000)
    p = batch.targets.mean(dim=(0, 2)).double()
    u = p.sqrt().asin() * (2 / pi)  # uniform again
    counts = torch.histc(u, 10, 0, 1)
    assert float(((counts - 200) ** 2 / 200).sum()) < 33.7  # chi-square, 9 degrees of freedom, 0.9999


def test_every_context_has_its_own_probability():
    """In a long sequence, each context's frequency is stable over time, and differs between contexts and rows."""
    bits = make_task("ngrams", order=3).sample(stream(4, "t", 0), batch_size=200, length=4000).targets.squeeze(-1)
    context, following = bits[:-2] * 2 + bits[1:-1], bits[2:]
    early, later = [], []
    for c in range(4):
        here = context == c
        half = here.cumsum(0) * 2 <= here.sum(0)
        n_early, n_later = (here & half).sum(0), (here & ~half).sum(0)
        often = (n_early > 200) & (n_later > 200)
        early.append(((following * (here & half)).sum(0) / n_early.clamp_min(1))[often])
        later.append(((following * (here & ~half)).sum(0) / n_later.clamp_min(1))[often])
    early, later = torch.cat(early), torch.cat(later)
    assert early.numel() > 300
    assert float((early - later).abs().max()) < 0.2
    assert float(early.std()) > 0.25


def test_first_bits_are_fair():
    batch = make_task("ngrams").sample(stream(1, "t", 0), batch_size=4000, length=5)
    check_fair(batch.targets)


def test_first_bits_are_not_from_the_table():
    """Where a one nearly always follows a zero, the first bit, which follows nothing, is still fair."""
    bits = make_task("ngrams", order=2).sample(stream(1, "t", 0), batch_size=4000, length=100).targets.squeeze(-1)
    after_zero = bits[:-1] == 0
    ones = (bits[1:] * after_zero).sum(0) / after_zero.sum(0).clamp_min(1)
    check_fair(bits[0, (ones > 0.9) & (after_zero.sum(0) > 9)])


def test_arcsine_is_accurate():
    u = torch.cat([torch.linspace(0, 1, 100_001, dtype=torch.float64), torch.tensor([2.0**-53, 1e-9, 1 - 2.0**-53])])
    exact = torch.sin(u * (pi / 2)) ** 2
    assert float((arcsine(u) - exact).abs().max()) < 1e-15
    small = u[(u > 0) & (u < 0.5)]
    relative = arcsine(small) / torch.sin(small * (pi / 2)) ** 2 - 1
    assert float(relative.abs().max()) < 2e-15


def test_numbers():
    task = make_task("ngrams")
    assert (task.input_size, task.output_size, task.chance_bits) == (1, 1, 200)
    assert make_task("ngrams", scored="after_context").chance_bits == 195
    assert task.paired
    assert task.solved_bits == 1.0
    assert [task.label(sizes) for sizes in task.generalisation] == ["Length 200"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order is 0"),
        ({"order": 17}, "order is 17, but tables are drawn up to 16"),
        ({"scored": "after"}, "scored is 'after', but it must be all or after_context"),
        ({"scored": "after_context", "length": 5}, "length is 5, but nothing is scored before 6"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make_task("ngrams", **options)
