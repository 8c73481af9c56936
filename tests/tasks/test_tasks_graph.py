from collections import deque

import pytest
import torch
from task_checks import check_addressing, check_form, check_uniform, rows_of

import tapehead
from tapehead.streams import stream
from tapehead.tasks import make_task


def hot(part):
    """The place of the only one in a list of zeros; None for zeros alone."""
    assert set(part) <= {0.0, 1.0}
    assert sum(part) <= 1
    return part.index(1.0) if 1.0 in part else None


def parts(step, names, degree):
    """Source, label, destination, and the two flags of a step."""
    source, label = step[:names], step[names : names + degree]
    return hot(source), hot(label), hot(step[names + degree : -2]), step[-2], step[-1]


def distances(edges, start):
    """How far every node is from one, and over how many shortest paths: a search in breadth, node by node."""
    far, ways, queue = {start: 0}, {start: 1}, deque([start])
    while queue:
        node = queue.popleft()
        for (source, _), to in edges.items():
            if source != node:
                continue
            if to not in far:
                far[to], ways[to] = far[node] + 1, 0
                queue.append(to)
            if far[to] == far[node] + 1:
                ways[to] += ways[node]
    return far, ways


def read_graph(steps, names, degree):
    """The edges of a sequence, {(source, label): destination}, and the steps behind them; checks the form of both."""
    edges = {}
    for t, step in enumerate(steps):
        source, label, to, asked, answering = parts(step, names, degree)
        if asked:
            return edges, steps[t:]
        assert None not in (source, label, to)
        assert source != to
        assert not answering
        assert (source, label) not in edges
        edges[source, label] = to
    raise AssertionError("no question")


def check_graph(edges, degree):
    sources = {source for source, _ in edges}
    assert len(edges) == len(sources) * degree
    assert set(edges.values()) <= sources
    for source in sources:
        assert len({edges[source, label] for label in range(degree)}) == degree
    return len(sources)


@pytest.mark.parametrize(
    "options", [{}, {"degree": 3, "names": 16, "nodes": (4, 16), "hops": (1, 9), "planning": 2}, {"nodes": 3}]
)
def test_traversal_against_the_oracle(options):
    task = make_task("graph", **options)
    batch = task.sample(stream(3, "t", 0), batch_size=60)
    check_form(task, batch, (), 60)
    for inputs, targets, mask in rows_of(batch):
        edges, rest = read_graph(inputs, task.names, task.degree)
        check_graph(edges, task.degree)
        here, label, to, _, _ = parts(rest[0], task.names, task.degree)
        assert here is not None
        assert label is to is None
        for step in rest[1 : 1 + task.planning]:
            assert not any(step)
        expected = []
        for step in rest[1 + task.planning :]:
            source, label, to, asked, answering = parts(step, task.names, task.degree)
            assert (source, to, asked, answering) == (None, None, 0.0, 1.0)
            here = edges[here, label]
            expected.append(here)
        before = len(inputs) - len(expected)
        assert [hot(target) for target in targets] == [None] * before + expected
        assert mask == [0.0] * before + [1.0] * len(expected)


@pytest.mark.parametrize("options", [{}, {"nodes": 12, "hops": (2, 6), "planning": 3}, {"nodes": (3, 5), "hops": 9}])
def test_shortest_path_against_the_oracle(options):
    """Found by a search in breadth; and no longer path up to `hops` was the only shortest one."""
    task = make_task("graph", question="shortest-path", **options)
    batch = task.sample(stream(4, "t", 0), batch_size=40)
    check_form(task, batch, (), 40)
    lengths = set()
    for inputs, targets, mask in rows_of(batch):
        edges, rest = read_graph(inputs, task.names, task.degree)
        check_graph(edges, task.degree)
        start, label, end, _, _ = parts(rest[0], task.names, task.degree)
        assert label is None
        assert not any(any(step) for step in rest[1 : 1 + task.planning])
        answers = rest[1 + task.planning :]
        assert all(parts(step, task.names, task.degree) == (None, None, None, 0.0, 1.0) for step in answers)
        path = [hot(target) for target, scored in zip(targets, mask, strict=True) if scored]
        assert len(path) == len(answers)
        far, ways = distances(edges, start)
        assert (far[end], ways[end], path[-1]) == (len(path), 1, end)
        for one, other in zip([start, *path], path, strict=False):
            assert other in (edges[one, label] for label in range(task.degree))
        low, high = task.ranges()["hops"]
        nodes = {source for source, _ in edges}
        found = [distances(edges, node) for node in nodes]
        single = {far[to] for far, ways in found for to in far if ways[to] == 1 and 0 < far[to] <= high}
        assert len(path) in {max(one for one in single if one <= asked) for asked in range(low, high + 1)}
        lengths.add(len(path))
    assert len(lengths) > 1


def test_distribution():
    """Numbers of nodes and hops, names and starts are uniform."""
    task = make_task("graph", nodes=(4, 8))
    batch = task.sample(stream(range(5), "t", range(20)), batch_size=20)
    hops = batch.mask.sum(dim=-2).long()
    check_uniform(hops, 1, 4)
    check_uniform((batch.lengths - 1 - hops) // 2, 4, 8)
    question = batch.inputs[..., -2] == 1
    starts = batch.inputs[question][:, :12]
    check_uniform(starts.argmax(dim=-1), 0, 11)


def test_addressing():
    check_addressing(make_task("graph"))
    check_addressing(make_task("graph"), nodes=12, hops=(2, 8))
    check_addressing(make_task("graph", question="shortest-path", planning=1))


def test_facts():
    task = make_task("graph")
    assert (task.input_size, task.output_size) == (28, 12)
    assert task.chance_bits == pytest.approx(2.5 * 3.584962500721156)
    assert make_task("graph", question="shortest-path").chance_bits is None
    assert (task.variety, make_task("graph", question="shortest-path").variety) == ("graph", "graph-shortest-path")
    batch = task.sample(stream(0, "t", 0), batch_size=3)
    asked = task.loss.bits(torch.zeros_like(batch.targets), batch.targets, batch.mask)
    assert asked.tolist() == pytest.approx((batch.mask.sum(dim=0) * 3.584962500721156).tolist())
    task.check_draw()
    assert task.generalisation == tuple({"nodes": n, "hops": 4} for n in (6, 8, 10, 12))
    few = tapehead.Experiment(task=make_task("graph", names=5, nodes=(3, 4), hops=2))
    assert few.task.generalisation == ({"nodes": 5, "hops": 2},)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 2}, "nodes begin at 2, but 2 edges go from each"),
        ({"nodes": (4, 13)}, "nodes go up to 13, but there are 12 names"),
        ({"hops": 0}, "hops is 0"),
        ({"degree": 0}, "degree is 0.*at least 1"),
        ({"planning": -1}, "planning is -1.*at least 0"),
        ({"question": "route"}, "question is 'route'.*traversal or shortest-path"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_task("graph", **options)
