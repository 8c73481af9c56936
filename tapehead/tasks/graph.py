"""Questions about a graph (not in the NTM paper): see the edges of a random graph one by one, then follow a route, or
find the shortest path. In small, two of the tasks of Graves et al. (2016).

A graph has n nodes, each with another one of K names, and D labelled edges from each node to D others: E = n D edges,
in random order. An edge is a triple: source, label, destination. A question of h hops, traversal:

    time           0  ...  E-1   E      E+1 ... E+p   E+p+1 ... E+p+h
    source         s0 ... s_E-1  start   0  ...  0      0   ...   0       one-hot over K
    label          l0 ... l_E-1  0       0  ...  0      r1  ...  rh       one-hot over D: the edge to take
    destination    d0 ... d_E-1  0       0  ...  0      0   ...   0       one-hot over K
    question       0  ...  0     1       0  ...  0      0   ...   0
    answer         0  ...  0     0       0  ...  0      1   ...   1
    targets        0  ...  0     0       0  ...  0      v1  ...  vh       the node where the edge leads
    mask           0  ...  0     0       0  ...  0      1   ...   1

In the other question, shortest-path, the step of the question shows source and destination, the steps of the answer
show no label, and v1 ... vh are the nodes of the only shortest path between the two, the destination last. Before the
answer there are p steps for planning.

T = n D + 1 + p + h steps, 2 K + D + 2 input channels, and K outputs, one of which is right (categorical).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tapehead import checks
from tapehead.losses import CATEGORICAL, Loss
from tapehead.streams import Stream
from tapehead.tasks.task import Batch, Range, Size, Task, clock, row_sizes, take_vectors

NEVER = 2.0
"""Behind all uniform numbers, in an order by such numbers."""


class Graphs(NamedTuple):
    """Random graphs: `lead` and rows, B, first. Nodes are numbered from 0; those from n on are not there."""

    nodes: Tensor  # [*lead, B], n
    names: Tensor  # [*lead, B, K], the name of each node
    destinations: Tensor  # [*lead, B, K, D], where the edge of each label leads
    order: Tensor  # [*lead, B, K D], edges (node D + label) in the order in which they are shown, n D of them first


@dataclass(frozen=True, kw_only=True)
class Graph(Task):
    """The graph task.

    nodes: of a graph. hops: edges of the route, or the most edges of the shortest path: a path has as many as the
    longest one of the graph that has no more and is the only shortest one between its ends. names: of nodes, the most
    that a graph can have. degree: edges from each node. planning: steps between question and answer.
    """

    nodes: Size = (4, 8)
    hops: Size = (1, 4)
    question: Literal["traversal", "shortest-path"] = "traversal"
    names: int = 12
    degree: int = 2
    planning: int = 0

    name: ClassVar[str] = "graph"
    limits: ClassVar[Mapping[str, int]] = {"nodes": 2, "hops": 1}
    loss: ClassVar[Loss] = CATEGORICAL

    def check(self) -> None:
        checks.whole("names", self.names, 2)
        checks.whole("degree", self.degree, 1)
        checks.whole("planning", self.planning, 0)
        super().check()

    def check_ranges(self, ranges: Mapping[str, Range]) -> None:
        low, high = ranges["nodes"]
        if low <= self.degree:
            raise ValueError(f"nodes begin at {low}, but {self.degree} edges go from each to others: give more nodes.")
        if high > self.names:
            raise ValueError(f"nodes go up to {high}, but there are {self.names} names: give more names.")

    @property
    def generalisation(self) -> tuple[dict[str, int], ...]:  # type: ignore[override]
        """Graphs of up to as many nodes as there are names, and the most hops of training."""
        hops, nodes = self.ranges()["hops"][1], sorted({6, 8, 10, 12, self.names})
        return tuple({"nodes": n, "hops": hops} for n in nodes if self.degree < n <= self.names)

    @property
    def variety(self) -> str:
        return self.name if self.question == "traversal" else f"{self.name}-{self.question}"

    @property
    def input_size(self) -> int:
        return 2 * self.names + self.degree + 2

    @property
    def output_size(self) -> int:
        return self.names

    @property
    def chance_bits(self) -> float | None:
        """E[h] log2 K for a route; the length of shortest paths depends on the graphs."""
        return sum(self.ranges()["hops"]) / 2 * log2(self.names) if self.question == "traversal" else None

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        graphs = self._draw_graphs(draws, rows, sizes["nodes"])
        hops = row_sizes(draws, rows, sizes["hops"])
        most = sizes["hops"][1]
        if self.question == "traversal":
            start = draws.integers(rows, 1, 0, graphs.nodes - 1).squeeze(-1)
            route = draws.integers(rows, most, 0, self.degree - 1)
            visited = _follow(graphs, start, route)
            return self._batch(graphs, hops, start, None, route, visited)
        start, end, hops, visited = _shortest(graphs, hops, draws.uniform(rows, self.names**2, precision=24), most)
        return self._batch(graphs, hops, start, end, None, visited)

    def _draw_graphs(self, draws: Stream, rows: int, nodes: Range) -> Graphs:
        most, degree = self.names, self.degree
        count = row_sizes(draws, rows, nodes)
        number = torch.arange(most, device=draws.device)
        names = draws.uniform(rows, most, precision=24).argsort(dim=-1, stable=True)
        there = number < count.unsqueeze(-1)  # [*lead, B, K]
        shuffled = draws.uniform(rows, most * most, precision=24).unflatten(-1, (most, most))
        others = there.unsqueeze(-2) & (number != number.unsqueeze(-1))
        destinations = torch.where(others, shuffled, NEVER).argsort(dim=-1, stable=True)[..., :degree]
        shown = draws.uniform(rows, most * degree, precision=24)
        order = torch.where(there.repeat_interleave(degree, dim=-1), shown, NEVER).argsort(dim=-1, stable=True)
        return Graphs(count, names, destinations, order)

    def _batch(
        self, graphs: Graphs, hops: Tensor, start: Tensor, end: Tensor | None, route: Tensor | None, visited: Tensor
    ) -> Batch:
        """Everything in its place in time. start, end [*lead, B], route, visited [*lead, B, most hops]: nodes."""
        named = _one_hot(graphs.names, self.names)  # [*lead, B, K, K]
        source = graphs.order // self.degree
        where = graphs.destinations.flatten(-2).gather(-1, graphs.order)
        label = _one_hot(graphs.order % self.degree, self.degree)
        edges = torch.cat([_take(named, source), label, _take(named, where)], dim=-1)  # [*lead, B, K D, 2 K + D]

        asked = (graphs.nodes * self.degree).unsqueeze(-2)  # the time of the question, [*lead, 1, B]
        answer = asked + 1 + self.planning
        finish = answer + hops.unsqueeze(-2)
        time = clock(int(finish.max()), hops.device)
        question, answering = time == asked, (time >= answer) & (time < finish)  # [*lead, T, B]
        shown = take_vectors(edges.transpose(-3, -2), time.expand_as(question), time < asked)
        inputs = torch.cat([shown, question.unsqueeze(-1), answering.unsqueeze(-1)], dim=-1)
        ends = [_take(named, start.unsqueeze(-1))]
        ends.append(torch.zeros_like(ends[0]) if end is None else _take(named, end.unsqueeze(-1)))
        inputs[..., : self.names] += question.unsqueeze(-1) * ends[0].transpose(-3, -2)
        inputs[..., self.names + self.degree : -2] += question.unsqueeze(-1) * ends[1].transpose(-3, -2)
        if route is not None:
            labels = _one_hot(route, self.degree).transpose(-3, -2)
            inputs[..., self.names : self.names + self.degree] += take_vectors(labels, time - answer, answering)
        targets = take_vectors(_take(named, visited).transpose(-3, -2), time - answer, answering)
        return Batch(inputs, targets, answering.float(), finish.squeeze(-2))


def _one_hot(numbers: Tensor, classes: int) -> Tensor:
    return one_hot(numbers, classes).float()


def _take(rows: Tensor, places: Tensor) -> Tensor:
    """rows [..., K, W] at places [..., P] -> [..., P, W]."""
    return rows.gather(-2, places.unsqueeze(-1).expand(*places.shape, rows.shape[-1]))


def _follow(graphs: Graphs, start: Tensor, route: Tensor) -> Tensor:
    """The nodes that a route of labels leads to: start [*lead, B], route [*lead, B, h] -> [*lead, B, h]."""
    here, visited = start.unsqueeze(-1), []
    for label in route.split(1, dim=-1):
        here = _take(graphs.destinations, here).squeeze(-2).gather(-1, label)
        visited.append(here)
    return torch.cat(visited, dim=-1)


def _shortest(graphs: Graphs, hops: Tensor, chances: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Start, end and length [*lead, B] of a path, and its nodes after the start [*lead, B, most].

    Of all pairs of nodes at the largest distance up to `hops` that have one shortest path between them, `chances`
    [*lead, B, K K] choose one.
    """
    count = graphs.names.shape[-1]
    number = torch.arange(count, device=hops.device)
    there = number < graphs.nodes.unsqueeze(-1)  # [*lead, B, K]
    steps = _one_hot(graphs.destinations, count).sum(dim=-2) * there.unsqueeze(-1)  # [*lead, B, K, K], zeros and ones
    walks = torch.eye(count, device=hops.device).expand_as(steps)
    distance = torch.where(walks > 0, 0, most + 1)
    single = torch.zeros_like(distance)  # the distance where one shortest path has it, otherwise zero
    for length in range(1, most + 1):
        walks = walks @ steps  # how many walks of this length there are; the shortest are paths
        reached = (walks > 0) & (distance > length)
        distance = torch.where(reached, length, distance)
        single = torch.where(reached & (walks == 1), length, single)
    single = torch.where(single <= hops[..., None, None], single, 0).flatten(-2)
    lengths = single.amax(dim=-1)
    pair = torch.where(single == lengths.unsqueeze(-1), chances, -1.0).argmax(dim=-1)
    start, end = pair // count, pair % count
    to_end = distance.gather(-1, end[..., None, None].expand(*end.shape, count, 1)).squeeze(-1)  # [*lead, B, K]
    here, visited = start.unsqueeze(-1), []
    for length in range(1, most + 1):
        left = (lengths - length).clamp_min(0).unsqueeze(-1)
        on_path = (_take(steps, here).squeeze(-2) > 0) & (to_end == left)
        here = torch.where(lengths.unsqueeze(-1) >= length, on_path.int().argmax(dim=-1, keepdim=True), here)
        visited.append(here)
    return start, end, lengths, torch.cat(visited, dim=-1)
