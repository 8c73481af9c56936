"""Addressed randomness: what is drawn depends on (seed, name, step, row) and on nothing else.

A generator with a state has to be saved, restored and shared; a counter-based one is a pure function of an address.
This is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) in torch's int64 arithmetic,
so a CPU and a GPU give the same bits. Batch 7,301 of seed 3 is the same drawn alone or in a block of updates:

    key     = first two words of Philox(key=seed, counter=(crc32(name), 0, 0, 0))
    counter = (draw << 24 | block, row, step mod 2^32, step div 2^32)

One block is four 32-bit words. The calls of a sampler are numbered by `draw` and each has its own blocks, so the words
at the front of a draw do not depend on how many are asked for: a row is not changed by the padding of its neighbours.

Shapes: K steps, S seeds; `lead` is (K, S), less the dimension of whichever was given as a plain int.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from numbers import Integral
from operator import index
from typing import Any

import torch
from torch import Tensor

from tapehead import checks

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
BLOCK_BITS = 24  # of counter word 0; the 8 above them number the draws

Address = int | Sequence[int] | Tensor


def key_schedule(key: Tensor) -> Tensor:
    """The keys of all rounds.   key [2, ...] of 32-bit words -> [ROUNDS, 2, ...]"""
    ones = [1] * (key.dim() - 1)
    rounds = torch.arange(ROUNDS, device=key.device).view(-1, 1, *ones)
    weyl = torch.tensor(WEYL, device=key.device).view(1, 2, *ones)
    return (key + rounds * weyl) & WORD


def philox(even: Tensor, odd: Tensor, schedule: Tensor) -> tuple[Tensor, Tensor]:
    """Ten rounds on the counter words (0, 2) = even [2, ...] and (1, 3) = odd [2, ...]; words 0..3 in the same places.

    Both multiplications of a round are one operation, as the pair lies in the first dimension. Products wrap modulo
    2^64, and the high bits that int64 calls a sign are masked away.
    """
    multipliers = _multipliers(even.device).view(2, *[1] * (even.dim() - 1))
    for key in schedule.unbind(0):
        product = (even * multipliers).flip(0)
        even = ((product >> 32) ^ odd ^ key) & WORD
        odd = product  # its high half is dropped by the mask above, one round later
    return even, odd & WORD


@lru_cache(maxsize=8)
def _multipliers(device: torch.device) -> Tensor:
    return torch.tensor(MULTIPLIERS, device=device)


@lru_cache(maxsize=256)
def _schedule(seeds: tuple[int, ...], name: str, device: torch.device) -> Tensor:
    """The key schedules of all seeds for one name, [ROUNDS, 2, S]. Mixed on the CPU, once."""
    key = torch.tensor([[seed & WORD for seed in seeds], [seed >> 32 for seed in seeds]], device="cpu")
    even = torch.tensor([[zlib.crc32(name.encode())], [0]], device="cpu")
    first, second = philox(even, torch.zeros_like(even), key_schedule(key))
    return key_schedule(torch.stack([first[0], second[0]])).to(device)


class Stream:
    """The random numbers at one address, or at a grid of (steps, seeds). Made by `stream`.

    Successive calls are successive draws; `rewind` gives the same address from its first draw again.
    """

    def __init__(self, steps: Tensor, schedule: Tensor, lead: tuple[int, ...]) -> None:
        """steps [2, ...] (low and high words) and schedule [ROUNDS, 2, ...], where `...` broadcasts to `lead`."""
        self.lead = lead
        self.device = steps.device
        self._steps = steps
        self._schedule = schedule
        self._draw = 0

    def rewind(self) -> "Stream":
        """The same address, at its first draw."""
        return Stream(self._steps, self._schedule, self.lead)

    def words(self, rows: int, n: int) -> Tensor:
        """int64 in [0, 2^32), [*lead, rows, n]."""
        rows, n = checks.whole("rows", rows, 0), checks.whole("n", n, 0, 2**40)
        blocks = (n + 3) // 4
        if blocks >> BLOCK_BITS:
            raise ValueError(f"{n} words are more than one draw holds: ask for fewer than {4 << BLOCK_BITS}.")
        checks.affordable("random words", prod(self.lead) * rows * 4 * blocks)
        if self._draw >> 8:
            raise ValueError(f"draw {self._draw} is one too many: an address has 256, and `rewind` starts again.")
        block = torch.arange(blocks, device=self.device) + (self._draw << BLOCK_BITS)
        row = torch.arange(rows, device=self.device).unsqueeze(-1)
        self._draw += 1
        low, high = self._steps.unsqueeze(-1).unsqueeze(-1).unbind(0)  # [K or 1, S or 1, 1, 1]
        even = torch.stack((block.expand(*low.shape[:-1], blocks), low.expand(*low.shape[:-1], blocks)))
        odd = torch.stack((row.expand(*high.shape[:-2], rows, 1), high.expand(*high.shape[:-2], rows, 1)))
        even, odd = philox(even, odd, self._schedule.unsqueeze(-1).unsqueeze(-1))
        four = torch.stack((even[0], odd[0], even[1], odd[1]), dim=-1)
        return four.flatten(-2)[..., :n]

    def bits(self, rows: int, n: int) -> Tensor:
        """Fair bits as float32 zeros and ones, [*lead, rows, n]; 32 from each word, the lowest first."""
        words = self.words(rows, (n + 31) // 32)
        places = torch.arange(32, device=self.device)
        return ((words.unsqueeze(-1) >> places) & 1).flatten(-2)[..., :n].float()

    def uniform(self, rows: int, n: int, *, precision: int = 53) -> Tensor:
        """Float64 in [0, 1), [*lead, rows, n]: multiples of 2^-53, or of 2^-24 (which float32 holds exactly)."""
        if precision == 24:
            return (self.words(rows, n) >> 8).double() * 2.0**-24
        if precision != 53:
            raise ValueError(f"precision {precision} is not a number of bits that uniform knows: give 24 or 53.")
        words = self.words(rows, 2 * n)
        high, low = words[..., 0::2] >> 5, words[..., 1::2] >> 6
        return ((high << 26) | low).double() * 2.0**-53

    def integers(self, rows: int, n: int, low: int | Tensor, high: int | Tensor) -> Tensor:
        """int64 in {low..high}, both included, [*lead, rows, n]. Tensor bounds are per row, [*lead, rows].

        By multiply and shift, low + (word * span >> 32), without rejection: a value's probability is off by at most
        2^-32, far below what any experiment here could see. Spans up to 2^31.
        """
        if isinstance(low, int) and isinstance(high, int):
            if not 0 <= high - low < 2**31:
                raise ValueError(f"{{{low}..{high}}} is not a range to draw from: it needs 1 to 2^31 values.")
            if low == high:
                self._draw += 1  # numbered like any other draw, so that later ones do not move
                return torch.full((*self.lead, rows, n), low, device=self.device)
        low = low.unsqueeze(-1) if isinstance(low, Tensor) else low
        high = high.unsqueeze(-1) if isinstance(high, Tensor) else high
        return low + ((self.words(rows, n) * (high - low + 1)) >> 32)


def stream(seed: Address, name: str, step: Address, *, device: torch.device | str | None = None) -> Stream:
    """The stream at (seed, name, step). A sequence, range or 1-d tensor of seeds or steps gives them all at once.

    `lead` is () for two ints, (S,) for S seeds, (K,) for K steps and (K, S) for both: steps, then seeds.
    """
    place = checks.device(device) or torch.get_default_device()
    if place.type == "meta":
        raise ValueError("device is meta, which holds no numbers: give 'cpu' or another.")
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}, but it must be a string.")
    seeds, seed_shape = _addresses(seed, "seed")
    steps, step_shape = _addresses(step, "step")
    words = torch.tensor([[k & WORD for k in steps], [k >> 32 for k in steps]], device=place)
    seed_ones, step_ones = [1] * len(seed_shape), [1] * len(step_shape)
    schedule = _schedule(seeds, name, place).view(ROUNDS, 2, *step_ones, *seed_shape)
    return Stream(words.view(2, *step_shape, *seed_ones), schedule, step_shape + seed_shape)


def _addresses(value: Address, what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ints of a seed or step argument, and the shape that it adds to `lead`."""
    listed: Any = value
    if isinstance(value, Tensor) and not checks.tensor(what, value).is_floating_point():
        listed = value.tolist()
    single = isinstance(listed, Integral)
    try:
        if not single:
            checks.affordable(f"{what}s", len(listed))
        values = (index(listed),) if single else tuple(index(v) for v in listed)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{what} is of type {kind}, but it must be a whole number or several of them.") from None
    if not values:
        raise ValueError(f"no {what} was given: a stream needs one or more.")
    if min(values) < 0 or max(values) >= 2**64:
        wrong = min(values) if min(values) < 0 else max(values)
        raise ValueError(f"{what} {checks.shown(wrong)} is outside 0..2^64 - 1: give a {what} in that range.")
    return values, () if single else (len(values),)
