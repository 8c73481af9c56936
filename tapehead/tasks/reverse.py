"""Reverse (not in the paper): see a string of symbols, then say it backwards. Answers are symbols, not bits.

    time      0    1   ...  L-1    L    L+1    L+2  ...  2L
    symbol    s0   s1  ...  s_L-1  -     -      -   ...   -        one-hot over K symbols
    delimiter 0    0   ...   0     1     0      0   ...   0
    targets   -    -   ...   -     -   s_L-1  s_L-2 ...   s0       one-hot over K symbols
    mask      0    0   ...   0     0     1      1   ...   1

T = 2L + 1 steps; K + 1 input channels and K outputs, of which each step is one symbol: the loss is categorical.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import ClassVar

from torch.nn.functional import one_hot

from tapehead import checks
from tapehead.losses import CATEGORICAL, Loss
from tapehead.streams import Stream
from tapehead.tasks.task import Batch, Range, Size, Task, clock, row_sizes, take_vectors, with_channels


@dataclass(frozen=True, kw_only=True)
class Reverse(Task):
    """The reversal task.

    length: symbols in a string. symbols: how many different ones there are.
    """

    length: Size = (1, 20)
    symbols: int = 8

    name: ClassVar[str] = "reverse"
    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    loss: ClassVar[Loss] = CATEGORICAL
    generalisation: ClassVar[tuple[dict[str, int], ...]] = tuple({"length": n} for n in (10, 20, 30, 50))

    def check(self) -> None:
        checks.whole("symbols", self.symbols, 2)
        super().check()

    @property
    def input_size(self) -> int:
        return self.symbols + 1

    @property
    def output_size(self) -> int:
        return self.symbols

    @property
    def named_inputs(self) -> dict[int, str]:
        return {self.symbols: "delimiter"}

    @property
    def chance_bits(self) -> float:
        """log2(K) E[L]: 3 x 10.5 = 31.5."""
        return log2(self.symbols) * sum(self.ranges()["length"]) / 2

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        longest = int(lengths.max())
        drawn = draws.integers(rows, longest, 0, self.symbols - 1)  # [*lead, B, L]
        symbols = one_hot(drawn, self.symbols).float().transpose(-3, -2)  # [*lead, L, B, K]

        length = lengths.unsqueeze(-2)  # [*lead, 1, B]
        time = clock(2 * longest + 1, draws.device)  # [T, 1]
        answering = (time > length) & (time <= 2 * length)  # [*lead, T, B]
        inputs = with_channels(take_vectors(symbols, time.expand_as(answering), time < length), self.input_size)
        inputs[..., self.symbols] = time == length
        targets = take_vectors(symbols, 2 * length - time, answering)
        return Batch(inputs, targets, answering.float(), 2 * lengths + 1)
