"""Pages of the graph task and of the DNC: what records say, the baselines, and nothing where there is no record."""

import json
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from made_up_records import made_up

from tapehead.experiment.config import Experiment, read_toml
from tapehead.streams import stream
from tapehead.tasks.graph import Graph

sys.path.append(str(Path(__file__).parents[2] / "docs"))
import update_graphs as page
from update_attention import NOTHING, with_tables

EXAMPLES = page.ROOT / "examples/dnc"
SIZES = [{}, {"nodes": 6, "hops": 4}, {"nodes": 12, "hops": 4}]


def graph_record(name, accuracies, solved):
    """Three machines with these accuracies at every size."""
    experiment = Experiment.from_plain(read_toml(EXAMPLES / f"{name}.toml"))
    place = {"place.device": "cuda", "place.backend": "gpu"}
    experiment = experiment.with_values({"seeds": (1000, 1001, 1002)} | place)
    labels = {Graph().label(sizes): 1.0 for sizes in SIZES}
    record = made_up("copy-lstm", solved=solved, **labels) | {"name": name, "row": name, "recipe": "custom"}
    record["experiment"] = experiment.to_plain()
    for point, sizes in zip(record["points"], SIZES, strict=True):
        point["sizes"] = sizes
    for machine, accuracy in zip(record["machines"], accuracies, strict=True):
        for scores in machine["scores"].values():
            scores["accuracy"] = accuracy
    return record


@pytest.fixture
def records(tmp_path):
    made = [
        graph_record("graph-dnc", [1.0, 1.0, 0.75], [3000, 5000, None]),
        graph_record("graph-dnc-no-links", [0.5, 0.5, 0.5], [None, None, None]),
        graph_record("graph-lstm", [0.25, 0.5, 0.375], [None, None, None]),
        made_up("copy-ntm-lstm", recipe="once", Length_120=[0.5, 2.0]) | {"file": "copy-ntm-lstm-once.json"},
        made_up("copy-ntm-lstm", recipe="once", Length_120=[0.5, 0.5]) | {"name": "copy-dnc", "file": "copy-dnc.json"},
    ]
    for record in made:
        path = tmp_path / (record["file"] if "copy-ntm" in record["row"] else f"{record['name']}.json")
        path.write_text(json.dumps(record))
    return page.load(tmp_path)


def test_the_pages_are_what_the_records_make():
    """Run docs/update_graphs.py."""
    for path, tables in ((page.PAGE, page.TABLES), (page.DNC_PAGE, page.DNC_TABLES)):
        assert with_tables(path.read_text(), page.load(), tables=tables) == path.read_text()


def test_tables_of_records(records):
    head, _, *rows = page.TABLES["traversal"](records).splitlines()
    assert head.startswith("| system | parameters | sequences, updates | solved | sequences to solve | Nodes 4 to 8")
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert [row[0] for row in cells] == ["DNC", "DNC without links", "LSTM"]
    assert [row[2:6] for row in cells] == [
        ["480,000, 30,000", "2 of 3", "4,000", "100 % (75 %)"],
        ["480,000, 30,000", "0 of 3", "-", "50 % (50 %)"],
        ["480,000, 30,000", "0 of 3", "-", "37.5 % (25 %)"],
    ]
    links = page.TABLES["links"](records).splitlines()[2:]
    assert [row.strip("| ").split(" | ")[:3] for row in links] == [
        ["copy", "2 of 2", "1,000"],
        ["graph", "2 of 3", "4,000"],
        ["graph, without links", "0 of 3", "-"],
    ]
    beside = page.DNC_TABLES["beside-ntm"](records).splitlines()[2:]
    assert [row.strip("| ").split(" | ")[1:] for row in beside] == [
        ["DNC", "1 x 40,000", "2 of 2", "1,000", "2 of 2 under 1 bit at Length 120"],
        ["NTM", "1 x 40,000", "2 of 2", "1,000", "1 of 2 under 1 bit at Length 120"],
    ]


def test_without_records_the_tables_say_so():
    assert all(page.TABLES[name]({}) == NOTHING for name in page.TABLES.keys() - {"baselines"})
    assert page.DNC_TABLES["beside-ntm"]({}) == NOTHING
    assert page.draw_nodes({}) is None


def test_the_picture_shows_every_system_and_baseline(records):
    (axes,) = page.draw_nodes(records).axes
    rules = [f"by rule: {name}" for name in page.baselines(6, 4)]
    assert axes.get_legend_handles_labels()[1] == [*rules, "DNC (3)", "DNC without links (3)", "LSTM (3)"]
    assert len({str(line._dash_pattern) for line in axes.lines[:3]}) == 3
    assert "graphs/nodes.svg" in page.TABLES["nodes"](records)


def test_a_walk_without_labels_against_all_routes():
    """Of one graph, every route of two labels from the start is followed in plain Python."""
    task = Graph(nodes=5, hops=2)
    batch = task.sample(stream(3, "test", 0), batch_size=1)
    inputs, names = batch.inputs[:, 0], task.names
    shown = [row for row in inputs.tolist() if not row[-1] and not row[-2] and any(row)]
    edges = {(row.index(1.0), row[names:].index(1.0)): row[names + 2 :].index(1.0) for row in shown}
    (asked,) = [row for row in inputs.tolist() if row[-2]]
    start = asked.index(1.0)
    assert len(edges) == 10
    ends = [edges[edges[start, first], second] for first, second in product(range(2), repeat=2)]
    step = page.transitions(task, batch.inputs)[0]
    expected = torch.tensor([ends.count(node) / 4 for node in range(names)])
    torch.testing.assert_close((step @ step)[start], expected, rtol=0, atol=0)


def test_baselines_are_in_order_and_exact_where_they_can_be():
    found = page.baselines(6, 4)
    assert found["any name"].accuracy == pytest.approx(1 / 12)
    assert found["a node of the graph"] == pytest.approx((4 * torch.tensor(6.0).log2().item(), 1 / 6))
    bits = [one.bits for one in found.values()]
    assert bits == sorted(bits, reverse=True)
    assert page.baselines(None, None)["any name"].bits == pytest.approx(Graph().chance_bits, rel=0.02)


def test_every_system_sees_as_many_sequences():
    experiments = {name: Experiment.from_plain(read_toml(EXAMPLES / f"{name}.toml")) for name in page.SYSTEMS}
    assert {experiment.training.episodes for experiment in experiments.values()} == {480_000}
    assert {experiment.task for experiment in experiments.values()} == {Graph()}
