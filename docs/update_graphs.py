"""Write tables and the picture of docs/graphs.md, and the results in docs/dnc.md, from the records: run it after
`tapehead confirm`.

    python docs/update_graphs.py

Records of the graph task and of machines without links are those of results/graph, the others those of results. What
has no record yet has no row, and a table without rows says that nothing was measured.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tapehead.figures import style
from tapehead.lab.summary import summarise
from tapehead.paper.results import parse
from tapehead.streams import stream
from tapehead.tasks.graph import Graph

sys.path.append(str(Path(__file__).parent))
from update_attention import NOTHING, ROOT, Record, costs, model_of, parameters, points, share, table, with_tables

PAGE, DNC_PAGE = ROOT / "docs/graphs.md", ROOT / "docs/dnc.md"
RESULTS, GRAPHS = ROOT / "results", ROOT / "results/graph"
SYSTEMS = {
    "graph-dnc": "DNC",
    "graph-dnc-no-links": "DNC without links",
    "graph-ntm": "NTM",
    "graph-lstm": "LSTM",
    "graph-transformer": "Transformer, rotary",
    "graph-transformer-no-positions": "Transformer, no positions",
}
WITHOUT_LINKS = {
    "copy-dnc": "copy",
    "copy-dnc-no-links": "copy, without links",
    "graph-dnc": "graph",
    "graph-dnc-no-links": "graph, without links",
}
BESIDE_NTM = {
    "copy-dnc": "copy-ntm-lstm-once",
    "repeat-copy-dnc": "repeat-copy-ntm-lstm",
    "associative-recall-dnc": "associative-recall-ntm-lstm-once",
    "priority-sort-dnc": "priority-sort-ntm-lstm",
}
"""Records of DNCs, and those of NTMs beside them: with one attempt where the DNC's recipe has one, if there is such a
record."""
COLOURS = {
    "graph-dnc": style.VERMILION,
    "graph-dnc-no-links": style.ORANGE,
    "graph-ntm": style.BLUE,
    "graph-lstm": style.GREEN,
    "graph-transformer": style.PURPLE,
    "graph-transformer-no-positions": style.FAINT,
}
DASHES = (":", (0, (4, 4)), (0, (6, 2, 1, 2)))
"""Of the baselines, which are alike in colour."""
SEQUENCES = 4000
"""By which baselines are estimated."""

Records = dict[str, Record]


def load(*folders: Path) -> Records:
    """Records by name, those that there are."""
    names = {*SYSTEMS, *WITHOUT_LINKS, *BESIDE_NTM, *BESIDE_NTM.values()}
    paths = [folder / f"{name}.json" for folder in (folders or (RESULTS, GRAPHS)) for name in sorted(names)]
    found = {path.stem: parse(path) | {"path": path} for path in paths if path.exists()}
    return {name: record | {"summary": summarise(record)} for name, record in found.items()}


# --- answers that ignore a part of the question -----------------------------------------------------------------------


class Baseline(NamedTuple):
    """What a predictor reaches that knows only a part: bits of a sequence, share of answers that are right."""

    bits: float
    accuracy: float


def transitions(task: Graph, inputs: torch.Tensor) -> torch.Tensor:
    """What a node leads to if every label is as likely, [B, K, K], from the edges that the inputs [T, B, I] show."""
    names, labels = task.names, task.degree
    sources, targets = inputs[..., :names], inputs[..., names + labels : 2 * names + labels]
    edges = (1 - inputs[..., -2:].sum(dim=-1)).unsqueeze(-1)  # neither the question nor the answer
    return torch.einsum("tbi,tbj->bij", sources * edges, targets) / labels


@functools.cache
def baselines(nodes: int | None, hops: int | None) -> dict[str, Baseline]:
    """Of routes on graphs of a size, or of the training sizes.

    A uniform guess among all names; among the nodes of the graph; and the best possible without the labels of the
    route: where a random walk from the start can be."""
    task = Graph()
    sizes = {name: size for name, size in (("nodes", nodes), ("hops", hops)) if size is not None}
    inputs, _, mask, _ = task.sample(stream(0, "baselines", 0), batch_size=SEQUENCES, **sizes)
    step = transitions(task, inputs)
    there = (step.sum(dim=-1) > 0).sum(dim=-1).double()  # nodes of each graph
    asked = mask.sum(dim=0).double()
    question = inputs[..., -2:-1]
    place = (inputs[..., : task.names] * question).sum(dim=0).unsqueeze(-2)  # the start, [B, 1, K]
    bits, right = torch.zeros(SEQUENCES, dtype=torch.float64), torch.zeros(SEQUENCES, dtype=torch.float64)
    for hop in range(int(asked.max())):
        place = place @ step
        answered = hop < asked
        likely = place.squeeze(-2).double().clamp_min(1e-30)
        bits += answered * -(likely * likely.log2()).sum(dim=-1)
        right += answered * likely.max(dim=-1).values
    total = asked.sum()
    every = torch.full_like(asked, task.names)
    return {
        "any name": Baseline(float((asked * every.log2()).mean()), float((asked / every).sum() / total)),
        "a node of the graph": Baseline(float((asked * there.log2()).mean()), float((asked / there).sum() / total)),
        "a walk from the start, labels ignored": Baseline(float(bits.mean()), float(right.sum() / total)),
    }


def _size(point: Record) -> tuple[int | None, int | None]:
    return point["sizes"].get("nodes"), point["sizes"].get("hops")


# --- tables -----------------------------------------------------------------------------------------------------------


def percent(share_of_one: float) -> str:
    return f"{100 * share_of_one:.3g} %"


def accuracies(record: Record, label: str) -> list[float]:
    return [machine["scores"][label]["accuracy"] for machine in record["machines"]]


def link(record: Record, title: str) -> str:
    path = record["path"]
    return f"[{title}](../{path.relative_to(ROOT)})" if path.is_relative_to(ROOT) else title


def systems_table(systems: dict[str, str]) -> Callable[[Records], str]:
    """Machines solved, and the share of answers that are right by size: the median of all machines and the worst."""

    def make(records: Records) -> str:
        mine = {name: records[name] for name in systems if name in records}
        if not mine:
            return NOTHING
        labels = points(next(iter(mine.values())))
        head = ["system", "parameters", "sequences, updates", "solved", "sequences to solve", *labels]
        rows = []
        for name, record in mine.items():
            took, training = record["summary"]["episodes_to_solve"], record["experiment"]["training"]
            updates = -(-training["episodes"] // training["batch_size"])
            own = [accuracies(record, label) for label in labels]
            rows.append(
                [
                    link(record, systems[name]),
                    f"{parameters(model_of(record)):,}",
                    f"{training['episodes']:,}, {updates:,}",
                    share(record),
                    f"{took['median']:,.0f}" if took else "-",
                    *(f"{percent(median(shares))} ({percent(min(shares))})" for shares in own),
                ]
            )
        return table(head, rows)

    return make


def baseline_table(records: Records) -> str:
    sizes = [(None, None), *((nodes, 4) for nodes in (6, 8, 10, 12))]
    found = [baselines(*size) for size in sizes]
    head = ["answers", *(Graph().label({"nodes": n, "hops": h} if n else {}) for n, h in sizes)]
    rows = [
        [name, *(f"{percent(one[name].accuracy)}, {style.number(one[name].bits)} bits" for one in found)]
        for name in found[0]
    ]
    return table(head, rows)


def links_table(records: Records) -> str:
    mine = {name: records[name] for name in WITHOUT_LINKS if name in records}
    if not any(name.endswith("no-links") for name in mine):
        return NOTHING
    head = ["task", "solved", "sequences to solve", "criterion", "met", "at", "median bits"]
    rows = []
    for name, record in mine.items():
        took, judged = record["summary"]["episodes_to_solve"], record["summary"]["criteria"][0]
        label = record["headline"]
        met = f"{judged['count']} of {judged['of']}"
        cost = style.number(median(costs(record, label)))
        took_median = f"{took['median']:,.0f}" if took else "-"
        rows.append([link(record, WITHOUT_LINKS[name]), share(record), took_median, judged["says"], met, label, cost])
    return table(head, rows)


def dnc_table(records: Records) -> str:
    """DNCs beside NTMs: what a machine may take, solved, sequences, and every criterion."""
    if not any(name in records for name in BESIDE_NTM):
        return NOTHING
    head = ["record", "machine", "attempts x sequences", "solved", "sequences to solve", "criteria met"]
    rows = []
    for name, beside in BESIDE_NTM.items():
        for title, record in (("DNC", records.get(name)), ("NTM", records.get(beside))):
            if record is None or name not in records:
                continue
            took = record["summary"]["episodes_to_solve"]
            met = "; ".join(f"{c['count']} of {c['of']} {c['says']}" for c in record["summary"]["criteria"])
            experiment = record["experiment"]
            budget = f"{experiment['restarts']['attempts']} x {experiment['training']['episodes']:,}"
            rows.append([link(record, record["path"].stem), title, budget, share(record)])
            rows[-1] += [f"{took['median']:,.0f}" if took else "-", met]
    return table(head, rows)


# --- the picture ------------------------------------------------------------------------------------------------------


def _panel(axes: Axes, mine: Records) -> None:
    sized = [point for point in next(iter(mine.values()))["points"] if point["sizes"]]
    nodes = [point["sizes"]["nodes"] for point in sized]
    found = [baselines(*_size(point)) for point in sized]
    for name, dashes in zip(found[0], DASHES, strict=True):
        accuracy = [100 * one[name].accuracy for one in found]
        axes.plot(nodes, accuracy, color=style.FAINT, linestyle=dashes, linewidth=1.0, label=f"by rule: {name}")
    for i, (name, record) in enumerate(mine.items()):
        shares = [[100 * value for value in accuracies(record, point["label"])] for point in sized]
        places = [n + 0.1 * (i - (len(mine) - 1) / 2) for n in nodes]
        label = f"{SYSTEMS[name]} ({len(record['machines'])})"
        dashes = "--" if name.endswith("no-links") else "-"
        axes.plot(places, [median(each) for each in shares], dashes, color=COLOURS[name], linewidth=1.3, label=label)
        for place, values in zip(places, shares, strict=True):
            axes.plot([place] * len(values), values, ".", color=COLOURS[name], markersize=3.5)
    axes.axvspan(min(nodes) - 0.6, 8.5, color=style.UNSCORED, alpha=0.5, linewidth=0)
    axes.set(xticks=nodes, xlabel="Nodes (up to 8 in training)", ylabel="Answers that are right, %", ylim=(0, 102))
    axes.set_xlim(min(nodes) - 0.6, max(nodes) + 0.6)


@style.look()
def draw_nodes(records: Records) -> Figure | None:
    """Accuracy by the number of nodes: every machine, the median, and the baselines."""
    mine = {name: records[name] for name in SYSTEMS if name in records}
    if not mine:
        return None
    figure = Figure(figsize=(style.WIDTH, 4.4), layout="constrained")
    axes = figure.subplots()
    _panel(axes, mine)
    axes.set_title("Routes of four hops")
    figure.legend(loc="outside lower center", fontsize=8, ncols=3)
    return figure


def picture(records: Records) -> str:
    if not any(name in records for name in SYSTEMS):
        return NOTHING
    return "![Share of answers that are right, by the number of nodes, of every machine](graphs/nodes.svg)\n"


TABLES: dict[str, Callable[[Any], str]] = {
    "traversal": systems_table(SYSTEMS),
    "baselines": baseline_table,
    "nodes": picture,
    "links": links_table,
}
DNC_TABLES: dict[str, Callable[[Any], str]] = {"beside-ntm": dnc_table}


def main() -> None:
    records = load()
    PAGE.write_text(with_tables(PAGE.read_text(), records, tables=TABLES))
    DNC_PAGE.write_text(with_tables(DNC_PAGE.read_text(), records, tables=DNC_TABLES))
    figure = draw_nodes(records)
    if figure is not None:
        style.save(figure, PAGE.parent / "graphs", "nodes")


if __name__ == "__main__":
    main()
