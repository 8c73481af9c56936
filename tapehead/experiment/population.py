"""S machines of one configuration side by side, and one update of all of them.

Legend: S seeds, A active seeds, P parameters, K updates of a block, B batch.

A seed's numbers never depend on its neighbours: its data are addressed by its own seed, and neither gradients nor
optimiser mix seeds. So a seed can be retired, and the others go on as if they were alone.
"""

from typing import Any

import torch
from torch import Tensor

from tapehead.experiment.restarts import Seeds
from tapehead.kernels.update.contract import Update, UpdateRule, UpdateState
from tapehead.losses import Loss
from tapehead.models import SequenceModel
from tapehead.streams import Stream, stream
from tapehead.tasks import Batch

EVERYONE = slice(None)


class Population:
    """Parameters and optimiser state of all seeds, those kept, and a working copy of the active ones."""

    def __init__(
        self, model: SequenceModel, loss: Loss, rule: UpdateRule, update: Update, seeds: Seeds, device: torch.device
    ) -> None:
        self.model, self.loss, self.rule, self._update, self.seeds = model, loss, rule, update, seeds
        self.state = UpdateState(rule, model.initial_population(list(seeds.experiment.seeds)).to(device))
        self.kept = self.state.parameters.clone()
        self._choose_working()

    def _choose_working(self) -> None:
        places = self.seeds.index.to(self.state.parameters.device)
        everyone = bool(self.seeds.active.all())  # a view is cheaper than a copy
        self.working = self.state if everyone else self.state.select(places)

    def write_back(self) -> None:
        """Copy the active seeds back into the full state, before that is read."""
        if self.working is not self.state:
            self.state.put(self.seeds.index.to(self.state.parameters.device), self.working)

    def costs_and_gradient(
        self, batch: Batch, slots: Tensor | None, group: slice = EVERYONE, checked: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of the active seeds, or of a group of them: costs [A, B] in nats, gradient [A, P], its squares or None.

        checked: this is one of several updates of one shape, and not the first.
        """
        weights = self.working.parameters[group]
        given: dict[str, Any] = {"slots": slots, "loss": self.loss, "checked": checked}
        if self.model.draws_in_training:
            given["draws"] = self._draws(group)
        return self.model.loss_and_gradient(weights, *batch, **given)

    def _draws(self, group: slice) -> list[Stream]:
        """A stream for each of the active seeds, at its own attempt and number of updates applied."""
        applied, device = self.working.applied.tolist(), self.working.parameters.device
        return [
            stream(self.seeds.experiment.seeds[i], f"training/noise/{int(self.seeds.attempts[i])}", done, device=device)
            for i, done in list(zip(self.seeds.index.tolist(), applied, strict=True))[group]
        ]

    def step(
        self, batch: Batch, slots: Tensor | None, rates: Tensor, group: slice = EVERYONE, checked: bool = False
    ) -> tuple[Tensor, Tensor]:
        """One update, at rates [A]: costs [A, B] in nats, and which seeds [A] were skipped."""
        costs, gradient, squares = self.costs_and_gradient(batch, slots, group, checked)
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

    def keep(self, better: Tensor, weights: Tensor) -> None:
        """Keep the weights [A, P] of some of the active seeds, better [A]. Nothing here waits for a GPU."""
        rows = better.nonzero().squeeze(-1)
        if len(rows):
            places = sent(self.seeds.index[rows], self.kept.device)
            self.kept[places] = weights[sent(rows, weights.device)]

    def retire(self, retired: Tensor) -> None:
        """Let some of the active seeds go, retired [A]."""
        if bool(retired.any()):
            self.write_back()
            self.seeds.retire(retired)
            self._choose_working()

    def restart(self, again: Tensor, updates: int) -> None:
        """Some of the active seeds, again [A], begin another attempt when the run has so many updates."""
        places = self.seeds.index[again]
        if not len(places):
            return
        self.write_back()
        device = self.state.parameters.device
        fresh = [
            self.model.initial_population([self.seeds.experiment.seeds[i]], int(self.seeds.attempts[i]))
            for i in places.tolist()
        ]
        self.state.put(places.to(device), UpdateState(self.rule, torch.cat(fresh).to(device)))
        self.seeds.restart(places, updates)
        self._choose_working()

    def delivered(self) -> Tensor:
        """The weights that a run stands for, [S, P]: the kept ones, or the latest of a seed that has none yet."""
        self.write_back()
        return choose_delivered(self.kept, self.seeds.kept_cost, self.state.weights)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint must hold."""
        self.write_back()
        named = {f"update.{name}": tensor for name, tensor in self.state.tensors(self.rule).items()}
        return named | {"kept": self.kept} | self.seeds.tensors()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        mine = self.tensors()
        shapes, given = ({name: (tuple(t.shape), t.dtype) for name, t in part.items()} for part in (mine, tensors))
        if shapes != given:
            raise ValueError(
                "the checkpoint holds other tensors than this run: it was made by another version of tapehead."
            )
        for name, tensor in mine.items():
            tensor.copy_(tensors[name])
        self.seeds.restored()
        self._choose_working()


def choose_delivered(kept: Tensor, kept_cost: Tensor, latest: Tensor) -> Tensor:
    """Of each seed the weights kept, [S, P], or the latest if there are none yet."""
    return torch.where(torch.isfinite(kept_cost).unsqueeze(-1).to(latest.device), kept, latest)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device, without waiting for what that has been asked for before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
