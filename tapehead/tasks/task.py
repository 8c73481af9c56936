"""What a task is: sizes to choose, and a pure function from a random stream to a batch.

Shapes: `lead` the stream's leading dimensions (steps, seeds), T time, B batch, I input channels, O output channels.
Every row of a batch has its own sizes. T is the longest row of the call, and what lies past a row's own length is zero
in inputs, targets and mask: a row's content does not depend on the others.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from operator import index
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from tapehead import checks
from tapehead.losses import BINARY, Loss
from tapehead.streams import Stream, stream
from tapehead.suggest import unknown
from tapehead.typed import Typed, canonical, hints

Range = tuple[int, int]  # both ends included
Size = int | Range  # one size for all rows, or a range from which each row draws its own
Density = tuple[float, float]  # the share of ones among a row's bits is drawn from this range

FAIR: Density = (0.5, 0.5)  # as in the paper


class Batch(NamedTuple):
    """Sequences to learn from. Cost counts where the mask is not zero."""

    inputs: Tensor  # float32 [*lead, T, B, I]
    targets: Tensor  # float32 [*lead, T, B, O], zeros and ones: bits, or one-hot symbols
    mask: Tensor  # float32 [*lead, T, B], one where the targets are scored
    lengths: Tensor  # int64 [*lead, B], each row's number of steps


@dataclass(frozen=True, kw_only=True)
class Task(Typed, ABC):
    """Base of the tasks. Fields named in `limits` are sizes: the training distribution, which `sample` can override.

    One of your own needs `input_size`, `output_size` and `draw`, and states its sizes in `limits`.
    """

    name: ClassVar[str] = ""  # of the class, unless it says another
    limits: ClassVar[Mapping[str, int]] = {}  # the sizes, each with the least that it can be
    loss: ClassVar[Loss] = BINARY
    generalisation: ClassVar[tuple[dict[str, int], ...]] = ({},)  # the sizes to evaluate at; {}: those of training
    solved_bits: ClassVar[float] = 0.1  # a mean training cost under this is "solved"
    figures: ClassVar[tuple[str, ...]] = ("learning-curve", "answers", "memory", "links")  # of a run, by their names
    paired: ClassVar[bool] = False  # whether that cost is the gap to the best possible on the same sequences

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "name" not in cls.__dict__:
            cls.name = re.sub("(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    def check(self) -> None:
        self.ranges()

    @property
    def variety(self) -> str:
        """The task's name, or another one where an option makes it another task, of which other things are asked."""
        return self.name

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Input channels, I."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Output channels, O."""

    @property
    def named_inputs(self) -> dict[int, str]:
        """Input channels with a name of their own, for figures: {8: "delimiter"}."""
        return {}

    @property
    def named_outputs(self) -> dict[int, str]:
        """Output channels with a name of their own."""
        return {}

    @property
    def chance_bits(self) -> float | None:
        """Mean cost, in bits per sequence of training sizes, of answers that know nothing; None if that is not
        known."""
        return None

    def sample(self, stream: Stream, *, batch_size: int, **sizes: Size) -> Batch:
        """The batch at the stream's address: pure in address and sizes, whatever the stream has drawn before."""
        if not isinstance(stream, Stream):
            raise TypeError(f"stream is of type {type(stream).__name__}, but it must be what tapehead.stream returns.")
        rows = checks.whole("batch_size", batch_size, 1)
        return self.draw(stream.rewind(), rows, self.ranges(**sizes))

    def check_draw(self) -> None:
        """Draw a few sequences and refuse a `draw` that breaks its contract, in one sentence that names the task."""
        source, rows, kind = stream(0, f"check/{self.name}", 0), 3, type(self).__name__
        batch, again = (self.sample(source, batch_size=rows) for _ in range(2))
        if not isinstance(batch, tuple) or len(batch) != 4 or not all(isinstance(part, Tensor) for part in batch):
            raise ValueError(
                f"{kind}.draw returned {type(batch).__name__}, but it must return a Batch of four tensors."
            )
        steps = batch.inputs.shape[0]
        shapes = {
            "inputs": (steps, rows, self.input_size),
            "targets": (steps, rows, self.output_size),
            "mask": (steps, rows),
            "lengths": (rows,),
        }
        for name, shape in shapes.items():
            found = tuple(getattr(batch, name).shape)
            if found != shape:
                raise ValueError(f"{kind}.draw gives {name} of shape {found} for {rows} rows, but it must be {shape}.")
        if not all(torch.equal(one, other) for one, other in zip(batch, again, strict=True)):
            raise ValueError(f"{kind}.draw gives other sequences the second time: draw from the stream alone.")
        sums = batch.targets.sum(dim=-1)[batch.mask != 0]
        if self.loss.kernel == "categorical" and bool((sums <= 0).any()):
            raise ValueError(f"{kind}.draw scores a step whose targets are all zero: a symbol's target is one-hot.")

    @abstractmethod
    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        """`rows` sequences from a stream, with every size as a valid range: what `sample` returns.

        Pure in the stream, and a row must not depend on the others: draw what varies in number last, or with `Stream`'s
        functions, whose first words do not depend on how many are asked for.
        """

    def ranges(self, **sizes: Size) -> dict[str, Range]:
        """Every size of the task as a range (low, high): as given here, or else as in training."""
        for name in sizes.keys() - self.limits.keys():
            raise ValueError(unknown(f"size of {self.name}", name, self.limits))
        ranges = {
            size: size_range(size, sizes.get(size, getattr(self, size)), least) for size, least in self.limits.items()
        }
        self.check_ranges(ranges)
        return ranges

    def check_ranges(self, ranges: Mapping[str, Range]) -> None:
        """For limits that involve several sizes."""
        return

    def canonical_sizes(self, sizes: Mapping[str, Any]) -> dict[str, Size]:
        """Sizes in the form that the task's fields have; those that it does not have are refused."""
        fields = hints(type(self))
        own = {name: canonical(sizes[name], fields[name], name) for name in sizes if name in self.limits}
        self.ranges(**{**sizes, **own})
        return own

    def label(self, sizes: Mapping[str, Size]) -> str:
        """Sizes as a heading of a table or picture, "Length 10"; without sizes, those of training."""
        named = sizes or {name: getattr(self, name) for name in self.limits}
        return ", ".join(f"{name.capitalize()} {_readable(size)}" for name, size in named.items())

    def optimal_bits(self, batch: Batch) -> Tensor:
        """The lowest expected cost in bits of any predictor on these sequences, [*lead, B]; zero if nothing is left
        to chance."""
        return torch.zeros(batch.lengths.shape, dtype=torch.float64, device=batch.lengths.device)


