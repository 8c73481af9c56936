"""A run of updates: one after the other, or on a GPU as CUDA graphs, which need no host between two updates.

Legend: K updates, S seeds, B batch.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tapehead.experiment.population import EVERYONE, Population
from tapehead.tasks import Batch

REPLAYED = 50
"""Updates in one graph: enough that a launch costs nothing, few enough that a capture costs little."""

CAPTURED_AFTER = 2
"""How often so many updates of one shape run one by one before they are captured: for one block."""

ALIGNED = 4
"""Values of 16 bytes, at a multiple of which the update needs every group of seeds to begin."""

FEWEST = 4
"""Seeds that make a group."""

Costs = tuple[Tensor, Tensor]
Stepper = Callable[[Population, Batch, Tensor | None, Tensor], Costs]
"""stepper(population, data [K, S, ...], slots [K, S, B], rates [K, S]): costs [K, S, B] in nats, skipped [K, S]."""


def one_by_one(
    population: Population,
    data: Batch,
    slots: Tensor | None,
    rates: Tensor,
    group: slice = EVERYONE,
) -> Costs:
    costs, skips = [], []
    for k in range(len(rates)):
        cost, skipped = population.step(*_of_update(data, slots, k, group), rates[k, group], group, checked=k > 0)
        costs.append(cost)
        skips.append(skipped)
    return torch.stack(costs), torch.stack(skips)


def _of_update(data: Batch, slots: Tensor | None, k: int, group: slice) -> tuple[Batch, Tensor | None]:
    return Batch(*(part[k, group] for part in data)), None if slots is None else slots[k, group]


class Replaying:
    """A stepper for models that are `capturable`: REPLAYED updates at a time as one graph, to the same bits.

    A graph holds for one set of active seeds and one shape of data. A capture takes time of its own (not measured), so
    only what has come `CAPTURED_AFTER` times is captured: a population whose seeds leave in every block is not. The
    first updates run one by one in any case, which compiles their kernels.
    """

    def __init__(self) -> None:
        self._population: Any = None
        self._shape: Any = None
        self._seen = 0
        self._graph: _Graph | None = None

    def __call__(self, population: Population, data: Batch, slots: Tensor | None, rates: Tensor) -> Costs:
        shape = (data.inputs.shape[1:], slots is None)
        if self._population is not population.working or self._shape != shape:
            self._population, self._shape, self._seen, self._graph = population.working, shape, 0, None
        whole = len(rates) // REPLAYED * REPLAYED
        parts = [self._replayed(population, *_part(data, slots, rates, first)) for first in range(0, whole, REPLAYED)]
        if whole < len(rates):
            parts.append(one_by_one(population, *_part(data, slots, rates, whole)))
        costs, skips = zip(*parts, strict=True)
        return torch.cat(costs), torch.cat(skips)

    def _replayed(self, population: Population, data: Batch, slots: Tensor | None, rates: Tensor) -> Costs:
        self._seen += 1
        if self._seen <= CAPTURED_AFTER:
            return one_by_one(population, data, slots, rates)
        if self._graph is None:
            self._graph = _Graph(population, data, slots)
        return self._graph(data, slots, rates)


def _part(data: Batch, slots: Tensor | None, rates: Tensor, first: int) -> tuple[Batch, Tensor | None, Tensor]:
    those = slice(first, first + REPLAYED)
    return Batch(*(part[those] for part in data)), None if slots is None else slots[those], rates[those]


def groups_of(seeds: int, parameters: int, together: int = 1) -> list[slice]:
    """Two groups that a graph runs side by side; few seeds are one.

    together: seeds that the model computes in the same operations, which are not taken apart.

    The scan waits for its own steps and the update for memory, and one group can do one while the other does the other:
    kernels/ntm_scan/README-gpu.md has what that gains.
    """
    each = math.lcm(ALIGNED // math.gcd(ALIGNED, parameters), together)
    middle = seeds // 2 // each * each
    return [slice(0, middle), slice(middle, seeds)] if middle >= FEWEST else [slice(0, seeds)]


class _Graph:
    """REPLAYED updates of one population on data in a fixed place."""

    def __init__(self, population: Population, data: Batch, slots: Tensor | None) -> None:
        self._data = Batch(*(part.clone(memory_format=torch.contiguous_format) for part in data))
        self._slots = None if slots is None else slots.clone(memory_format=torch.contiguous_format)
        self._device = data.inputs.device
        parameters = population.working.parameters
        self._rates = parameters.new_zeros(REPLAYED, len(parameters))
        self._graph = torch.cuda.CUDAGraph()
        seeds, count = parameters.shape
        groups = groups_of(seeds, count, population.model.seeds_together)
        for group in groups:  # computes what the model keeps from update to update, which must not be captured
            population.costs_and_gradient(*_of_update(self._data, self._slots, 0, group), group)
        self._constants = population.model.constants()  # the model may drop them when it is used for something else
        streams = [torch.cuda.Stream(self._device) for _ in groups]
        done: list[Costs] = []
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(self._graph, stream=streams[0], capture_error_mode="thread_local"),
        ):
            for stream in streams[1:]:
                stream.wait_stream(streams[0])
            for group, stream in zip(groups, streams, strict=True):
                with torch.cuda.stream(stream):
                    done.append(one_by_one(population, self._data, self._slots, self._rates, group))
            for stream in streams[1:]:
                streams[0].wait_stream(stream)
            self._costs, self._skips = (torch.cat(parts, dim=1) for parts in zip(*done, strict=True))

    def __call__(self, data: Batch, slots: Tensor | None, rates: Tensor) -> Costs:
        for here, there in zip(self._data, data, strict=True):
            here.copy_(there)
        if self._slots is not None and slots is not None:
            self._slots.copy_(slots)
        self._rates.copy_(rates)
        with torch.cuda.device(self._device):
            self._graph.replay()
        return self._costs.clone(), self._skips.clone()
