"""Copy (section 4.1): see a sequence of random vectors, then say it again.

    time      0    1   ...  L-1    L   L+1  L+2 ...  2L
    bits      v0   v1  ...  v_L-1  0    0    0  ...   0
    delimiter 0    0   ...   0     1    0    0  ...   0
    targets   0    0   ...   0     0    v0   v1 ... v_L-1
    mask      0    0   ...   0     0    1    1  ...   1

T = 2L + 1 steps, W bits a vector: W + 1 input channels (bits, delimiter) and W outputs. From the paper: W = 8, L
uniform in 1..20, and no input while the machine answers.

Table 3's parameter counts imply 10 inputs and 9 outputs, one of each more than the text explains. What those channels
were is unknown; `paper_channels` adds them for the counts' sake, always zero (the output is scored like the others).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

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
class Copy(Task):
    """The copy task.

    length: vectors in a sequence. width: bits in a vector. paper_channels: one unused input and output, as in Table 3.
    density: the share of ones, of which each sequence draws its own; the paper's bits are fair, (0.5, 0.5). blanks:
    the share of vectors that are made all zeros; none in the paper.
    """

    length: Size = (1, 20)
    width: int = 8
    paper_channels: bool = False
    density: Density = FAIR
    blanks: float = 0.0

    name: ClassVar[str] = "copy"
    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    generalisation: ClassVar[tuple[dict[str, int], ...]] = tuple({"length": n} for n in (10, 20, 30, 50, 120))

    def check(self) -> None:
        checks.whole("width", self.width, 1)
        checks.flag("paper_channels", self.paper_channels)
        is_mixture(self.density, self.blanks)
        super().check()

    @property
    def input_size(self) -> int:
        return self.width + 1 + self.paper_channels

    @property
    def output_size(self) -> int:
        return self.width + self.paper_channels

    @property
    def named_inputs(self) -> dict[int, str]:
        return {self.width: "delimiter"} | ({self.width + 1: "unused"} if self.paper_channels else {})

    @property
    def named_outputs(self) -> dict[int, str]:
        return {self.width: "unused"} if self.paper_channels else {}

    @property
    def chance_bits(self) -> float:
        """W E[L]: 8 x 10.5 = 84."""
        return self.width * sum(self.ranges()["length"]) / 2

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        longest = int(lengths.max())
        vectors = random_vectors(draws, rows, longest, self.width, self.density, self.blanks)

        length = lengths.unsqueeze(-2)  # [*lead, 1, B]
        time = clock(2 * longest + 1, draws.device)  # [T, 1]
        answering = (time > length) & (time <= 2 * length)  # [*lead, T, B]

        inputs = with_channels(take_vectors(vectors, time.expand_as(answering), time < length), self.input_size)
        inputs[..., self.width] = time == length
        targets = with_channels(take_vectors(vectors, time - length - 1, answering), self.output_size)
        return Batch(inputs, targets, answering.float(), 2 * lengths + 1)