def size_range(name: str, size: Size, least: int) -> Range:
    """A size as (low, high), or an error that says what it may be."""
    try:
        low, high = (index(s) for s in (size if isinstance(size, tuple | list) else (size, size)))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is {checks.shown(size)}, which is no size: give a whole number or a pair (low, high)."
        ) from None
    if low < least or high < low or high > checks.MOST:
        limits = f"{least} <= low <= high <= {checks.MOST}"
        given = checks.shown(size) if high > checks.MOST else _readable(size)
        raise ValueError(f"{name} is {given}, but needs {limits}: give such a number or pair.")
    return low, high


def is_mixture(density: Density, blanks: float) -> None:
    """For the shares of ones and of blank vectors."""
    if not 0 <= _share(blanks) < 1:
        raise ValueError(
            f"blanks is {checks.shown(blanks)}, but must be a share of at least 0 and under 1: give 0 for none."
        )
    pair = isinstance(density, tuple | list) and len(density) == 2
    low, high = (_share(share) for share in density) if pair else (1.0, 0.0)
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"density is {checks.shown(density)}, but must be a pair with 0 <= low <= high <= 1: give (0.5, 0.5) for "
            "fair bits."
        )


def _share(value: Any) -> float:
    """NaN, which lies in no range, for what is not a number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else nan


def _readable(size: Size) -> str:
    return f"{size[0]} to {size[1]}" if isinstance(size, tuple | list) else str(size)


def row_sizes(draws: Stream, rows: int, size: Range) -> Tensor:
    """One size per row, [*lead, B]."""
    return draws.integers(rows, 1, *size).squeeze(-1)


def random_vectors(
    draws: Stream, rows: int, count: int, width: int, density: Density = FAIR, blanks: float = 0.0
) -> Tensor:
    """Random bits, [*lead, count, B, width]. The first vectors of a row do not depend on `count`."""
    if tuple(density) == FAIR:
        bits = draws.bits(rows, count * width)
    else:
        low, high = density
        share = low + (high - low) * draws.uniform(rows, 1, precision=24)
        bits = (draws.uniform(rows, count * width, precision=24) < share).float()
    vectors = bits.view(*draws.lead, rows, count, width)
    if blanks:
        vectors = vectors * (draws.uniform(rows, count, precision=24) >= blanks).unsqueeze(-1)
    return vectors.transpose(-3, -2)


def clock(steps: int, device: torch.device) -> Tensor:
    """The time of each step, [T, 1]: it broadcasts against per-row sizes [*lead, 1, B]."""
    return torch.arange(steps, device=device).unsqueeze(-1)


def take_vectors(vectors: Tensor, places: Tensor, where: Tensor) -> Tensor:
    """The vectors at `places` of each row's list, zeros elsewhere.

    vectors [*lead, N, B, W], places and where [*lead, T, B] -> [*lead, T, B, W]
    """
    inside = places.clamp(0, vectors.shape[-3] - 1).unsqueeze(-1)
    return vectors.gather(-3, inside.expand(*inside.shape[:-1], vectors.shape[-1])) * where.unsqueeze(-1)


def with_channels(vectors: Tensor, channels: int) -> Tensor:
    """Vectors [..., W] with channels of zeros behind them, [..., channels]."""
    padded = vectors.new_zeros(*vectors.shape[:-1], channels)
    padded[..., : vectors.shape[-1]] = vectors
    return padded
