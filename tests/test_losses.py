"""Losses against formulas in loops, and what does not count in them."""

import math

import pytest
import torch

from tapehead import BINARY, CATEGORICAL, Loss
from tapehead.kernels import dispatch
from tapehead.losses import Binary, Categorical

BUILT_IN = pytest.mark.parametrize("loss", [BINARY, CATEGORICAL], ids=["binary", "categorical"])


def problem(*lead, steps=6, batch=3, size=4, seed=0):
    """Logits, one-hot targets and a mask of zeros, ones and numbers between."""
    source = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(*lead, steps, batch, size, generator=source)
    symbols = torch.randint(size, (*lead, steps, batch), generator=source)
    mask = torch.tensor([0.0, 1.0, 0.25])[torch.randint(3, (*lead, steps, batch), generator=source)]
    return logits, torch.nn.functional.one_hot(symbols, size).float(), mask


def binary_step(logits, targets):
    return -sum(
        math.log(1 / (1 + math.exp(-x))) if bit else math.log(1 - 1 / (1 + math.exp(-x)))
        for x, bit in zip(logits, targets, strict=True)
    )


def categorical_step(logits, targets):
    total = math.fsum(math.exp(x) for x in logits)
    return -sum(weight * math.log(math.exp(x) / total) for x, weight in zip(logits, targets, strict=True))


def binary_wrong(logits, targets):
    return sum((x > 0) != bool(bit) for x, bit in zip(logits, targets, strict=True))


def categorical_wrong(logits, targets):
    return int(logits.index(max(logits)) != targets.index(max(targets)))


def by_loops(step, logits, targets, mask):
    """Sums over the scored steps of each sequence, [T, B, O] -> [B]."""
    rows = zip(logits.tolist(), targets.tolist(), mask.tolist(), strict=True)
    sums = [0.0] * logits.shape[1]
    for x, y, m in rows:
        for b, scored in enumerate(m):
            sums[b] += step(x[b], y[b]) if scored else 0.0
    return torch.tensor(sums, dtype=torch.float64)


@pytest.mark.parametrize(
    ("loss", "cost", "wrong"),
    [(BINARY, binary_step, binary_wrong), (CATEGORICAL, categorical_step, categorical_wrong)],
    ids=["binary", "categorical"],
)
def test_against_loops(loss, cost, wrong):
    logits, targets, mask = problem(2)
    for lead in range(2):
        one = (logits[lead], targets[lead], mask[lead])
        expected = by_loops(cost, *one)
        torch.testing.assert_close(loss.bits(*one), expected / math.log(2), rtol=1e-12, atol=0)
        torch.testing.assert_close(loss.nats(*(t.double() for t in one)), expected, rtol=1e-12, atol=0)
        assert loss.wrong(*one).tolist() == by_loops(wrong, *one).tolist()
    assert torch.equal(loss.bits(logits, targets, mask)[1], loss.bits(logits[1], targets[1], mask[1]))
    assert loss.nats(logits, targets, mask).shape == (2, 3)


def test_how_many_answers_are_asked_for():
    _, targets, mask = problem(2)
    scored = int((mask != 0).sum())
    assert 0 < scored < mask.numel()
    assert BINARY.answers(targets, mask) == 4 * scored
    assert CATEGORICAL.answers(targets, mask) == scored


@BUILT_IN
def test_any_mask_that_is_not_zero_counts_as_one(loss):
    logits, targets, mask = problem()
    for same in (mask != 0, (mask != 0).float(), -3 * mask):
        assert torch.equal(loss.bits(logits, targets, same), loss.bits(logits, targets, mask))


@BUILT_IN
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_steps_that_are_not_scored_do_not_count(loss, bad):
    logits, targets, mask = problem()
    harmed = torch.where(mask.unsqueeze(-1) != 0, logits, bad).requires_grad_()
    assert torch.equal(loss.nats(harmed, targets, mask), loss.nats(logits, targets, mask))
    assert torch.equal(loss.wrong(harmed, targets, mask), loss.wrong(logits, targets, mask))
    (gradient,) = torch.autograd.grad(loss.nats(harmed, targets, mask).sum(), harmed)
    assert gradient.isfinite().all()
    assert not gradient[mask == 0].any()
    assert gradient[mask != 0].any()


@BUILT_IN
def test_a_nan_that_is_scored_counts(loss):
    logits, targets, mask = problem()
    mask[2, 1] = 1.0
    logits[2, 1, 0] = math.nan
    assert loss.bits(logits, targets, mask).isnan().tolist() == [False, True, False]
    logits[:] = math.nan
    assert int(loss.wrong(logits, targets, mask).sum()) == loss.answers(targets, mask)


@BUILT_IN
def test_large_logits_stay_finite(loss):
    _, targets, mask = problem()
    sure = (2 * targets - 1) * 1e4
    assert not loss.bits(sure, targets, mask).any()
    assert not loss.wrong(sure, targets, mask).any()
    assert loss.bits(-sure, targets, mask).isfinite().all()
    each = 4 * 1e4 if loss is BINARY else 2e4 + math.log(3)  # three wrong symbols are equally sure
    expected = (mask != 0).sum(dim=0).double() * each / math.log(2)
    torch.testing.assert_close(loss.bits(-sure, targets, mask), expected, rtol=1e-12, atol=0)


def test_probabilities():
    logits = torch.tensor([[[0.0, math.log(3)]]])
    torch.testing.assert_close(BINARY.probabilities(logits), torch.tensor([[[0.5, 0.75]]]))
    torch.testing.assert_close(CATEGORICAL.probabilities(logits), torch.tensor([[[0.25, 0.75]]]))


def test_targets_of_categories_may_be_weights():
    logits, targets, mask = torch.zeros(1, 1, 4), torch.tensor([[[0.5, 0.25, 0.25, 0.0]]]), torch.ones(1, 1)
    assert CATEGORICAL.bits(logits, targets, mask).item() == pytest.approx(2.0)
    assert CATEGORICAL.wrong(logits, targets, mask).item() == 0  # of equal logits the first counts


@BUILT_IN
def test_shapes_must_agree(loss):
    logits, targets, mask = problem()
    for wrong in ((logits[..., :3], targets, mask), (logits, targets, targets), (logits[0], targets[0], mask[0])):
        with pytest.raises(ValueError, match="do not belong together"):
            loss.bits(*wrong)
    with pytest.raises(TypeError, match="mask"):
        loss.bits(logits, targets, None)


class Squared(Loss):
    """One of one's own, with two numbers for each step."""

    def each(self, logits, targets):
        return (logits - targets)[..., :2] ** 2

    def errors(self, logits, targets):
        return (logits - targets).abs()[..., :2] > 0.5


def test_a_loss_of_ones_own():
    logits, targets, mask = problem()
    expected = (((logits - targets)[..., :2].double() ** 2).sum(-1) * (mask != 0)).sum(0)
    torch.testing.assert_close(Squared().nats(logits, targets, mask).double(), expected, rtol=1e-6, atol=0)
    assert Squared().answers(targets, mask) == 2 * int((mask != 0).sum())
    assert not dispatch.is_fused("cpu", Squared())


def test_only_the_built_in_losses_are_fused():
    assert dispatch.is_fused("cpu", BINARY)
    assert not dispatch.is_fused("reference", BINARY)
    for kind in (Binary, Categorical):
        assert not dispatch.is_fused("cpu", type("Other", (kind,), {})())  # its formulas may be other ones
