"""What seeds are trained on: sequences of the task or of its curriculum, each seed at its own place in its attempt.

Legend: K updates, S seeds, T steps, B batch. `done` is a number for each seed: the updates of its attempt behind it.
"""

import math

import torch
from torch import Tensor

from tapehead.experiment.config import Experiment
from tapehead.experiment.population import sent
from tapehead.streams import stream
from tapehead.tasks import Batch, Task

STOCKED_STEPS = 4_000_000
"""Steps of all sequences together that are sampled ahead, of tasks with few channels: bounds the memory that they
take."""

FEW_CHANNELS = 32
"""Inputs and outputs of a step together. Of tasks with more, fewer steps are sampled ahead."""

_Stocked = tuple[list[int], list[bool]]
"""Seeds, and which of them are trained on the curriculum: the seeds that a stock of sequences is for."""


class BatchSource:
    """Samples ahead, because that costs the same for one block of updates as for ten.

    What is drawn depends on seed and update alone, so the stock changes nothing but the padding.
    """

    def __init__(self, experiment: Experiment, device: torch.device) -> None:
        self.experiment, self._device = experiment, device
        self.task, self.curriculum = experiment.task, experiment.curriculum_task
        self._channels = max(FEW_CHANNELS, self.task.input_size + self.task.output_size)
        self._stock: tuple[int, _Stocked, Batch, Tensor | None] = (0, ([], []), Batch(*[torch.empty(0)] * 4), None)
        self._longest = STOCKED_STEPS  # steps of a sequence, as seen in the last stock: at first one block at a time
        # a GPU computes padding too, and a product over more steps rounds apart: all updates of a task are as long
        both = (self.task, self.curriculum)
        self._most_steps = tuple(longest_steps(task) if device.type == "cuda" else 0 for task in both)

    def in_curriculum(self, done: list[int]) -> list[bool]:
        """Which seeds are trained on the curriculum in the next update."""
        ends = self.experiment.curriculum_updates
        return [mine < ends for mine in done]

    def unchanged(self, done: list[int]) -> int:
        """For how many updates every seed is trained on the same task as in the next one."""
        ends, end = self.experiment.curriculum_updates, self.experiment.updates
        return min((ends if mine < ends else end) - mine for mine in done)

    def data(self, seeds: list[int], done: list[int], span: range) -> tuple[Batch, Tensor | None]:
        """Sequences [K, S, ...] and memory slots [K, S, B] of the updates `span`, before which so many were done."""
        first, stocked, data, slots = self._stock
        wanted = (seeds, self.in_curriculum(done))
        if stocked != wanted or not first <= span.start < span.stop <= first + len(data.lengths):
            if not {0, self.experiment.curriculum_updates}.isdisjoint(done):
                self._longest = STOCKED_STEPS  # other sequences begin here, and may be longer
            sequences = len(span) * len(seeds) * self.experiment.training.batch_size
            numbers = sequences * self._longest * self._channels
            blocks = max(1, min(10, STOCKED_STEPS * FEW_CHANNELS // numbers))
            ahead = range(span.start, span.start + max(len(span), min(blocks * len(span), self.unchanged(done))))
            first, data, slots = span.start, self.sample(seeds, done, ahead), self.sample_slots(seeds, ahead)
            self._stock = (first, wanted, data, slots)
            self._longest = data.inputs.shape[2]
        there = slice(span.start - first, span.stop - first)
        return Batch(*(part[there] for part in data)), None if slots is None else slots[there]

    def sample(self, seeds: list[int], done: list[int], updates: range) -> Batch:
        def of(task: Task, some: list[int]) -> Batch:
            source = stream(some, f"training/{task.name}", updates, device=self._device)
            batch = task.sample(source, batch_size=self.experiment.training.batch_size)
            if not batch.lengths.is_cuda:  # a GPU would have to be waited for
                check_lengths(task, batch)
            batch = padded(batch, self._most_steps[task is self.curriculum])
            return batch._replace(mask=(batch.mask != 0).to(batch.mask.dtype))  # the kernels take zeros and ones

        classes = self._classes(done)
        if len(classes) == 1:
            return of(classes[0][0], seeds)
        return _side_by_side([(of(task, [seeds[i] for i in rows]), self._sent(rows)) for task, rows in classes])

    def sample_slots(self, seeds: list[int], updates: range) -> Tensor | None:
        training = self.experiment.training
        if training.slots is None:
            return None
        source = stream(seeds, "training/slots", updates, device=self._device)
        return source.integers(training.batch_size, 1, *training.slots).squeeze(-1)  # [K, S, B]

    def excess(self, done: list[int], data: Batch, costs: Tensor) -> Tensor:
        """Costs [K, S, B] in nats as bits over the best possible on these sequences."""
        classes = self._classes(done)
        if len(classes) == 1:
            return excess_bits(classes[0][0], data, costs)
        excess = torch.empty_like(costs, dtype=torch.float64)
        for task, rows in classes:
            there = self._sent(rows)
            excess[:, there] = excess_bits(task, Batch(*(part[:, there] for part in data)), costs[:, there])
        return excess

    def _classes(self, done: list[int]) -> list[tuple[Task, list[int]]]:
        """Tasks, and the places of the seeds that are trained on each in the next update."""
        inside = self.in_curriculum(done)
        places = [
            (task, [i for i, mine in enumerate(inside) if mine is curriculum])
            for task, curriculum in ((self.curriculum, True), (self.task, False))
        ]
        return [(task, rows) for task, rows in places if rows]

    def _sent(self, places: list[int]) -> Tensor:
        return sent(torch.tensor(places), self._device)


def check_lengths(task: Task, batch: Batch) -> None:
    """Refuse lengths that the sequences do not have: the kernels go by them, and do not look again at every update."""
    steps = batch.inputs.shape[-3]
    low, high = (int(bound) for bound in torch.aminmax(batch.lengths))
    if low < 1 or high > steps:
        raise ValueError(
            f"{type(task).__name__}.draw gives lengths from {low} to {high}, but its sequences have 1 to {steps} steps."
        )


def longest_steps(task: Task) -> int:
    """Steps of the longest sequence that a task draws, as far as that is the one of its greatest sizes; 0 if it has
    none of these."""
    greatest = {name: high for name, (_, high) in task.ranges().items()}
    try:
        return task.sample(stream(0, f"longest/{task.name}", 0), batch_size=1, **greatest).inputs.shape[0]
    except ValueError:  # of a task from outside, whose sizes exclude each other
        return 0


def padded(batch: Batch, steps: int) -> Batch:
    """A batch [K, S, T, B, ...] with at least so many steps."""
    more = steps - batch.inputs.shape[2]
    if more <= 0:
        return batch
    zeros = (part.new_zeros(*part.shape[:2], more, *part.shape[3:]) for part in batch[:-1])
    inputs, targets, mask = (torch.cat(both, dim=2) for both in zip(batch[:-1], zeros, strict=True))
    return Batch(inputs, targets, mask, batch.lengths)


def excess_bits(task: Task, batch: Batch, costs: Tensor) -> Tensor:
    """Costs in nats [..., B] as bits over the best possible on the same sequences (zero for all tasks but N-grams)."""
    bits = costs.double() / math.log(2)
    return bits - task.optimal_bits(batch).to(bits)


def _side_by_side(parts: list[tuple[Batch, Tensor]]) -> Batch:
    """Batches [K, some of the seeds, T, B, ...] with the seeds' places, as one of all seeds, padded to the longest."""
    steps = max(batch.inputs.shape[2] for batch, _ in parts)
    seeds = sum(len(rows) for _, rows in parts)
    first = parts[0][0]
    whole = [part.new_zeros(len(part), seeds, steps, *part.shape[3:]) for part in first[:-1]]
    lengths = first.lengths.new_empty(len(first.lengths), seeds, *first.lengths.shape[2:])
    for batch, rows in parts:
        lengths[:, rows] = batch.lengths
        for here, there in zip(whole, batch[:-1], strict=True):
            here[:, rows, : there.shape[2]] = there
    return Batch(whole[0], whole[1], whole[2], lengths)
