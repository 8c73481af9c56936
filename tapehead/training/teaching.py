"""What seeds learn from: sequences of the task or of its curriculum, each seed at its own place in its attempt.

Legend: K updates, S seeds, T steps, B batch. `done` is a number for each seed: the updates of its attempt behind it.
"""

import torch
from torch import Tensor

from tapehead.streams import stream
from tapehead.tasks import Batch, Task, make_task
from tapehead.training.config import RunConfig
from tapehead.training.population import excess_bits, sent

STOCKED_STEPS = 4_000_000
"""Steps of all sequences together that are sampled ahead: bounds the memory that they take."""

_Pupils = tuple[list[int], list[bool]]
"""Seeds, and which of them learn from the curriculum: whom a stock of sequences is for."""


class Teacher:
    """Samples ahead, because that costs the same for one block of updates as for ten.

    What is drawn depends on seed and update alone, so the stock changes nothing but the padding.
    """

    def __init__(self, config: RunConfig, device: torch.device) -> None:
        self.config, self._device = config, device
        self.task: Task = make_task(config.task, **config.task_options)
        self.lessons: Task = make_task(config.task, **config.task_options | config.curriculum)
        channels, taught = ((task.input_size, task.output_size) for task in (self.task, self.lessons))
        if taught != channels:
            raise ValueError(
                f"the curriculum {config.curriculum} makes {taught[0]} inputs and {taught[1]} outputs of the task's "
                f"{channels[0]} and {channels[1]}: it may change sizes and bits, not channels."
            )
        self.task.ranges(**config.validation)  # refuses sizes that the task does not have
        self._stock: tuple[int, _Pupils, Batch, Tensor | None] = (0, ([], []), Batch(*[torch.empty(0)] * 4), None)
        self._longest = STOCKED_STEPS  # steps of a sequence, as seen in the last stock: at first one block at a time

    def taught(self, done: list[int]) -> list[bool]:
        """Who learns from the curriculum in the next update."""
        taught = self.config.taught_updates
        return [mine < taught for mine in done]

    def judged(self, done: list[int]) -> list[bool]:
        """Whose last update counts: those of a curriculum that comes to an end do not."""
        taught, end = self.config.taught_updates, self.config.updates
        return [not mine <= taught < end for mine in done]

    def ended(self, done: list[int]) -> list[bool]:
        """Whose curriculum was over just now."""
        taught = self.config.taught_updates
        return [0 < mine == taught for mine in done]

    def unchanged(self, done: list[int]) -> int:
        """For how many updates every seed learns from the same task as in the next one."""
        taught, end = self.config.taught_updates, self.config.updates
        return min((taught if mine < taught else end) - mine for mine in done)

    def data(self, seeds: list[int], done: list[int], span: range) -> tuple[Batch, Tensor | None]:
        """Sequences [K, S, ...] and memory slots [K, S, B] of the updates `span`, before which so many were done."""
        first, stocked, data, slots = self._stock
        pupils = (seeds, self.taught(done))
        if stocked != pupils or not first <= span.start < span.stop <= first + len(data.lengths):
            if not {0, self.config.taught_updates}.isdisjoint(done):
                self._longest = STOCKED_STEPS  # other sequences begin here, and may be longer
            sequences = len(span) * len(seeds) * self.config.batch_size
            blocks = max(1, min(10, STOCKED_STEPS // (sequences * self._longest)))
            ahead = range(span.start, span.start + max(len(span), min(blocks * len(span), self.unchanged(done))))
            first, data, slots = span.start, self.sample(seeds, done, ahead), self.sample_slots(seeds, ahead)
            self._stock = (first, pupils, data, slots)
            self._longest = data.inputs.shape[2]
        there = slice(span.start - first, span.stop - first)
        return Batch(*(part[there] for part in data)), None if slots is None else slots[there]

    def sample(self, seeds: list[int], done: list[int], updates: range) -> Batch:
        def of(task: Task, some: list[int]) -> Batch:
            source = stream(some, f"training/{task.name}", updates, device=self._device)
            return task.sample(source, batch_size=self.config.batch_size)

        classes = self._classes(done)
        if len(classes) == 1:
            return of(classes[0][0], seeds)
        return _side_by_side([(of(task, [seeds[i] for i in rows]), self._sent(rows)) for task, rows in classes])

    def sample_slots(self, seeds: list[int], updates: range) -> Tensor | None:
        if self.config.slots is None:
            return None
        source = stream(seeds, "training/slots", updates, device=self._device)
        return source.integers(self.config.batch_size, 1, *self.config.slots).squeeze(-1)  # [K, S, B]

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
        """Tasks, and the places of the seeds that learn from each in the next update."""
        taught = self.taught(done)
        places = [
            (task, [i for i, mine in enumerate(taught) if mine is lesson])
            for task, lesson in ((self.lessons, True), (self.task, False))
        ]
        return [(task, rows) for task, rows in places if rows]

    def _sent(self, places: list[int]) -> Tensor:
        return sent(torch.tensor(places), self._device)


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
