"""The costs of the paper: per sequence, summed over the scored steps and channels, in bits.

Shapes: logits and targets [*lead, T, B, O], mask [*lead, T, B], results [*lead, B]. Where the mask is zero nothing
counts, whatever the logits are there, NaN included, and no gradient flows. Other losses are in tapehead/losses.py.
"""

from torch import Tensor

from tapehead import checks
from tapehead.losses import BINARY
from tapehead.tasks.ngrams import NGrams
from tapehead.tasks.task import Batch


def bits_per_sequence(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy of sigmoid(logits) in bits, [*lead, B], in float64. Finite for every finite logit."""
    return BINARY.bits(logits, targets, mask)


def wrong_bits(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """How many scored bits are wrong after rounding, int64 [*lead, B]. A logit of 0 rounds to zero; a NaN is wrong."""
    return BINARY.wrong(logits, targets, mask)


def ngram_gap(logits: Tensor, batch: Batch, *, order: int = 6) -> Tensor:
    """The paired gap: the cost above that of the Bayes predictor on the same N-gram sequences, float64 [*lead, B].

    The least possible cost varies so much between sequences (sd 36 bits) that means over different ones do not compare.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"batch is of type {type(batch).__name__}, but it must be a Batch of the N-grams task.")
    if checks.tensor("batch.targets", batch.targets).shape[-1:] != (1,):
        raise ValueError(f"batch.targets has shape {tuple(batch.targets.shape)}, but N-grams have one output channel.")
    return bits_per_sequence(logits, batch.targets, batch.mask) - NGrams(order=order).optimal_bits(batch)
