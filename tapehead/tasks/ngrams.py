"""Dynamic N-grams (section 4.4): a new random N-gram table for every sequence; predict the next bit.

    time      0    1    2    3   ...  T-1
    bit       0    b0   b1   b2  ...  b_T-2
    targets   b0   b1   b2   b3  ...  b_T-1
    mask      1    1    1    1   ...  1         (scored = "after_context": 0 at the first N - 1 steps)

One input channel and one output, as in Table 3. At step t the machine has seen b_0 .. b_t-1 and predicts b_t, so that
every bit of the sequence is predicted exactly once; the input at t = 0 is a zero.

From the paper: N = 6, T = 200; the 2^(N-1) = 32 probabilities of a one, one for each context of the N - 1 = 5 bits
before, are iid Beta(1/2, 1/2); the first 5 bits are fair. The best possible predictor counts what followed the same
context (Eq. 10). Its mean cost is 132.98 bits over all 200 bits, 127.98 over the last 195, with an sd of 36 bits per
sequence: compare by the paired gap on the same sequences. Not in the paper: how many bits were scored; hence `scored`.

Beta(1/2, 1/2) is sin^2(pi u / 2) with u uniform. The sine is a polynomial of separate float64 products and sums, which
IEEE arithmetic rounds alike everywhere, so a CPU and a GPU draw the same tables. Probabilities are then rounded down to
multiples of 2^-32 and compared with 32-bit words as integers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial, pi
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tapehead import checks
from tapehead.equations import bayes_ngram
from tapehead.streams import Stream
from tapehead.tasks.task import Batch, Range, Size, Task, clock, row_sizes

# sin(x) / x in powers of x^2, highest first. At pi/4 the first term left out is 1e-19.
SINE = tuple((-1) ** k / factorial(2 * k + 1) for k in reversed(range(9)))
MAX_ORDER = 16


@dataclass(frozen=True, kw_only=True)
class NGrams(Task):
    """The dynamic N-grams task.

    length: bits in a sequence. order: N, so that a context has N - 1 bits. scored: "all" bits, or "after_context" those
    without the first N - 1, which cannot be predicted.
    """

    length: Size = 200
    order: int = 6
    scored: Literal["all", "after_context"] = "all"

    name: ClassVar[str] = "ngrams"
    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    solved_bits: ClassVar[float] = 1.0
    paired: ClassVar[bool] = True
    figures: ClassVar[tuple[str, ...]] = ("learning-curve", "predictions", "memory", "links")

    def check(self) -> None:
        checks.whole("order", self.order, 1)
        if self.order > MAX_ORDER:
            raise ValueError(f"order is {self.order}, but tables are drawn up to {MAX_ORDER}: give a smaller one.")
        super().check()

    def check_ranges(self, ranges: Mapping[str, Range]) -> None:
        shortest = ranges["length"][0]
        if self.scored == "after_context" and shortest < self.order:
            raise ValueError(f"length is {shortest}, but nothing is scored before {self.order} bits: give more.")

    @property
    def input_size(self) -> int:
        return 1

    @property
    def output_size(self) -> int:
        return 1

    @property
    def chance_bits(self) -> float:
        """One for every scored bit: 200."""
        return sum(self.ranges()["length"]) / 2 - self._unscored

    @property
    def _unscored(self) -> int:
        return self.order - 1 if self.scored == "after_context" else 0

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        table = arcsine(draws.uniform(rows, 2 ** (self.order - 1)))  # [*lead, B, contexts]
        words = draws.words(rows, int(lengths.max()))
        bits = self._follow((table * 2.0**32).long(), words.movedim(-1, 0).unsqueeze(-1).contiguous())
        bits = bits.squeeze(-1).movedim(0, -2)  # [*lead, T, B]

        time = clock(bits.shape[-2], draws.device)
        inside = time < lengths.unsqueeze(-2)
        targets = (bits & inside).float()
        inputs = torch.zeros_like(targets)
        inputs[..., 1:, :] = targets[..., :-1, :] * inside[..., 1:, :]
        mask = (inside & (time >= self._unscored)).float()
        return Batch(inputs.unsqueeze(-1), targets.unsqueeze(-1), mask, lengths)

    def _follow(self, table: Tensor, words: Tensor) -> Tensor:
        """The bits of a table of integer thresholds [*lead, B, C], driven by words [T, *lead, B, 1]. Bool, as `words`.

        The only loop over time: each bit depends on those before it. A context's newest bit is its lowest.
        """
        bits = words < 2**31  # right for the fair bits in front, overwritten behind them
        context = torch.zeros_like(words[0])
        for t in range(words.shape[0]):
            if t >= self.order - 1:
                torch.lt(words[t], table.gather(-1, context), out=bits[t])
            context = torch.add(bits[t], context, alpha=2).bitwise_and_(table.shape[-1] - 1)
        return bits

    def bayes_predictions(self, bits: Tensor) -> Tensor:
        """The best possible probability of a one at every step, given the bits before it: Eq. 10, and 1/2 at first.

        bits [*lead, T, B] zeros and ones -> float64, same shape. With the steps sorted by context (stably, so by time
        inside one), what came before in the same context is a difference of running sums.
        """
        bits = bits.long().transpose(-1, -2)  # [*lead, B, T]
        known = self.order - 1
        predictions = torch.full(bits.shape, 0.5, dtype=torch.float64, device=bits.device)
        if bits.shape[-1] > known:
            following = bits[..., known:]
            context = torch.zeros_like(following)
            for back in range(known):
                context += bits[..., back : back + following.shape[-1]] << (known - 1 - back)
            predictions[..., known:] = _count_predictions(context, following)
        return predictions.transpose(-1, -2)

    def optimal_bits(self, batch: Batch) -> Tensor:
        """The Bayes predictor's cost on these sequences, in bits over the scored steps, [*lead, B]."""
        bits = batch.targets.squeeze(-1)
        ones = self.bayes_predictions(bits)
        return -(torch.where(bits > 0.5, ones, 1 - ones).log2() * batch.mask).sum(-2)


def _count_predictions(context: Tensor, following: Tensor) -> Tensor:
    """Eq. 10 from the earlier steps with the same context.   context, following [..., T] int64 -> float64"""
    context, order = context.sort(dim=-1, stable=True)
    sorted_bits = following.gather(-1, order)
    place = torch.arange(context.shape[-1], device=context.device).expand_as(context)
    first = torch.ones_like(context, dtype=torch.bool)
    first[..., 1:] = context[..., 1:] != context[..., :-1]
    start = torch.where(first, place, 0).cummax(dim=-1).values  # where this step's context begins
    before = sorted_bits.cumsum(-1) - sorted_bits
    ones = before - before.gather(-1, start)
    zeros = place - start - ones
    sorted_predictions = bayes_ngram(ones.double(), zeros.double())
    return torch.empty_like(sorted_predictions).scatter_(-1, order, sorted_predictions)


def arcsine(u: Tensor) -> Tensor:
    """sin^2(pi u / 2) for float64 u in [0, 1]: a Beta(1/2, 1/2) variable, if u is uniform. The same bits everywhere."""
    x = torch.minimum(u, 1 - u) * (pi / 2)  # at most pi/4; the rest is 1 - sin^2
    square = x * x
    ratio = torch.full_like(x, SINE[0])
    for coefficient in SINE[1:]:
        ratio = ratio * square
        ratio = ratio + coefficient
    sine = x * ratio
    small = sine * sine
    return torch.where(u > 0.5, 1 - small, small)
