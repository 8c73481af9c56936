"""Addition (not in the paper): add two binary numbers that are read at the same time, then say the sum.

    time      0    1   ...  L-1    L    L+1  L+2  ...  2L+1
    a         a0   a1  ...  a_L-1  0     0    0   ...   0          lowest bit first
    b         b0   b1  ...  b_L-1  0     0    0   ...   0
    end       0    0   ...   0     1     0    0   ...   0
    targets   0    0   ...   0     0     c0   c1  ...   c_L        a + b, lowest bit first, L + 1 bits
    mask      0    0   ...   0     0     1    1   ...   1

T = 2L + 2 steps, three input channels and one output.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from tapehead.streams import Stream
from tapehead.tasks.task import Batch, Range, Size, Task, clock, row_sizes, take_vectors


@dataclass(frozen=True, kw_only=True)
class Addition(Task):
    """The addition task. length: bits of each number."""

    length: Size = (1, 10)

    name: ClassVar[str] = "addition"
    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    generalisation: ClassVar[tuple[dict[str, int], ...]] = tuple({"length": n} for n in (5, 10, 20, 40))

    @property
    def input_size(self) -> int:
        return 3

    @property
    def output_size(self) -> int:
        return 1

    @property
    def named_inputs(self) -> dict[int, str]:
        return {0: "a", 1: "b", 2: "end"}

    @property
    def named_outputs(self) -> dict[int, str]:
        return {0: "sum"}

    @property
    def chance_bits(self) -> float:
        """E[L] + 1: 6.5."""
        return sum(self.ranges()["length"]) / 2 + 1

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        longest = int(lengths.max())
        drawn = draws.bits(rows, 2 * longest).view(*draws.lead, rows, longest, 2)  # [*lead, B, L, 2]
        length = lengths.unsqueeze(-2)  # [*lead, 1, B]
        place = clock(longest, draws.device)  # [L, 1]
        numbers = drawn.transpose(-3, -2) * (place < length).unsqueeze(-1)  # [*lead, L, B, 2]

        carry, digits = torch.zeros_like(numbers[..., 0, :, 0]), []
        for pair in numbers.unbind(dim=-3):  # [*lead, B, 2]
            total = pair.sum(dim=-1) + carry
            digits.append(total.remainder(2))
            carry = (total >= 2).float()
        total_bits = torch.stack([*digits, carry], dim=-2).unsqueeze(-1)  # [*lead, L + 1, B, 1]

        time = clock(2 * longest + 2, draws.device)
        answering = (time > length) & (time <= 2 * length + 1)  # [*lead, T, B]
        shown = take_vectors(numbers, time.expand_as(answering), time < length)
        inputs = torch.cat([shown, (time == length).float().unsqueeze(-1)], dim=-1)
        return Batch(inputs, take_vectors(total_bits, time - length - 1, answering), answering.float(), 2 * lengths + 2)
