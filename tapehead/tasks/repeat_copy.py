"""Repeat copy (section 4.2): see a sequence and a number, say the sequence that many times, then say that it is over.

With count = "scalar", as in the paper (L = 2 vectors, R = 2 repeats; c the normalised count):

    time       0    1    2    3    4    5    6    7
    bits       v0   v1   0    0    0    0    0    0
    delimiter  0    0    1    0    0    0    0    0
    count      0    0    c    0    0    0    0    0
    targets    0    0    0    v0   v1   v0   v1   0
    marker     0    0    0    0    0    0    0    1
    mask       0    0    0    1    1    1    1    1

T = L + 1 + L R + 1. W bits a vector: W + 2 input channels (bits, delimiter, count), W + 1 outputs (bits, end marker).
The marker is scored, as a zero, at the other answer steps too.

From the paper: L and R uniform in 1..10, the count on its own channel and normalised to mean 0 and variance 1, so that
c = (R - mean) / sd with mean = (low + high) / 2 = 5.5 and sd = sqrt(((high - low + 1)^2 - 1) / 12) = 2.8723. They are
those of the training range, also when more repeats are asked for. If the range holds one number, sd is taken as 1.

The text says eight bits; Table 3 (8 inputs, 7 outputs) and the start of Figure 7 say six. Not in the paper: whether the
delimiter and the count come at one step, as here. Table 3 leaves room for exactly these channels.

Not in the paper: count = "pulses". The delimiter comes alone, then R steps with a one on the count channel, then the
answer: T = L + 1 + R + L R + 1. A machine can count these, where a scalar beyond the training range tells it nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

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
class RepeatCopy(Task):
    """The repeat copy task.

    length: vectors in a sequence. repeats: how often it is to be said. width: bits in a vector (8 in the paper's text,
    6 by its Table 3). count: how the number is given, the paper's "scalar" or "pulses" (not in the paper).
    density: the share of ones, of which each sequence draws its own; the paper's bits are fair, (0.5, 0.5). blanks:
    the share of vectors that are made all zeros; none in the paper.
    """

    length: Size = (1, 10)
    repeats: Size = (1, 10)
    width: int = 8
    count: Literal["scalar", "pulses"] = "scalar"
    density: Density = FAIR
    blanks: float = 0.0

    name: ClassVar[str] = "repeat-copy"
    limits: ClassVar[Mapping[str, int]] = {"length": 1, "repeats": 1}
    generalisation: ClassVar[tuple[dict[str, int], ...]] = (
        {"length": 10, "repeats": 10},
        {"length": 10, "repeats": 20},
        {"length": 20, "repeats": 10},
        {"length": 20, "repeats": 20},
    )

    def check(self) -> None:
        checks.whole("width", self.width, 1)
        is_mixture(self.density, self.blanks)
        super().check()

    @property
    def variety(self) -> str:
        return "repeat-copy-pulses" if self.count == "pulses" else self.name

    @property
    def input_size(self) -> int:
        return self.width + 2

    @property
    def output_size(self) -> int:
        return self.width + 1

    @property
    def named_inputs(self) -> dict[int, str]:
        return {self.width: "delimiter", self.width + 1: "count"}

    @property
    def named_outputs(self) -> dict[int, str]:
        return {self.width: "end"}

    @property
    def chance_bits(self) -> float:
        """W E[L] E[R], the marker being certain: 8 x 5.5 x 5.5 = 242, and 181.5 at six bits."""
        ranges = self.ranges()
        return self.width * sum(ranges["length"]) * sum(ranges["repeats"]) / 4

    def label(self, sizes: Mapping[str, Size]) -> str:
        """As in Figure 8: "Length 10, Repeat 20"."""
        return super().label(sizes).replace("Repeats", "Repeat")

    def normalised(self, repeats: Tensor) -> Tensor:
        """The count as the machine sees it: mean 0 and variance 1 over the training range."""
        low, high = self.ranges()["repeats"]
        sd = (((high - low + 1) ** 2 - 1) / 12) ** 0.5 or 1.0
        return ((repeats.double() - (low + high) / 2) / sd).float()

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        repeats = row_sizes(draws, rows, sizes["repeats"])
        vectors = random_vectors(draws, rows, int(lengths.max()), self.width, self.density, self.blanks)

        length, times = lengths.unsqueeze(-2), repeats.unsqueeze(-2)  # [*lead, 1, B]
        start = length + 1 + (times if self.count == "pulses" else 0)  # of the answer
        end = start + length * times  # where the marker is
        time = clock(int(end.max()) + 1, draws.device)  # [T, 1]
        repeating = (time >= start) & (time < end)  # [*lead, T, B]

        inputs = with_channels(take_vectors(vectors, time.expand_as(repeating), time < length), self.input_size)
        inputs[..., self.width] = time == length
        if self.count == "pulses":
            inputs[..., self.width + 1] = (time > length) & (time < start)
        else:
            inputs[..., self.width + 1] = (time == length) * self.normalised(times)
        targets = with_channels(take_vectors(vectors, (time - start) % length, repeating), self.output_size)
        targets[..., self.width] = time == end
        return Batch(inputs, targets, ((time >= start) & (time <= end)).float(), (end + 1).squeeze(-2))
