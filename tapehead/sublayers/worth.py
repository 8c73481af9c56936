"""What each sub-layer of a Transformer is worth: the cost of a task when it alone is skipped."""

import dataclasses

import torch
from torch import Tensor

from tapehead.evaluation.generalisation import score
from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK
from tapehead.models import SequenceModel
from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import NOTHING, SkipSet
from tapehead.sublayers.search import Tick, counted
from tapehead.tasks import Task
from tapehead.typed import Typed

SOURCE = "sublayers"
"""The stream of the sequences: not those of training, validation, evaluation or confirmations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Worth(Typed):
    """Costs in bits per sequence, over the best possible where the task knows it; lists are by layer."""

    whole: float
    """Of the model as it is."""
    attention: tuple[float, ...]
    """With the attention of that layer skipped."""
    mlp: tuple[float, ...]
    """With the MLP of that layer skipped."""
    sequences: int

    @property
    def by_number(self) -> dict[int, float]:
        """What skipping each sub-layer alone adds to the cost, by its number."""
        added = {2 * i + 1: cost - self.whole for i, cost in enumerate(self.attention)}
        added |= {2 * i + 2: cost - self.whole for i, cost in enumerate(self.mlp)}
        return dict(sorted(added.items()))

    def cheapest(self, free: tuple[int, ...], count: int) -> SkipSet:
        """Of the sub-layers `free`, the `count` that add the least, each alone."""
        added = self.by_number
        return SkipSet.of_numbers(sorted(free, key=lambda number: added[number])[:count])


def expect_transformer(model: SequenceModel) -> Transformer:
    if not isinstance(model, Transformer):
        raise ValueError(f"the model is a {type(model).__name__}, but only a Transformer has sub-layers to skip.")
    return model


def measure_worth(model: Transformer, task: Task, sequences: int = 200, tick: Tick | None = None) -> Worth:
    """At the task's training sizes, on the same sequences for every sub-layer."""
    flat = model.flat_parameters().unsqueeze(0)

    def bits(skip: SkipSet) -> float:
        return score(model.skipping(skip), flat, task, {}, sequences, source=SOURCE).costs[0]

    cost = counted(bits, "skipping each alone", 1 + 2 * model.num_layers, tick)
    return Worth(
        whole=cost(NOTHING),
        attention=tuple(cost(SkipSet(attention=(i,))) for i in range(model.num_layers)),
        mlp=tuple(cost(SkipSet(mlp=(i,))) for i in range(model.num_layers)),
        sequences=sequences,
    )


def worth_over_training(
    experiment: Experiment, updates: list[int], sequences: int = 200, tick: Tick | None = None
) -> tuple[dict[int, Worth], Tensor]:
    """Train the first seed of an experiment again, in memory, and measure at so many updates, which are whole blocks.

    By training sequences; and the weights [P] delivered in the end, by which the caller sees that it is the same run.
    """
    wrong = [count for count in updates if count % BLOCK and count != experiment.updates]
    if wrong:
        raise ValueError(f"the sub-layers are to be measured after {wrong[0]} updates, but blocks have {BLOCK}.")
    if experiment.restarts.attempts > 1:
        raise ValueError("the run may restart seeds, but sub-layers are followed over one attempt: give attempts = 1.")
    trainer = Trainer(dataclasses.replace(experiment, seeds=experiment.seeds[:1]))
    model = expect_transformer(trainer.experiment.build())
    found = {}
    while not trainer.finished:
        if trainer.updates in updates:
            found[trainer.episodes] = worth_now(trainer, model, sequences)
        trainer.block()
        if tick is not None:
            tick("training again", trainer.updates, experiment.updates)
    if trainer.updates in updates:
        found[trainer.episodes] = worth_now(trainer, model, sequences)
    return found, trainer.population.delivered()[0].cpu()


def worth_now(trainer: Trainer, model: Transformer, sequences: int) -> Worth:
    """Of the first seed of a run at its present weights, which are loaded into `model`."""
    trainer.population.write_back()
    with torch.no_grad():
        model.load_flat(trainer.population.state.weights[0])
    return measure_worth(model, trainer.task, sequences)
