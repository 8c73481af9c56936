"""Searches for the sub-layers that a draft should skip: the set of the greatest value of an objective.

random      sets drawn uniformly, none twice
bayesian    a Gaussian process over the bits, greatest upper confidence bound next (the way of Self-SD, Zhang et al.
            2024, "Draft & Verify")
swift       random sets, every 25th from the Gaussian process, from a start that skips odd layers, until the value is
            high enough or has not risen for long (the way of SWIFT, Xia et al. 2025)
all         every set, where there are few

What they maximise is in objectives.py; they call it once for each set. All draw from a generator of their own.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers import gaussian

Objective = Callable[[SkipSet], float]
Tick = Callable[[str, int, int], None]
"""tick(doing, done, of): how far something is."""
Generator = np.random.Generator
Bits = tuple[int, ...]
"""One for each free sub-layer: whether it is skipped."""

KAPPA = 2.5
"""Standard deviations that an upper confidence bound is above the mean."""
FIRST_RANDOM = 5
"""Sets drawn at random before a Gaussian process is fitted."""
POOL = 1024
"""Sets of which the most promising is taken, where there are too many to look at all."""
FEW_SETS = 4096
BAYESIAN_EVERY = 25
GOOD_ENOUGH = 0.95
PATIENCE = 300


@dataclasses.dataclass(frozen=True)
class Space:
    """Sets of sub-layers. free: numbers of those that may be skipped. count: how many are; None for any number."""

    free: tuple[int, ...]
    count: int | None = None

    def __post_init__(self) -> None:
        if not self.free:
            raise ValueError("no sub-layer may be skipped: a model that keeps its first and last layer needs a third.")
        if self.count is not None and not 0 < self.count <= len(self.free):
            raise ValueError(f"{self.count} sub-layers are to be skipped, but 1 to {len(self.free)} may be.")

    @property
    def size(self) -> int:
        """How many sets there are."""
        return 2 ** len(self.free) if self.count is None else math.comb(len(self.free), self.count)

    def check_few(self) -> None:
        """Refuse what is too many to try one by one."""
        if self.size > FEW_SETS:
            raise ValueError(
                f"there are {self.size} sets, but at most {FEW_SETS} are tried one by one: search instead."
            )

    def skip(self, bits: Bits) -> SkipSet:
        return SkipSet.of_numbers(number for number, bit in zip(self.free, bits, strict=True) if bit)

    def everything(self) -> Iterator[Bits]:
        """All sets, those with fewer members first."""
        counts = range(len(self.free) + 1) if self.count is None else [self.count]
        for count in counts:
            for chosen in itertools.combinations(range(len(self.free)), count):
                yield tuple(int(i in chosen) for i in range(len(self.free)))

    def random(self, generator: Generator) -> Bits:
        if self.count is None:
            return tuple(generator.integers(0, 2, len(self.free)).tolist())
        return self._with(generator.permutation(len(self.free))[: self.count].tolist())

    def near(self, bits: Bits, generator: Generator) -> Bits:
        """A set that differs in one member: one more or less, or another one instead."""
        i = int(generator.integers(len(bits)))
        changed = [bit != (place == i) for place, bit in enumerate(map(bool, bits))]
        if self.count is not None:
            others = [place for place, bit in enumerate(bits) if place != i and bit != bits[i]]
            if not others:
                return bits
            j = others[int(generator.integers(len(others)))]
            changed[j] = not changed[j]
        return tuple(map(int, changed))

    def odd_layers(self) -> Bits:
        """The set that skips odd layers as far as it may, and then others from the first on."""
        order = sorted(range(len(self.free)), key=lambda i: ((self.free[i] - 1) // 2 % 2 == 0, i))
        odd = sum((number - 1) // 2 % 2 for number in self.free)
        return self._with(order[: odd if self.count is None else self.count])

    def _with(self, chosen: list[int]) -> Bits:
        return tuple(int(i in chosen) for i in range(len(self.free)))


def middle_layers(layers: int, share: float | None = None) -> Space:
    """Sets that keep the first and the last layer. share: of the sub-layers in between, how many are skipped."""
    free = tuple(range(3, 2 * layers - 1))
    if share is None:
        return Space(free)
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, but it must be above 0 and at most 1.")
    return Space(free, max(1, int(len(free) * share)))


class Step(NamedTuple):
    skip: SkipSet
    value: float


class Search(NamedTuple):
    """Every set that was tried, in order."""

    steps: list[Step]

    @property
    def best(self) -> Step:
        """The first of the greatest value."""
        return max(self.steps, key=lambda step: step.value)

    def best_after(self) -> list[float]:
        """The greatest value so far after each step."""
        return list(itertools.accumulate((step.value for step in self.steps), max))


class _Tried:
    """Sets and their values, each asked for once."""

    def __init__(self, space: Space, objective: Objective, seed: int) -> None:
        self.space, self._objective = space, objective
        self.generator = np.random.default_rng(seed)
        self.values: dict[Bits, float] = {}

    def take(self, bits: Bits) -> float:
        value = float(self._objective(self.space.skip(bits)))
        self.values[bits] = value
        return value

    def fresh(self) -> Bits:
        """A random set that was not tried yet."""
        for _ in range(20):
            bits = self.space.random(self.generator)
            if bits not in self.values:
                return bits
        if self.space.size > FEW_SETS:
            return bits
        left = [bits for bits in self.space.everything() if bits not in self.values]
        return left[int(self.generator.integers(len(left)))]

    def promising(self) -> Bits:
        """The set with the greatest upper confidence bound of those not tried yet, or of a pool of them."""
        if self.space.size <= FEW_SETS:
            pool = [bits for bits in self.space.everything() if bits not in self.values]
        else:
            leaders = sorted(self.values, key=lambda bits: -self.values[bits])[:5]
            near = [self.space.near(leader, self.generator) for leader in leaders for _ in range(POOL // 10)]
            drawn = near + [self.space.random(self.generator) for _ in range(POOL // 2)]
            pool = [bits for bits in dict.fromkeys(drawn) if bits not in self.values] or [self.fresh()]
        process = gaussian.fit(torch.tensor(list(self.values)), torch.tensor(list(self.values.values())))
        mean, deviation = process.predict(torch.tensor(pool))
        return pool[int((mean + KAPPA * deviation).argmax())]

    def search(self) -> Search:
        return Search([Step(self.space.skip(bits), value) for bits, value in self.values.items()])


def counted(objective: Objective, doing: str, of: int, tick: Tick | None) -> Objective:
    """An objective that tells `tick` of each set; `of` is how many there are at most."""
    done = itertools.count(1)

    def value_of(skip: SkipSet) -> float:
        value = objective(skip)
        if tick is not None:
            tick(doing, next(done), of)
        return value

    return value_of


def _check(evaluations: int) -> None:
    if evaluations < 1:
        raise ValueError(f"evaluations is {evaluations}, but a search needs at least 1.")


def random_search(space: Space, objective: Objective, evaluations: int, seed: int = 0) -> Search:
    _check(evaluations)
    tried = _Tried(space, objective, seed)
    for _ in range(min(evaluations, space.size)):
        tried.take(tried.fresh())
    return tried.search()


def bayesian_search(space: Space, objective: Objective, evaluations: int, seed: int = 0) -> Search:
    _check(evaluations)
    tried = _Tried(space, objective, seed)
    for i in range(min(evaluations, space.size)):
        tried.take(tried.fresh() if i < FIRST_RANDOM else tried.promising())
    return tried.search()


def swift_search(
    space: Space, objective: Objective, evaluations: int = 1000, seed: int = 0, good_enough: float = GOOD_ENOUGH
) -> Search:
    """Stops early at a value of `good_enough`, or after PATIENCE sets without a better one."""
    _check(evaluations)
    tried = _Tried(space, objective, seed)
    best, since = tried.take(space.odd_layers()), 0
    for i in range(1, min(evaluations, space.size)):
        if best >= good_enough or since >= PATIENCE:
            break
        value = tried.take(tried.promising() if i % BAYESIAN_EVERY == 0 else tried.fresh())
        best, since = (value, 0) if value > best else (best, since + 1)
    return tried.search()


def all_sets(space: Space, objective: Objective, evaluations: int | None = None, seed: int = 0) -> Search:
    """Every set of the space."""
    space.check_few()
    tried = _Tried(space, objective, seed)
    for bits in space.everything():
        tried.take(bits)
    return tried.search()


SEARCHES: dict[str, Any] = {
    "random": random_search,
    "bayesian": bayesian_search,
    "swift": swift_search,
    "all": all_sets,
}
