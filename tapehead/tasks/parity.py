"""Parity (not in the paper): is the number of ones odd? One answer, at the end.

    time      0    1   ...  L-1    L
    bit       b0   b1  ...  b_L-1  0
    end       0    0   ...   0     1
    targets   0    0   ...   0     (b0 + ... + b_L-1) mod 2
    mask      0    0   ...   0     1

T = L + 1 steps, two input channels (bit, end) and one output.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from tapehead.streams import Stream
from tapehead.tasks.task import Batch, Range, Size, Task, clock, row_sizes


@dataclass(frozen=True, kw_only=True)
class Parity(Task):
    """The parity task. length: bits in a sequence."""

    length: Size = (1, 20)

    name: ClassVar[str] = "parity"
    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    solved_bits: ClassVar[float] = 0.01  # of the one bit that is asked for
    generalisation: ClassVar[tuple[dict[str, int], ...]] = tuple({"length": n} for n in (10, 20, 40, 100))

    @property
    def input_size(self) -> int:
        return 2

    @property
    def output_size(self) -> int:
        return 1

    @property
    def named_inputs(self) -> dict[int, str]:
        return {0: "bit", 1: "end"}

    @property
    def named_outputs(self) -> dict[int, str]:
        return {0: "odd"}

    @property
    def chance_bits(self) -> float:
        return 1.0

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        longest = int(lengths.max())
        drawn = draws.bits(rows, longest).transpose(-1, -2)  # [*lead, L, B]

        length = lengths.unsqueeze(-2)  # [*lead, 1, B]
        time = clock(longest + 1, draws.device)
        bits = torch.cat([drawn, torch.zeros_like(drawn[..., :1, :])], dim=-2) * (time < length)  # [*lead, T, B]
        end = (time == length).float()
        odd = bits.sum(dim=-2, keepdim=True).remainder(2)
        return Batch(torch.stack([bits, end], dim=-1), (odd * end).unsqueeze(-1), end, lengths + 1)
