"""Which seeds are solved, kept, validated, restarted and retired: every such decision of a run, and the records it
needs.

Legend: S seeds, A active seeds, B batch.

    solved      the mean cost of the last 1,000 judged episodes fell below the task's threshold, in the present attempt
    kept        the weights of the lowest such mean so far or, from the first validation on, of the lowest cost there
    validated   solved machines are scored at the sizes of the validation, some twenty times an attempt
    restarted   a seed begins another attempt, with other weights
    retired     a seed takes no more updates: it is solved and stops early, or its attempts are over

Everything here is on the CPU and small; the weights are in population.py.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tapehead.experiment.config import Experiment
from tapehead.experiment.parts import WINDOW

INFINITE = float("inf")


class Judgement(NamedTuple):
    """What a block of updates leads to, for the active seeds; bools [A]."""

    kept: Tensor
    retired: Tensor


class Seeds:
    """The records of all seeds of a run, by which it is decided what happens to them."""

    RECORDS = (
        *("recent", "kept_cost", "validated", "solved_at", "attempt_solved_at"),
        *("attempts", "begun_at", "skipped", "active"),
    )

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        count = len(experiment.seeds)
        self.recent = torch.full((count, WINDOW), INFINITE, dtype=torch.float64)  # costs in bits, newest last
        self.kept_cost = torch.full((count,), INFINITE, dtype=torch.float64)
        self.validated = torch.zeros(count, dtype=torch.bool)  # whether that cost is one of validation
        self.solved_at = torch.full((count,), -1, dtype=torch.int64)  # episodes, -1: not yet; of the machine kept
        self.attempt_solved_at = self.solved_at.clone()  # of the present attempt
        self.attempts = torch.ones(count, dtype=torch.int64)  # begun
        self.begun_at = torch.zeros(count, dtype=torch.int64)  # updates of the run before the present attempt
        self.skipped = torch.zeros(count, dtype=torch.int64)  # updates that were not finite
        self.active = torch.ones(count, dtype=torch.bool)
        self.index = torch.arange(count)  # of the active seeds, [A]

    def tensors(self) -> dict[str, Tensor]:
        """All records by name, for a checkpoint."""
        return {name: getattr(self, name) for name in self.RECORDS}

    def restored(self) -> None:
        """After the records were set from a checkpoint."""
        self.index = self.active.nonzero().squeeze(-1)

    # --- where seeds are ---------------------------------------------------------------------------------------------

    def done(self, updates: int) -> list[int]:
        """How many updates of its attempt each active seed has behind it when the run has so many."""
        done: list[int] = (updates - self.begun_at[self.index]).tolist()
        return done

    def judged(self, updates: int) -> list[bool]:
        """Whose last update counts: those of a curriculum that ends do not."""
        taught, end = self.experiment.curriculum_updates, self.experiment.updates
        return [not mine <= taught < end for mine in self.done(updates)]

    def changes_at(self, updates: int) -> bool:
        """Whether a seed may be validated, restarted or retired when the run has so many updates."""
        experiment = self.experiment
        turns = (experiment.restart_updates, experiment.updates)
        return experiment.training.early_stop or any(
            experiment.validates_at(mine) or mine in turns for mine in set(self.done(updates))
        )

    def until_restart(self, updates: int) -> list[int]:
        """For each active seed that is before it, the updates until `restarts.after` holds."""
        at = self.experiment.restart_updates
        return [at - mine for mine in self.done(updates) if mine < at]

    @property
    def finished(self) -> bool:
        return not bool(self.active.any())

    @property
    def passed(self) -> Tensor:
        """Which seeds [S] have passed the validation; all, if there is none."""
        return (self.validation_cost < self.experiment.validation.below_bits) | (not self.experiment.validation)

    @property
    def validation_cost(self) -> Tensor:
        """The lowest cost in validation, [S]; infinite for a seed that was never validated."""
        return self.kept_cost.where(self.validated, INFINITE)

    def may_restart(self, updates: int) -> bool:
        """Whether any active seed still can be restarted."""
        index, done = self.index, torch.tensor(self.done(updates))
        left = self.attempts[index] < self.experiment.restarts.attempts
        late = (done < self.experiment.restart_updates) & (self.attempt_solved_at[index] < 0)
        return bool((left & (~self.passed[index] | late)).any())

    def expected(self, updates: int) -> int:
        """Updates of the run when the present attempts are over."""
        under_way = self.begun_at[self.index]
        return int(under_way.max()) + self.experiment.updates if len(under_way) else updates

    # --- what happens to them ----------------------------------------------------------------------------------------

    def record(self, excess: Tensor, skipped: Tensor, updates: int) -> None:
        """After a block: excess [A, episodes of it] in bits over the best possible, skipped updates [A]."""
        ended = self.experiment.curriculum_updates
        steps = excess.shape[1] // self.experiment.training.batch_size
        begins = torch.tensor([0 < mine - steps == ended for mine in self.done(updates)])
        self.recent[self.index[begins]] = INFINITE  # no sequence of a curriculum that has ended counts
        self.skipped[self.index] += skipped
        fresh = torch.where(torch.isfinite(excess), excess, INFINITE)
        self.recent[self.index] = torch.cat([self.recent[self.index], fresh], dim=1)[:, -WINDOW:]

    def judge(self, updates: int) -> Judgement:
        """Note which seeds are solved. Kept are weights at the lowest mean of a full window, before any validation."""
        episodes, index = updates * self.experiment.training.batch_size, self.index
        judged = torch.tensor(self.judged(updates))
        mean = self.recent[index].mean(dim=1).where(judged, INFINITE)  # infinite until a window is full
        solved = (mean < self.experiment.task.solved_bits) & (self.attempt_solved_at[index] < 0)
        self.attempt_solved_at[index[solved]] = episodes
        kept = (mean < self.kept_cost[index]) & ~self.validated[index]
        self._note_kept(kept, mean)
        return Judgement(kept, solved & self.experiment.training.early_stop)

    def due(self, updates: int) -> Tensor:
        """Which active seeds [A] are validated now: where it is time for it, once they are solved."""
        time = torch.tensor([self.experiment.validates_at(mine) for mine in self.done(updates)])
        return time & (self.attempt_solved_at[self.index] >= 0)

    def validate(self, costs: Tensor) -> Tensor:
        """Costs in validation [A], NaN for those that were not validated. Which weights to keep, [A].

        The first of them takes the place of what was kept by its window.
        """
        better = torch.isfinite(costs) & ((costs < self.kept_cost[self.index]) | ~self.validated[self.index])
        self._note_kept(better, costs)
        self.validated[self.index[better]] = True
        return better

    def _note_kept(self, better: Tensor, costs: Tensor) -> None:
        seeds = self.index[better]
        self.kept_cost[seeds] = costs[better]
        self.solved_at[seeds] = self.attempt_solved_at[seeds]

    def ending(self, updates: int) -> tuple[Tensor, Tensor]:
        """Which active seeds [A] are restarted now, and which are retired because their attempts are over."""
        experiment, index = self.experiment, self.index
        if experiment.restarts.attempts == 1:
            none = torch.zeros(len(index), dtype=torch.bool)
            return none, none
        done, passed = torch.tensor(self.done(updates)), self.passed[index]
        over, last = done == experiment.updates, self.attempts[index] == experiment.restarts.attempts
        late = (done == experiment.restart_updates) & (self.attempt_solved_at[index] < 0)
        late &= self.recent[index].mean(dim=1) >= experiment.restarts.above_bits
        return (late | over & ~passed) & ~last, over & (passed | last)

    def restart(self, seeds: Tensor, updates: int) -> None:
        """Seeds, by their places in [S], begin another attempt when the run has so many updates."""
        self.recent[seeds] = INFINITE
        self.attempt_solved_at[seeds] = -1
        self.attempts[seeds] += 1
        self.begun_at[seeds] = updates

    def retire(self, retired: Tensor) -> None:
        """Let some of the active seeds go, retired [A]."""
        self.active[self.index[retired]] = False
        self.index = self.active.nonzero().squeeze(-1)
