"""Learning rates over the updates of an attempt."""

import abc
import dataclasses
import math

from tapehead.typed import Typed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(Typed, abc.ABC):
    """A factor of the learning rate for every update. One of your own needs `factor`."""

    @abc.abstractmethod
    def factor(self, update: int, updates: int) -> float:
        """The factor at `update`, counted from 0, of an attempt of so many updates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same rate throughout."""

    def factor(self, update: int, updates: int) -> float:
        return 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """From the learning rate down to `final` times it along half a cosine."""

    final: float = 0.05

    def check(self) -> None:
        if not 0 <= self.final <= 1:
            raise ValueError(f"final is {self.final}, but it is a fraction of the learning rate: 0 to 1.")

    def factor(self, update: int, updates: int) -> float:
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * update / updates))


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupCosine(Cosine):
    """A linear rise to the learning rate over a share of the updates, then the cosine over the rest."""

    warmup: float = 0.05
    """Share of the updates of an attempt."""

    def check(self) -> None:
        super().check()
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is {self.warmup}, but it is a share of the updates: at least 0 and under 1.")

    def factor(self, update: int, updates: int) -> float:
        rising = round(self.warmup * updates)
        if update < rising:
            return (update + 1) / rising
        return super().factor(update - rising, updates - rising)
