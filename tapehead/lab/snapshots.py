"""A machine of the zoo during its training: trained again, which gives the same bits, and saved between blocks."""

from pathlib import Path

import torch
from torch import Tensor

from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import BLOCK
from tapehead.zoo import store
from tapehead.zoo.cards import Card

COUNT = 20
SERIES = ("copy-ntm-lstm",)
"""The machines of the zoo that come with snapshots."""


def milestones(blocks: int, count: int = COUNT) -> list[int]:
    """`count` different numbers from 1 to `blocks`, in equal ratios as far as they go; all if they are fewer."""
    count = min(count, blocks)
    if count < 2:
        return [blocks]
    chosen: list[int] = []
    for i in range(count):
        ideal = round(blocks ** (i / (count - 1)))
        least = chosen[-1] + 1 if chosen else 1
        chosen.append(min(max(ideal, least), blocks - (count - 1 - i)))  # leaves enough for the remaining ones
    return chosen


def take(experiment: Experiment, blocks: list[int]) -> tuple[dict[int, Tensor], Tensor]:
    """Train the one machine of a run, in memory. Its weights [P] at the ends of blocks of the last attempt, by the
    episodes of that attempt; those delivered.

    The weights on the way are the moving average if the run has one: that is what it would have delivered then.
    """
    trainer = Trainer(experiment)
    series: dict[int, Tensor] = {}
    batch = experiment.training.batch_size
    while not trainer.finished:
        done = trainer.updates - int(trainer.seeds.begun_at[0])
        if done == 0:
            series.clear()  # another attempt begins
        before = trainer.updates
        trainer.block()
        done += trainer.updates - before
        if -(-done // BLOCK) in blocks:
            trainer.population.write_back()
            state = trainer.population.state
            latest = state.parameters if state.average is None else state.average
            series[done * batch] = latest[0].detach().cpu().clone()
    return series, trainer.population.delivered()[0].cpu()


def make_snapshots(
    name: str, device: str = "cpu", backend: str = "auto", folder: Path | None = None, count: int = COUNT
) -> Card:
    """Train a machine of the zoo again and keep its weights on the way; refused if it does not become the same one."""
    card = store.card(name, folder)
    model = store.load(name, folder=folder)
    experiment = Experiment.from_plain(card.experiment).with_values({"place.device": device, "place.backend": backend})
    blocks = -(-min(card.episodes, experiment.training.episodes) // (experiment.training.batch_size * BLOCK))
    series, delivered = take(experiment, milestones(blocks, count))
    if not torch.equal(delivered, model.flat_parameters()):
        raise ValueError(
            f"trained again on {device}, {name} has other weights: do it where it was made "
            f"({card.environment['device']}, {card.environment['backend']} backend, torch {card.environment['torch']}, "
            f"tapehead at commit {card.environment['commit']})."
        )
    return store.put_snapshots(name, {episodes: model.split_flat(flat) for episodes, flat in series.items()}, folder)
