"""The costs of the paper: per sequence, summed over the scored steps and channels, in bits.

Shapes: logits and targets [*lead, T, B, O], mask [*lead, T, B], results [*lead, B]. Where the mask is zero nothing
counts, whatever the logits are there, NaN included, and no gradient flows.
"""

from math import log

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tapehead import checks
from tapehead.tasks.ngrams import NGrams
from tapehead.tasks.task import Batch


def bits_per_sequence(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy of sigmoid(logits) in bits, [*lead, B], in float64. Finite for every finite logit."""
    scored = _scored(logits, targets, mask)
    counted = torch.where(scored, logits, 0).double()  # before the cost: a NaN would pass through a product with zero
    nats = binary_cross_entropy_with_logits(counted, targets.double(), reduction="none")
    return (nats * scored).sum(dim=(-3, -1)) / log(2)


def wrong_bits(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """How many scored bits are wrong after rounding, int64 [*lead, B]. A logit of 0 rounds to zero; a NaN is wrong."""
    scored = _scored(logits, targets, mask)
    right = torch.where(targets > 0.5, logits > 0, logits <= 0)
    return (scored & ~right).sum(dim=(-3, -1))


def ngram_gap(logits: Tensor, batch: Batch, *, order: int = 6) -> Tensor:
    """The paired gap: the cost above that of the Bayes predictor on the same N-gram sequences, float64 [*lead, B].

    The least possible cost varies so much between sequences (sd 36 bits) that means over different ones do not compare.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"batch is of type {type(batch).__name__}, but it must be a Batch of the N-grams task.")
    if checks.tensor("batch.targets", batch.targets).shape[-1:] != (1,):
        raise ValueError(f"batch.targets has shape {tuple(batch.targets.shape)}, but N-grams have one output channel.")
    return bits_per_sequence(logits, batch.targets, batch.mask) - NGrams(order=order).optimal_bits(batch)


def _scored(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Which places count, as bools [*lead, T, B, 1]; all shapes are checked here."""
    for name, value in (("logits", logits), ("targets", targets), ("mask", mask)):
        checks.tensor(name, value)
    checks.same_device(logits=logits, targets=targets, mask=mask)
    if logits.ndim < 3 or logits.shape != targets.shape or mask.shape != targets.shape[:-1]:
        shapes = f"logits {list(logits.shape)}, targets {list(targets.shape)}, mask {list(mask.shape)}"
        raise ValueError(f"{shapes} do not belong together: give [*lead, T, B, O] twice and [*lead, T, B].")
    return mask.unsqueeze(-1) > 0
