"""result.json: what came of a run, typed."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Self

from tapehead.evaluation.generalisation import Score
from tapehead.typed import Typed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result(Typed):
    """What came of a run. Lists have one entry for each seed, in the order of `seeds`; null is what is not finite."""

    recipe: str
    seeds: tuple[int, ...]
    solved_at: tuple[int | None, ...]
    """Episodes until the machine delivered was solved, those of earlier attempts included; null if it was not."""
    episodes: int
    """Training sequences of the seed that had the most."""
    attempts: tuple[int, ...]
    passed: tuple[bool, ...]
    """Whether the machine passed the validation; true where there is none."""
    last_window_bits: tuple[float | None, ...]
    """Mean cost of the last 1,000 episodes."""
    kept_by: Literal["window", "validation"]
    """By what the weights delivered were chosen."""
    kept_bits: tuple[float | None, ...]
    """The mean cost by which the weights delivered were chosen; null for a seed that delivers its last."""
    skipped_updates: tuple[int, ...]
    generalisation: tuple[Score, ...]
    """Scores at the sizes of the evaluation."""
    backend: str
    backend_reason: str
    """Why this backend and not a faster one; empty if there is none."""
    kernel: str
    """Identity of the compiled code."""
    seconds: float | None
    """Wall seconds of training, all sessions together; null if that is not known."""
    sha256: dict[str, str]
    """Of weights, weights delivered, optimiser state and metrics."""

    @property
    def solved(self) -> int:
        """How many seeds are solved."""
        return sum(at is not None for at in self.solved_at)

    def median_seed(self) -> int:
        """The seed whose cost at the largest size is the median of the population: neither the luckiest nor the
        worst."""
        bits = self.generalisation[-1].costs
        order = sorted(range(len(bits)), key=lambda i: bits[i])
        return self.seeds[order[(len(order) - 1) // 2]]

    @classmethod
    def from_plain(cls, values: Mapping[str, Any], where: str = "result.json") -> Self:
        if not isinstance(values["generalisation"], list):
            raise ValueError(f"{where}: generalisation is no list.")
        scores = [Score.from_plain(score, where) for score in values["generalisation"]]
        result = super().from_plain({**values, "generalisation": scores}, where)
        others = [value for name, value in result.__dict__.items() if name != "generalisation"]
        lists = [value for part in (others, *(score.__dict__.values() for score in scores)) for value in part]
        if any(len(value) != len(result.seeds) for value in lists if isinstance(value, tuple)):
            raise ValueError(f"{where} has lists of different lengths.")
        return result
