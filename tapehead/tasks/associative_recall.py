"""Associative recall (section 4.3): see a list of items, then one of them again, and say the item that followed it.

An item is a run of n = 3 vectors of W = 6 bits. Two items, A and B, where A is asked for (a0 a1 a2 are A's vectors):

    time             0   1   2   3   4   5   6   7   8   9   10  11  12  13  14  15
    bits             0   a0  a1  a2  0   b0  b1  b2  0   a0  a1  a2  0   0   0   0
    item delimiter   1   0   0   0   1   0   0   0   0   0   0   0   0   0   0   0
    query delimiter  0   0   0   0   0   0   0   0   1   0   0   0   1   0   0   0
    targets          0   0   0   0   0   0   0   0   0   0   0   0   0   b0  b1  b2
    mask             0   0   0   0   0   0   0   0   0   0   0   0   0   1   1   1

K items take T = K (n + 1) + 2 + 2n steps; W + 2 input channels and W outputs, which are Table 3's 8 and 6.

From the paper: items bounded left and right by delimiters, 2 to 6 of them in training, a query bounded by another
delimiter, never the last item. Not in the paper: whether neighbouring items share a delimiter; here they do, and the
query's delimiter closes the last item. Not in the paper either: the distributions; the number of items and the query
are uniform here. Items are independent, so two of a list can be equal (2^-18 for a pair); the query is then ambiguous.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from tapehead import checks
from tapehead.streams import Stream
from tapehead.tasks.task import (
    FAIR,
    Batch,
    Density,
    Range,
    Size,
    Task,
    clock,
    is_mixture,
    random_vectors,
    row_sizes,
    take_vectors,
    with_channels,
)


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Task):
    """The associative recall task.

    items: items in a list, at least 2, as the last is never asked for. item_length: vectors in an item. width: bits in
    a vector. density: the share of ones, of which each list draws its own; the paper's bits are fair, (0.5, 0.5). In
    lists of another density items are more alike.
    """

    items: Size = (2, 6)
    item_length: int = 3
    width: int = 6
    density: Density = FAIR

    name: ClassVar[str] = "associative-recall"
    limits: ClassVar[Mapping[str, int]] = {"items": 2}
    generalisation: ClassVar[tuple[dict[str, int], ...]] = tuple({"items": n} for n in (6, 10, 15, 20))

    def check(self) -> None:
        checks.whole("item_length", self.item_length, 1)
        checks.whole("width", self.width, 1)
        is_mixture(self.density, 0.0)
        super().check()

    @property
    def input_size(self) -> int:
        return self.width + 2

    @property
    def output_size(self) -> int:
        return self.width

    @property
    def named_inputs(self) -> dict[int, str]:
        return {self.width: "item", self.width + 1: "query"}

    @property
    def chance_bits(self) -> float:
        """n W: 3 x 6 = 18."""
        return float(self.item_length * self.width)

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        n = self.item_length
        items = row_sizes(draws, rows, sizes["items"])
        query = draws.integers(rows, 1, 0, items - 2).transpose(-1, -2)  # [*lead, 1, B]
        vectors = random_vectors(draws, rows, int(items.max()) * n, self.width, self.density)

        asked = items.unsqueeze(-2) * (n + 1)  # the time of the query's first delimiter, [*lead, 1, B]
        answer = asked + n + 2
        end = answer + n
        time = clock(int(end.max()), draws.device)  # [T, 1]
        listing = time < asked  # [*lead, T, B]
        place = time % (n + 1)  # inside an item of the list, its delimiter first

        listed = (time // (n + 1)) * n + place - 1
        queried = query * n + time - asked - 1
        shown = (listing & (place > 0)) | ((time > asked) & (time < answer - 1))
        inputs = with_channels(take_vectors(vectors, torch.where(listing, listed, queried), shown), self.input_size)
        inputs[..., self.width] = listing & (place == 0)
        inputs[..., self.width + 1] = (time == asked) | (time == answer - 1)
        answering = (time >= answer) & (time < end)
        targets = take_vectors(vectors, (query + 1) * n + time - answer, answering)
        return Batch(inputs, targets, answering.float(), end.squeeze(-2))
