"""Every set of skipped sub-layers of a small model, and where each search ends beside the true optimum."""

import dataclasses
from collections.abc import Mapping

from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.sublayers.objectives import Window, agreement, expected_speedup
from tapehead.sublayers.search import (
    Space,
    Tick,
    all_sets,
    bayesian_search,
    counted,
    middle_layers,
    random_search,
    swift_search,
)
from tapehead.typed import Typed

BUDGET = 40
SEEDS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ends(Typed):
    """Where several runs of one search ended."""

    search: str
    best_after: tuple[tuple[float, ...], ...]
    """The best value so far after each set that was tried, for every run."""
    rank: tuple[int, ...]
    """Of the set that a run ended with, among all sets: 1 is the optimum."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contest(Typed):
    """Searches for the same thing."""

    judged_by: str
    sets: int
    optimum: float
    skip: SkipSet
    """A set of that value."""
    ends: tuple[Ends, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Enumeration(Typed):
    """All sets that keep the first and the last layer."""

    layers: int
    skipped: tuple[tuple[int, ...], ...]
    """The numbers of the sub-layers of each set."""
    agreement: tuple[float, ...]
    speedup: tuple[float, ...]
    """Expected, from agreement and the share of sub-layers left."""
    contests: tuple[Contest, ...]


def enumerate_sets(
    model: Transformer,
    window: Window,
    share: float,
    *,
    budget: int = BUDGET,
    seeds: int = SEEDS,
    tick: Tick | None = None,
) -> Enumeration:
    """Try all sets, then run every search on the values found: searches see the same numbers as the enumeration. tick:
    told of the progress."""
    free = middle_layers(model.num_layers)
    found = all_sets(free, counted(lambda skip: agreement(model, skip, window), "trying all sets", free.size, tick))
    agreed = {step.skip: step.value for step in found.steps}
    faster = {skip: expected_speedup(a, 1 - len(skip) / (2 * model.num_layers)) for skip, a in agreed.items()}
    fixed = middle_layers(model.num_layers, share)
    contests = (
        _contest("speedup", free, faster, ("random", "bayesian"), budget, seeds),
        _contest("agreement", fixed, agreed, ("random", "bayesian", "swift"), budget, seeds),
    )
    return Enumeration(
        layers=model.num_layers,
        skipped=tuple(skip.numbers for skip in agreed),
        agreement=tuple(agreed.values()),
        speedup=tuple(faster.values()),
        contests=contests,
    )


def _contest(
    judge: str, space: Space, values: Mapping[SkipSet, float], searches: tuple[str, ...], budget: int, seeds: int
) -> Contest:
    inside = all_sets(space, values.__getitem__)
    ordered = sorted((step.value for step in inside.steps), reverse=True)
    return Contest(
        judged_by=judge,
        sets=space.size,
        optimum=inside.best.value,
        skip=inside.best.skip,
        ends=tuple(_ends(name, space, values, ordered, min(budget, space.size), seeds) for name in searches),
    )


def _ends(
    name: str, space: Space, values: Mapping[SkipSet, float], ordered: list[float], budget: int, seeds: int
) -> Ends:
    search = {"random": random_search, "bayesian": bayesian_search, "swift": swift_search}[name]
    runs = [search(space, values.__getitem__, budget, seed) for seed in range(seeds)]
    return Ends(
        search=name,
        best_after=tuple(tuple(run.best_after()) for run in runs),
        rank=tuple(1 + ordered.index(run.best.value) for run in runs),
    )
