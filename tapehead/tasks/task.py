"""What a task is: sizes to choose, and a pure function from a random stream to a batch.

Shapes: `lead` the stream's leading dimensions (steps, seeds), T time, B batch, I input channels, O output channels.
Every row of a batch has its own sizes. T is the longest row of the call, and what lies past a row's own length is zero
in inputs, targets and mask: a row's content does not depend on who else is in the batch.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from tapehead.streams import Stream
from tapehead.words import unknown

Range = tuple[int, int]  # both ends included
Size = int | Range  # one size for all rows, or a range from which each row draws its own
Density = tuple[float, float]  # the share of ones among a row's bits is drawn from this range

FAIR: Density = (0.5, 0.5)  # as in the paper


class Batch(NamedTuple):
    """Sequences to learn from. Cost counts where the mask is one."""

    inputs: Tensor  # float32 [*lead, T, B, I]
    targets: Tensor  # float32 [*lead, T, B, O], zeros and ones
    mask: Tensor  # float32 [*lead, T, B], one where the targets are scored
    lengths: Tensor  # int64 [*lead, B], each row's number of steps


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Base of the tasks. Fields named in `limits` are sizes: the training distribution, which `sample` can override."""

    noise: float = 0.0
    """What is added to every input at every step is drawn from within +- this; nothing in the paper."""

    name: ClassVar[str]
    limits: ClassVar[Mapping[str, int]]  # the sizes, each with the least that it can be
    generalisation: ClassVar[tuple[dict[str, int], ...]] = ({},)  # the sizes to evaluate at; {}: those of training
    solved_bits: ClassVar[float] = 0.1  # a mean training cost under this is "solved"
    paired: ClassVar[bool] = False  # whether that cost is the gap to the best possible on the same sequences

    def __post_init__(self) -> None:
        if isinstance(self.noise, bool) or not isinstance(self.noise, int | float) or not 0 <= self.noise < math.inf:
            raise ValueError(f"noise is {self.noise!r}, but must be a number of at least 0: give 0 for none.")
        self.ranges()

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Input channels, I."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Output channels, O."""

    @property
    @abstractmethod
    def chance_bits(self) -> float:
        """Mean cost, in bits per sequence of training sizes, of answering 1/2 for every random bit."""

    def sample(self, stream: Stream, *, batch_size: int, **sizes: Size) -> Batch:
        """The batch at the stream's address: pure in address and sizes, whatever the stream has drawn before."""
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, but a batch has at least 1 row: give a positive number.")
        draws = stream.rewind()
        batch = self._draw(draws, batch_size, self.ranges(**sizes))
        return batch if self.noise == 0 else _with_noise(batch, draws, self.noise)

    @abstractmethod
    def _draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        """`sample`, with every size as a valid range."""

    def ranges(self, **sizes: Size) -> dict[str, Range]:
        """Every size of the task as a range (low, high): as given here, or else as in training."""
        for name in sizes.keys() - self.limits.keys():
            raise ValueError(unknown(f"size of {self.name}", name, self.limits))
        ranges = {
            size: size_range(size, sizes.get(size, getattr(self, size)), least) for size, least in self.limits.items()
        }
        self._check_ranges(ranges)
        return ranges

    def _check_ranges(self, ranges: Mapping[str, Range]) -> None:
        """For limits that involve several sizes."""
        return

    def label(self, sizes: Mapping[str, Size]) -> str:
        """Sizes as a heading of a table or picture, "Length 10"; without sizes, those of training."""
        named = sizes or {name: getattr(self, name) for name in self.limits}
        return ", ".join(f"{name.capitalize()} {_readable(size)}" for name, size in named.items())

    def optimal_bits(self, batch: Batch) -> Tensor:
        """The least cost in bits that a predictor can hope for on these sequences, [*lead, B]; zero if nothing is left
        to chance."""
        return torch.zeros(batch.lengths.shape, dtype=torch.float64, device=batch.lengths.device)


def _with_noise(batch: Batch, draws: Stream, size: float) -> Batch:
    """Uniform noise on the inputs, a byte for each: nothing is rounded but the sum, so any device gives the same."""
    *lead, steps, rows, channels = batch.inputs.shape
    words = draws.words(rows, -(-steps * channels // 4))
    bytes_ = ((words.unsqueeze(-1) >> torch.arange(0, 32, 8, device=words.device)) & 0xFF).flatten(-2)
    noise = (bytes_[..., : steps * channels].float() - 127.5) * (size / 127.5)
    noise = noise.view(*lead, rows, steps, channels).transpose(-3, -2)
    inside = clock(steps, words.device) < batch.lengths.unsqueeze(-2)  # [*lead, T, B]
    return batch._replace(inputs=batch.inputs + noise * inside.unsqueeze(-1))


def size_range(name: str, size: Size, least: int) -> Range:
    """A size as (low, high), or an error that says what it may be."""
    try:
        low, high = (index(s) for s in (size if isinstance(size, tuple | list) else (size, size)))
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {size!r}, which is no size: give a whole number or a pair (low, high).") from None
    if low < least or high < low:
        raise ValueError(f"{name} is {_readable(size)}, but needs {least} <= low <= high: give such a number or pair.")
    return low, high


def at_least(name: str, value: int, least: int) -> None:
    """For options that are plain numbers."""
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}, but must be a whole number of at least {least}: give a larger one.")


def is_mixture(density: Density, blanks: float) -> None:
    """For the shares of ones and of blank vectors."""
    if not (isinstance(blanks, int | float) and 0 <= blanks < 1):
        raise ValueError(f"blanks is {blanks!r}, but must be a share of at least 0 and under 1: give 0 for none.")
    if not (isinstance(density, tuple | list) and len(density) == 2 and 0 <= density[0] <= density[1] <= 1):
        raise ValueError(
            f"density is {density!r}, but must be a pair with 0 <= low <= high <= 1: give (0.5, 0.5) for fair bits."
        )


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """For options that are words."""
    if value not in choices:
        raise ValueError(unknown(name, str(value), choices))


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
