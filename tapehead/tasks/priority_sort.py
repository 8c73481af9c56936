"""Priority sort (section 4.5): see vectors with priorities, then say those of highest priority, highest first.

Three vectors of which two are wanted, with priorities p1 > p2 > p0:

    time      0    1    2    3    4    5
    bits      v0   v1   v2   0    0    0
    priority  p0   p1   p2   0    0    0
    flag      0    0    0    1    0    0
    targets   0    0    0    0    v1   v2
    mask      0    0    0    0    1    1

N vectors and M outputs take T = N + 1 + M steps; W + 2 input channels (bits, priority, flag) and W outputs, which are
Table 3's 10 and 8. From the paper: N = 20, M = 16, priorities uniform in [-1, 1]. Not in the paper's text: the flag
that ends the input, and W = 8; both follow from Table 3, which has room for one channel more. Not in the paper: ties.

Priorities are multiples of 2^-23 in [-1, 1), which float32 holds exactly: the machine sees what was sorted. Equal
priorities keep the order in which they were shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import torch

from tapehead import checks
from tapehead.streams import Stream
from tapehead.tasks.task import (
    Batch,
    Range,
    Size,
    Task,
    clock,
    random_vectors,
    row_sizes,
    take_vectors,
    with_channels,
)


@dataclass(frozen=True, kw_only=True)
class PrioritySort(Task):
    """The priority sort task.

    items: vectors shown. outputs: vectors asked for, no more than a row shows. width: bits in a vector.
    """

    items: Size = 20
    outputs: Size = 16
    width: int = 8

    name: ClassVar[str] = "priority-sort"
    limits: ClassVar[Mapping[str, int]] = {"items": 1, "outputs": 1}
    generalisation: ClassVar[tuple[dict[str, int], ...]] = ({}, {"items": 30, "outputs": 24})
    solved_bits: ClassVar[float] = 1.0

    def check(self) -> None:
        checks.whole("width", self.width, 1)
        super().check()

    def check_ranges(self, ranges: Mapping[str, Range]) -> None:
        shown, wanted = ranges["items"][1], ranges["outputs"][1]
        if wanted > shown:
            raise ValueError(f"outputs is {wanted}, but items is at most {shown}: give no more outputs than items.")

    @property
    def input_size(self) -> int:
        return self.width + 2

    @property
    def output_size(self) -> int:
        return self.width

    @property
    def named_inputs(self) -> dict[int, str]:
        return {self.width: "priority", self.width + 1: "end"}

    @property
    def chance_bits(self) -> float:
        """W E[M]: 8 x 16 = 128."""
        items, outputs = (range(low, high + 1) for low, high in self.ranges().values())
        return self.width * fmean(min(shown, wanted) for shown in items for wanted in outputs)

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        items = row_sizes(draws, rows, sizes["items"]).unsqueeze(-2)  # [*lead, 1, B]
        outputs = row_sizes(draws, rows, sizes["outputs"]).unsqueeze(-2).minimum(items)
        most = int(items.max())
        vectors = random_vectors(draws, rows, most, self.width)
        priorities = draws.uniform(rows, most, precision=24).transpose(-1, -2) * 2 - 1  # [*lead, N, B]

        end = items + 1 + outputs
        time = clock(int(end.max()), draws.device)  # [T, 1]
        shown = time < items  # [*lead, T, B]
        answering = (time > items) & (time < end)

        priorities = priorities.masked_fill(~shown[..., :most, :], -2.0)  # below all others, where a row has fewer
        ranking = priorities.argsort(dim=-2, descending=True, stable=True)
        place = (time - items - 1).clamp(0, most - 1)
        targets = take_vectors(vectors, ranking.gather(-2, place), answering)

        inputs = with_channels(take_vectors(vectors, time.expand_as(shown), shown), self.input_size)
        inputs[..., :most, :, self.width] = torch.where(shown[..., :most, :], priorities, 0.0).float()
        inputs[..., self.width + 1] = time == items
        return Batch(inputs, targets, answering.float(), end.squeeze(-2))
