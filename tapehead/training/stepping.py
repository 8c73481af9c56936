"""A run of updates: one after the other, or on a GPU as CUDA graphs, which need no host between two updates.

Legend: K updates, S seeds, B batch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tapehead.tasks import Batch
from tapehead.training.population import Population

REPLAYED = 10
"""Updates in one graph: enough that a launch costs nothing, few enough that a capture costs little."""

Costs = tuple[Tensor, Tensor]
Stepper = Callable[[Population, Batch, Tensor | None, list[float]], Costs]
"""stepper(population, data [K, S, ...], slots [K, S, B], rates): costs [K, S, B] in nats, skipped updates [K, S]."""


def one_by_one(population: Population, data: Batch, slots: Tensor | None, rates: "list[float] | Tensor") -> Costs:
    costs, skips = [], []
    for k, rate in enumerate(rates):
        cost, skipped = population.step(Batch(*(part[k] for part in data)), None if slots is None else slots[k], rate)
        costs.append(cost)
        skips.append(skipped)
    return torch.stack(costs), torch.stack(skips)


class Replaying:
    """A stepper for the GPU backend: REPLAYED updates at a time as one graph, to the same bits.

    A graph holds for one set of active seeds and one shape of data. What comes for the first time runs one by one,
    which also compiles its kernels; what comes again is captured. So a population whose seeds leave every few blocks
    pays for no captures that it does not use.
    """

    def __init__(self) -> None:
        self._population: Any = None
        self._graphs: dict[Any, _Graph | None] = {}

    def __call__(self, population: Population, data: Batch, slots: Tensor | None, rates: list[float]) -> Costs:
        if self._population is not population.working:
            self._population, self._graphs = population.working, {}
        whole = len(rates) // REPLAYED * REPLAYED
        parts = [self._replayed(population, *_part(data, slots, rates, first)) for first in range(0, whole, REPLAYED)]
        if whole < len(rates):
            parts.append(one_by_one(population, *_part(data, slots, rates, whole)))
        costs, skips = zip(*parts, strict=True)
        return torch.cat(costs), torch.cat(skips)

    def _replayed(self, population: Population, data: Batch, slots: Tensor | None, rates: list[float]) -> Costs:
        shape = (data.inputs.shape, slots is None)
        if shape not in self._graphs:
            self._graphs[shape] = None
            return one_by_one(population, data, slots, rates)
        graph = self._graphs[shape]
        if graph is None:
            graph = self._graphs[shape] = _Graph(population, data, slots)
        return graph(data, slots, rates)


def _part(
    data: Batch, slots: Tensor | None, rates: list[float], first: int
) -> tuple[Batch, Tensor | None, list[float]]:
    those = slice(first, first + REPLAYED)
    return Batch(*(part[those] for part in data)), None if slots is None else slots[those], rates[those]


class _Graph:
    """REPLAYED updates of one population on data in a fixed place."""

    def __init__(self, population: Population, data: Batch, slots: Tensor | None) -> None:
        self._data = Batch(*(part.clone(memory_format=torch.contiguous_format) for part in data))
        self._slots = None if slots is None else slots.clone(memory_format=torch.contiguous_format)
        self._rates = torch.zeros(REPLAYED, device=data.inputs.device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._costs, self._skips = one_by_one(population, self._data, self._slots, self._rates)
        self._constants = population.model.constants()  # the model may drop them when it is used for something else

    def __call__(self, data: Batch, slots: Tensor | None, rates: list[float]) -> Costs:
        for here, there in zip(self._data, data, strict=True):
            here.copy_(there)
        if self._slots is not None and slots is not None:
            self._slots.copy_(slots)
        self._rates.copy_(torch.tensor(rates), non_blocking=True)
        self._graph.replay()
        return self._costs.clone(), self._skips.clone()
