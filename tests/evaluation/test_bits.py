from math import exp, log2, nan

import pytest
import torch

from tapehead.evaluation.metrics import bits_per_sequence, ngram_gap, wrong_bits
from tapehead.streams import stream
from tapehead.tasks import make_task


def loop_bits(logits, targets, mask):
    """Cost of one row [T, O], one bit at a time."""
    total = 0.0
    for x, y, m in zip(logits.tolist(), targets.tolist(), mask.tolist(), strict=True):
        for logit, bit in zip(x, y, strict=True):
            p = 1 / (1 + exp(-logit))
            total -= m * log2(p if bit else 1 - p)
    return total


@pytest.fixture
def batch():
    return make_task("copy").sample(stream([1, 2], "t", range(3)), batch_size=4)


def noise(batch, scale=3.0):
    return torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(1)) * scale


def test_bits_against_a_loop(batch):
    logits = noise(batch)
    costs = bits_per_sequence(logits, batch.targets, batch.mask)
    assert costs.shape == (3, 2, 4)
    assert costs.dtype == torch.float64
    for k, s, b in [(0, 0, 0), (1, 1, 3), (2, 0, 2)]:
        expected = loop_bits(logits[k, s, :, b], batch.targets[k, s, :, b], batch.mask[k, s, :, b])
        assert float(costs[k, s, b]) == pytest.approx(expected, rel=1e-9)


def test_zero_logits_cost_one_bit_each(batch):
    costs = bits_per_sequence(torch.zeros_like(batch.targets), batch.targets, batch.mask)
    assert torch.allclose(costs, 8 * batch.mask.sum(-2).double())


def test_padding_does_not_count(batch):
    logits = noise(batch)
    poisoned = torch.where(batch.mask.unsqueeze(-1) > 0, logits, nan).requires_grad_()
    costs = bits_per_sequence(poisoned, batch.targets, batch.mask)
    assert torch.equal(costs, bits_per_sequence(logits, batch.targets, batch.mask))
    assert torch.equal(wrong_bits(poisoned, batch.targets, batch.mask), wrong_bits(logits, batch.targets, batch.mask))
    (gradient,) = torch.autograd.grad(costs.sum(), poisoned)
    assert gradient.isfinite().all()
    assert not gradient[batch.mask == 0].any()


def test_scored_nan_does_count(batch):
    logits = torch.full_like(batch.targets, nan)
    assert bits_per_sequence(logits, batch.targets, batch.mask).isnan().all()
    assert torch.equal(wrong_bits(logits, batch.targets, batch.mask), 8 * batch.mask.sum(-2).long())


def test_large_logits_stay_finite(batch):
    sure = (batch.targets * 2 - 1) * 1e4
    assert not bits_per_sequence(sure, batch.targets, batch.mask).any()
    wrong = bits_per_sequence(-sure, batch.targets, batch.mask)
    assert torch.allclose(wrong, 8 * batch.mask.sum(-2).double() * 1e4 * log2(exp(1)))


def test_wrong_bits_are_counted(batch):
    logits = (batch.targets * 2 - 1) * 5
    assert not wrong_bits(logits, batch.targets, batch.mask).any()
    answer = int((batch.mask[1, 0, :, 2] > 0).nonzero()[0])
    logits[1, 0, answer, 2, :3] *= -1
    counts = wrong_bits(logits, batch.targets, batch.mask)
    assert counts.dtype == torch.int64
    assert int(counts[1, 0, 2]) == 3
    assert int(counts.sum()) == 3


@pytest.mark.parametrize("order", [3, 6])
def test_ngram_gap(order):
    task = make_task("ngrams", order=order)
    batch = task.sample(stream(1, "t", range(2)), batch_size=30, length=(50, 200))
    best = torch.logit(task.bayes_predictions(batch.targets.squeeze(-1))).unsqueeze(-1)
    assert torch.allclose(ngram_gap(best, batch, order=order), torch.zeros(2, 30, dtype=torch.float64), atol=1e-9)
    blind = ngram_gap(torch.zeros_like(best), batch, order=order)
    assert torch.allclose(blind + task.optimal_bits(batch), batch.lengths.double())
    assert float(blind.mean()) > 5


def test_shapes_must_agree(batch):
    with pytest.raises(ValueError, match="do not belong together"):
        bits_per_sequence(batch.targets[..., :7], batch.targets, batch.mask)
    with pytest.raises(ValueError, match="do not belong together"):
        wrong_bits(batch.targets, batch.targets, batch.mask.unsqueeze(-1))


def test_batch_first(batch):
    """The same numbers, and a sentence in the axes of the call."""
    logits = 2 * batch.targets - 1
    turned = [logits.transpose(-3, -2), batch.targets.transpose(-3, -2), batch.mask.transpose(-2, -1)]
    for function in (bits_per_sequence, wrong_bits):
        assert torch.equal(function(*turned, batch_first=True), function(logits, batch.targets, batch.mask))
        with pytest.raises(ValueError, match=r"give \[\*lead, B, T, O\] twice and \[\*lead, B, T\]"):
            function(*turned[:2], batch.mask, batch_first=True)
        with pytest.raises(ValueError, match="batch_first is 1"):
            function(*turned, batch_first=1)


def test_targets_that_are_no_bits_are_refused(batch):
    """But not where they are not scored."""
    scored = batch.mask.unsqueeze(-1) != 0
    outside = torch.where(scored, batch.targets, 7.0)
    assert torch.equal(
        bits_per_sequence(batch.targets, outside, batch.mask),
        bits_per_sequence(batch.targets, batch.targets, batch.mask),
    )
    for wrong in (3 * batch.targets, batch.targets - 1, batch.targets + torch.nan):
        with pytest.raises(ValueError, match=r"targets run from .*a bit is 0 or 1.*CATEGORICAL"):
            bits_per_sequence(batch.targets, wrong, batch.mask)
