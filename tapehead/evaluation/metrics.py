"""The costs of the paper: per sequence, summed over the scored steps and channels, in bits.

Shapes: logits and targets [*lead, T, B, O], mask [*lead, T, B], results [*lead, B]; with `batch_first` T and B change
places. Where the mask is zero nothing counts, whatever the logits are there, NaN included, and no gradient flows. Other
losses are in tapehead/losses.py.
"""

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.ntm_scan.contract import is_vmapped
from tapehead.losses import BINARY
from tapehead.tasks.ngrams import NGrams
from tapehead.tasks.task import Batch


def bits_per_sequence(logits: Tensor, targets: Tensor, mask: Tensor, *, batch_first: bool = False) -> Tensor:
    """Binary cross-entropy of sigmoid(logits) in bits, [*lead, B], in float64. Finite for every finite logit.

    Targets are the probabilities of a one: of scored steps, those outside 0 to 1 are refused.
    """
    return BINARY.bits(*_time_first(logits, targets, mask, batch_first))


def wrong_bits(logits: Tensor, targets: Tensor, mask: Tensor, *, batch_first: bool = False) -> Tensor:
    """How many scored bits are wrong after rounding, int64 [*lead, B]. A logit of 0 rounds to zero; a NaN is wrong."""
    return BINARY.wrong(*_time_first(logits, targets, mask, batch_first))


def _time_first(logits: Tensor, targets: Tensor, mask: Tensor, batch_first: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The three as [*lead, T, B, ...], if they belong together and the targets are bits."""
    for name, value in (("logits", logits), ("targets", targets), ("mask", mask)):
        checks.tensor(name, value)
    axes = "B, T" if checks.flag("batch_first", batch_first) else "T, B"
    if logits.ndim < 3 or logits.shape != targets.shape or mask.shape != targets.shape[:-1]:
        shapes = f"logits {list(logits.shape)}, targets {list(targets.shape)}, mask {list(mask.shape)}"
        raise ValueError(f"{shapes} do not belong together: give [*lead, {axes}, O] twice and [*lead, {axes}].")
    if not is_vmapped(targets) and not is_vmapped(mask):
        scored = targets.detach()[mask != 0]
        if scored.numel() and not bool(((scored >= 0) & (scored <= 1)).all()):
            low, high = torch.aminmax(scored)
            raise ValueError(
                f"targets run from {float(low):.3g} to {float(high):.3g} where they are scored, but a bit is 0 or 1: "
                "tapehead.CATEGORICAL is the loss of symbols."
            )
    if batch_first:
        return logits.transpose(-3, -2), targets.transpose(-3, -2), mask.transpose(-2, -1)
    return logits, targets, mask


def ngram_gap(logits: Tensor, batch: Batch, *, order: int = 6) -> Tensor:
    """The paired gap: the cost above that of the Bayes predictor on the same N-gram sequences, float64 [*lead, B].

    The least possible cost varies so much between sequences (sd 36 bits) that means over different ones do not compare.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"batch is of type {type(batch).__name__}, but it must be a Batch of the N-grams task.")
    if checks.tensor("batch.targets", batch.targets).shape[-1:] != (1,):
        raise ValueError(f"batch.targets has shape {tuple(batch.targets.shape)}, but N-grams have one output channel.")
    return bits_per_sequence(logits, batch.targets, batch.mask) - NGrams(order=order).optimal_bits(batch)
