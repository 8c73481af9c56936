"""S machines of one configuration side by side, and one update of all of them.

Legend: S seeds, A active seeds, P parameters, K updates of a block, B batch.

A seed's numbers never depend on its neighbours: its data are addressed by its own seed, and neither gradients nor
optimiser mix seeds. So a seed that is solved can leave, and the others go on as if they were alone.
"""

import torch
from torch import Tensor

from tapehead.kernels.update.contract import Update, UpdateRule, UpdateState
from tapehead.models.sequence import SequenceModel
from tapehead.tasks import Batch, Task
from tapehead.training.config import WINDOW

EVERYONE = slice(None)
ATTEMPTS = ("attempt_solved_at", "attempts", "begun_at", "validated")  # records that older checkpoints do not have


class Population:
    """Parameters, optimiser state and records of all seeds; the active ones also as a working copy."""

    def __init__(
        self, model: SequenceModel, rule: UpdateRule, update: Update, seeds: list[int], device: torch.device
    ) -> None:
        self.model, self.rule, self._update, self._seeds = model, rule, update, seeds
        count = len(seeds)
        self.state = UpdateState(rule, model.initial_population(seeds).to(device))
        self.recent = torch.full((count, WINDOW), float("inf"), dtype=torch.float64)  # newest last
        self.kept = self.state.parameters.clone()
        self.kept_cost = torch.full((count,), float("inf"), dtype=torch.float64)
        self.validated = torch.zeros(count, dtype=torch.bool)  # whether that cost is one of validation
        self.solved_at = torch.full((count,), -1, dtype=torch.int64)  # episodes, -1: not yet; of the machine kept
        self.attempt_solved_at = self.solved_at.clone()  # of the attempt under way
        self.attempts = torch.ones(count, dtype=torch.int64)  # begun
        self.begun_at = torch.zeros(count, dtype=torch.int64)  # the updates before the attempt under way
        self.skipped = torch.zeros(count, dtype=torch.int64)
        self.active = torch.ones(count, dtype=torch.bool)
        self._choose_working()

    def _choose_working(self) -> None:
        self.index = self.active.nonzero().squeeze(-1)
        everyone = bool(self.active.all())
        self._rows = EVERYONE if everyone else self.index  # a view is cheaper than a copy
        places = self.index.to(self.state.parameters.device)
        self.working = self.state if everyone else self.state.select(places)

    def write_back(self) -> None:
        """Bring the working copy home, before the whole state is read."""
        if self.working is not self.state:
            self.state.put(self.index.to(self.state.parameters.device), self.working)

    def costs_and_gradient(
        self, batch: Batch, slots: Tensor | None, group: slice = EVERYONE
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of the active seeds, or of a group of them: costs [A, B] in nats, gradient [A, P], its squares or None."""
        parameters = self.working.parameters[group]
        return self.model.loss_and_gradient(parameters, batch.inputs, batch.targets, batch.mask, batch.lengths, slots)

    def step(self, batch: Batch, slots: Tensor | None, rates: Tensor, group: slice = EVERYONE) -> tuple[Tensor, Tensor]:
        """One update, at rates [A]: costs [A, B] in nats, and which seeds [A] were skipped."""
        costs, gradient, squares = self.costs_and_gradient(batch, slots, group)
        working = self.working if group is EVERYONE else self.working.part(group)
        return costs, self._update(self.rule, working, gradient, costs, rates, squares)

    def snapshot(self) -> UpdateState:
        """A copy of the active seeds' weights and optimiser state."""
        return self.working.clone()

    def put_back_broken(self, before: UpdateState) -> Tensor:
        """Put seeds whose weights or optimiser state are no longer finite back to a snapshot; which they were [A].

        The update refuses costs and gradients that are not finite, but a finite one can overflow, and memory can fail.
        """
        now, then = self.working.tensors(self.rule), before.tensors(self.rule)
        largest = [torch.linalg.vector_norm(t, torch.inf, dim=1) for t in now.values() if t.is_floating_point()]
        broken = ~torch.isfinite(torch.stack(largest)).all(dim=0)
        for name, tensor in now.items():  # without asking whether there are any, which would wait for the device
            torch.where(broken.view(-1, *[1] * (tensor.dim() - 1)), then[name], tensor, out=tensor)
        return broken

    def record(self, excess: Tensor, skipped: Tensor) -> None:
        """After a block: excess [A, episodes of the block] in bits over the best possible; skipped updates [A]."""
        self.skipped[self._rows] += skipped
        fresh = torch.where(torch.isfinite(excess), excess, float("inf"))
        self.recent[self._rows] = torch.cat([self.recent[self._rows], fresh], dim=1)[:, -WINDOW:]

    def forget_window(self, rows: Tensor) -> None:
        """Judge some of the active seeds, rows [A], by what comes from here on."""
        self.recent[self.index[rows]] = float("inf")

    def judge(self, episodes: int, threshold: float, early_stop: bool, weights: Tensor, judged: Tensor) -> None:
        """Note who is solved, keep the weights at the lowest mean of a full window, and let the solved ones go.

        `weights` [A, P] are those after the episodes that were recorded last (the working copy may have gone on);
        judged [A] says who is.
        """
        mean = self.recent[self._rows].mean(dim=1).where(judged, float("inf"))  # infinite until a window is full
        solved = (mean < threshold) & (self.attempt_solved_at[self.index] < 0)
        self.attempt_solved_at[self.index[solved]] = episodes
        self._keep((mean < self.kept_cost[self.index]) & ~self.validated[self.index], mean, weights)
        if early_stop:
            self.leave(solved)

    def keep_validated(self, costs: Tensor, weights: Tensor) -> None:
        """Keep weights [A, P] of the lowest cost in validation; costs [A] are NaN for those that were not validated.

        The first of them takes the place of what was kept by its window.
        """
        better = torch.isfinite(costs) & ((costs < self.kept_cost[self.index]) | ~self.validated[self.index])
        self._keep(better, costs, weights)
        self.validated[self.index[better]] = True

    def _keep(self, better: Tensor, costs: Tensor, weights: Tensor) -> None:
        """Take over the weights of some of the active seeds, better [A]. Nothing here waits for a GPU."""
        rows = better.nonzero().squeeze(-1)
        seeds = self.index[rows]
        if len(rows):
            self.kept[sent(seeds, self.kept.device)] = weights[sent(rows, weights.device)]
            self.kept_cost[seeds] = costs[rows]
            self.solved_at[seeds] = self.attempt_solved_at[seeds]

    @property
    def validation_cost(self) -> Tensor:
        """The lowest cost in validation, [S]; infinite for a seed that was never validated."""
        return self.kept_cost.where(self.validated, float("inf"))

    def leave(self, leaving: Tensor) -> None:
        """Let some of the active seeds go, leaving [A]."""
        if bool(leaving.any()):
            self.write_back()
            self.active[self.index[leaving]] = False
            self._choose_working()

    def begin_again(self, again: Tensor, updates: int) -> None:
        """Some of the active seeds, again [A], begin again with other weights, when so many updates are done."""
        failed = self.index[again]
        if not len(failed):
            return
        self.write_back()
        device = self.state.parameters.device
        fresh = [self.model.initial_population([self._seeds[i]], int(self.attempts[i])) for i in failed.tolist()]
        self.state.put(failed.to(device), UpdateState(self.rule, torch.cat(fresh).to(device)))
        self.recent[failed] = float("inf")
        self.attempt_solved_at[failed] = -1
        self.attempts[failed] += 1
        self.begun_at[failed] = updates
        self._choose_working()

    def delivered(self) -> Tensor:
        """The weights that a run stands for, [S, P]: the kept ones, or those of now for a seed that has none yet."""
        self.write_back()
        latest = self.state.weights
        has_kept = torch.isfinite(self.kept_cost).unsqueeze(-1).to(latest.device)
        return torch.where(has_kept, self.kept, latest)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint must hold."""
        self.write_back()
        named = {f"update.{name}": tensor for name, tensor in self.state.tensors(self.rule).items()}
        records = ("recent", "kept", "kept_cost", "solved_at", "skipped", "active", *ATTEMPTS)
        return named | {name: getattr(self, name) for name in records}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        mine = self.tensors()
        if not any(name in tensors for name in ATTEMPTS):  # of a run that was begun when there were none
            before = {"attempts": self.attempts, "begun_at": self.begun_at, "validated": self.validated}
            before["attempt_solved_at"] = tensors.get("solved_at", self.solved_at)
            tensors = tensors | before
        shapes, given = ({name: tuple(t.shape) for name, t in part.items()} for part in (mine, tensors))
        if shapes != given:
            raise ValueError(
                "the checkpoint holds other tensors than this run: it was made by another version of tapehead."
            )
        for name, tensor in mine.items():
            tensor.copy_(tensors[name])
        self._choose_working()


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, without waiting for what that has been asked for before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def excess_bits(task: Task, batch: Batch, costs: Tensor) -> Tensor:
    """Costs in nats [..., B] as bits over the best possible on the same sequences (zero for all tasks but N-grams)."""
    bits = costs.double() / torch.log(torch.tensor(2.0, dtype=torch.float64))
    return bits - task.optimal_bits(batch).to(bits)
