"""Write tables and pictures of docs/attention.md from the records: run it after benchmarks/attention_and_memory.py.

    python docs/update_attention.py

Records of Transformers and LSTMs are those of results/attention, with what --speed and --rates wrote (speed.json,
rates/), of the NTM those of results. What has no record yet has no row, and a table without rows says that nothing was
measured.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch.utils._pytree import tree_leaves

from tapehead.evaluation.summaries import quartiles
from tapehead.experiment.config import Experiment
from tapehead.figures import style
from tapehead.lab.summary import summarise
from tapehead.models import SequenceModel
from tapehead.paper.results import parse

ROOT = Path(__file__).parents[1]
PAGE, RESULTS, ATTENTION = ROOT / "docs/attention.md", ROOT / "results", ROOT / "results/attention"
sys.path.append(str(ROOT / "benchmarks"))
import attention_and_memory as comparison  # noqa: E402 (benchmarks/attention_and_memory.py)

OWN = "lstm-own"
"""The LSTM by its own recipe, whose budget is longer than that of the comparison; its records are in results."""
SYSTEMS = {
    "ntm": "NTM",
    "lstm": "LSTM of the paper",
    OWN: "LSTM of the paper, longer runs",
    "lstm-equal": "LSTM, equal parameters",
    "transformer-128-rotary": "Transformer of 128, rotary",
    "transformer-128-alibi": "Transformer of 128, ALiBi",
    "transformer-128-none": "Transformer of 128, no positions",
    "transformer-equal-rotary": "Transformer, equal parameters, rotary",
    "transformer-equal-alibi": "Transformer, equal parameters, ALiBi",
    "transformer-equal-none": "Transformer, equal parameters, no positions",
}
EQUAL = ("ntm", "lstm-equal", *(system for system in SYSTEMS if system.startswith("transformer-equal")))
LENGTHS = (20, 120, 500, 1000)
"""Vectors to copy, in the table of the memory."""
NOTHING = "Not measured yet.\n"
BLOCK = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
LEAST_BITS = 1e-4
"""In the picture: less is shown as this."""
COLOURS = {"ntm": style.INK, "lstm": style.FAINT, "rotary": style.VERMILION, "alibi": style.BLUE, "none": style.ORANGE}

Record = dict[str, Any]
Records = dict[tuple[str, str], Record]


def load(results: Path = RESULTS, attention: Path = ATTENTION) -> Records:
    """Records by task and system, those that there are."""
    found: Records = {}
    for task in comparison.TASKS:
        for system in SYSTEMS:
            # an NTM whose budget is one attempt, where the recipe has several
            own = {"ntm": [f"{task}-ntm-lstm-once", f"{task}-ntm-lstm"], OWN: [f"{task}-lstm"]}
            names = own.get(system, [f"{task}-{system}"])
            places = [(results if system in own else attention) / f"{name}.json" for name in names]
            for path in [path for path in places if path.exists()][:1]:
                record = parse(path)
                found[task, system] = record | {"summary": summarise(record), "path": path}
    return found


def model_of(record: Record) -> SequenceModel:
    here = {"place.device": "cpu", "place.backend": "auto"}
    experiment = Experiment.from_plain(record["experiment"]).with_values(here)
    return experiment.build()


def parameters(model: SequenceModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return NOTHING
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def share(record: Record) -> str:
    solved = record["summary"]["solved"]
    return f"{solved['count']} of {solved['of']}"


def share_within(record: Record, sequences: int) -> str:
    """How many seeds were solved in so many sequences; some records have a longer budget, or restarts."""
    at = [machine["solved_at"] for machine in record["machines"]]
    return f"{sum(one is not None and one <= sequences for one in at)} of {len(at)}"


def budget(task: str) -> int:
    """Sequences of the comparison: those of an attempt of the NTM's recipe."""
    return comparison.experiments(task)["ntm"].training.episodes


def bits(value: float | None) -> str:
    return "-" if value is None else style.number(value)


def points(record: Record) -> list[str]:
    """Sizes at which every system was scored: not those on other tapes."""
    return [point["label"] for point in record["points"] if point["slots"] is None]


def costs(record: Record, label: str) -> list[float]:
    every = (machine["scores"][label]["bits"] for machine in record["machines"])
    return [float("inf") if value is None else value for value in every]


def compared(systems: Iterable[str | tuple[str, str]]) -> bool:
    """Whether there is a record that was made for this comparison."""
    names = {one if isinstance(one, str) else one[1] for one in systems}
    return bool(names - {"ntm", OWN})


def solved_table(systems: tuple[str, ...]) -> Callable[[Records], str]:
    """How many seeds of each system solve each task."""

    def make(records: Records) -> str:
        if not compared(records):
            return NOTHING
        head = ["system", *(style.task_title(task) for task in comparison.TASKS)]

        def cell(task: str, system: str) -> str:
            if (task, system) not in records:
                return "-"
            return share_within(records[task, system], budget(task))

        cells = [[cell(task, system) for task in comparison.TASKS] for system in systems]
        return table(head, [[SYSTEMS[s], *row] for s, row in zip(systems, cells, strict=True) if set(row) != {"-"}])

    return make


def task_table(task: str) -> Callable[[Records], str]:
    def make(records: Records) -> str:
        mine = {system: records[task, system] for system in SYSTEMS if (task, system) in records}
        if not compared(mine):
            return NOTHING
        labels = points(next(iter(mine.values())))
        head = ["system", "parameters", "sequences", "solved", "sequences to solve", *labels]
        rows = []
        for system, record in mine.items():
            took = record["summary"]["episodes_to_solve"]
            most = max(machine["episodes"] for machine in record["machines"])
            medians = [quartiles(costs(record, label)).median for label in labels]
            rows.append(
                [
                    f"[{SYSTEMS[system]}](../{record['path'].relative_to(ROOT)})"
                    if record["path"].is_relative_to(ROOT)
                    else SYSTEMS[system],
                    f"{parameters(model_of(record)):,}",
                    f"{most:,}",
                    share(record),
                    f"{took['median']:,.0f}" if took else "-",
                    *map(style.number, medians),
                ]
            )
        return table(head, rows)

    return make


def speed_table(records: Records, attention: Path = ATTENTION) -> str:
    paths = [attention / name for name in ("speed.json", "speed-cpu.json")]
    made = [_speeds(parse(path)) for path in paths if path.exists()]
    return "\n".join(made) or NOTHING


def _speeds(measured: Record) -> str:
    rows: dict[str, dict[str, Record]] = {}
    for row in measured["rows"]:
        rows.setdefault(row["system"], {})[row["task"]] = row
    head = ["system", *(style.task_title(task) for task in comparison.TASKS)]
    lines = []
    for system in [system for system in SYSTEMS if system in rows]:
        mine = rows[system]
        cells = [
            f"{mine[task]['sequences_a_second']:,} ({mine[task]['batch_size']})" if task in mine else "-"
            for task in comparison.TASKS
        ]
        lines.append([SYSTEMS[system], *cells])
    where = measured["environment"]
    return f"On {where['device']}, {where['date']}:\n\n" + table(head, lines)


def rates_table(records: Records, attention: Path = ATTENTION) -> str:
    """Seeds solved, and the cost of the last window, at each learning rate that was tried on tuning seeds."""
    rows: dict[tuple[str, str], dict[float, Record]] = {}
    for path in sorted((attention / "rates").glob("rate-*.json")):
        row = parse(path)
        rows.setdefault((row["task"], row["size"]), {})[row["rate"]] = row
    rates = sorted({rate for mine in rows.values() for rate in mine})
    head = ["Transformer, rotary", *(f"{rate:g}" for rate in rates)]
    lines = []
    for (task, size), mine in sorted(rows.items()):
        name = f"{style.task_title(task)}, {'equal parameters' if size == 'equal' else size}"
        cells = [
            f"{mine[rate]['solved']} of {mine[rate]['seeds']}, {bits(mine[rate]['bits'][1])}" if rate in mine else "-"
            for rate in rates
        ]
        lines.append([name, *cells])
    return table(head, lines)


def state_bytes(model: SequenceModel, vectors: int) -> int:
    """What a model carries from step to step after it has read so many vectors to copy and answered them."""
    with torch.no_grad():
        _, state = model(torch.zeros(2 * vectors + 1, 1, model.input_size))
    return sum(part.numel() * part.element_size() for part in tree_leaves(state))


def memory_rows() -> dict[str, list[int]]:
    """Bytes of the parameters of each system on the copy task, and of its state at each of `LENGTHS`."""
    every = comparison.experiments("copy")
    shown = ("ntm", "lstm", "lstm-equal", "transformer-128-rotary", "transformer-equal-rotary")
    models = {SYSTEMS[system].removesuffix(", rotary"): every[system].build().eval() for system in shown}
    rows = {}
    for name, model in models.items():
        rows[name] = [4 * parameters(model), *(state_bytes(model, length) for length in LENGTHS)]
        if model.memory_slots is not None:
            tapes = [model.with_memory(max(model.memory_slots, length + 1)) for length in LENGTHS]
            grown = [state_bytes(tape, length) for tape, length in zip(tapes, LENGTHS, strict=True)]
            rows[f"{name} with a slot for every vector"] = [rows[name][0], *grown]
            rows[f"{name} of {model.memory_slots} slots"] = rows.pop(name)
    return rows


def memory_table(records: Records) -> str:
    head = ["KB", "parameters", *(f"state at {length:,} vectors" for length in LENGTHS)]
    return table(head, [[name, *(f"{count / 1e3:,.0f}" for count in row)] for name, row in memory_rows().items()])


# --- pictures --------------------------------------------------------------------------------------------------------


def _look(system: str) -> dict[str, Any]:
    kind = system.rpartition("-")[2] if system.startswith("transformer") else system.partition("-")[0]
    dashes = "--" if "equal" in system else ":" if system == OWN else "-"
    return {"color": COLOURS[kind], "linestyle": dashes, "linewidth": 1.4}


def _panel(axes: Axes, task: str, mine: dict[str, Record]) -> None:
    labels = points(next(iter(mine.values())))
    for i, (system, record) in enumerate(mine.items()):
        found = [quartiles([max(cost, LEAST_BITS) for cost in costs(record, label)]) for label in labels]
        middle = [one.median for one in found]
        ends = [[one.median - one.low for one in found], [one.high - one.median for one in found]]
        x = [place + 0.05 * (i - len(mine) / 2) for place in range(len(labels))]
        axes.errorbar(x, middle, ends, marker="o", markersize=3, elinewidth=0.8, label=SYSTEMS[system], **_look(system))
    axes.set(yscale="log", xticks=range(len(labels)), xticklabels=[label.replace(", ", "\n") for label in labels])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(style.task_title(task))
    axes.set_ylabel(f"Bits per sequence (at least {LEAST_BITS:g})")


@style.look()
def draw_costs(records: Records) -> Figure | None:
    """Costs at and beyond the training sizes, of the tasks that have some; medians and quartiles of the seeds."""
    by_task = {task: {s: records[task, s] for s in SYSTEMS if (task, s) in records} for task in comparison.TASKS}
    shown = {
        task: mine for task, mine in by_task.items() if compared(mine) and len(points(next(iter(mine.values())))) > 1
    }
    if not shown:
        return None
    rows = -(-len(shown) // 2)
    figure = Figure(figsize=(style.WIDTH, 3.1 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False).flatten()
    for panel, (task, mine) in zip(panels, shown.items(), strict=False):
        _panel(panel, task, mine)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    names = {label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(names.values(), names.keys(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


@style.look()
def draw_memory() -> Figure:
    figure = Figure(figsize=(0.75 * style.WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    colours = (style.INK, style.PURPLE, style.FAINT, style.ORANGE, style.VERMILION, style.BLUE)
    for (name, (_, *states)), colour in zip(memory_rows().items(), colours, strict=False):
        axes.plot(LENGTHS, [count / 1e3 for count in states], marker="o", markersize=3, label=name, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="Vectors copied", ylabel="State, KB", xticks=LENGTHS)
    axes.set_xticklabels([f"{length:,}" for length in LENGTHS])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("What is carried from step to step")
    figure.legend(loc="outside right center", fontsize=8)
    return figure


def picture(records: Records) -> str:
    if draw_costs(records) is None:
        return NOTHING
    return "![Costs at training sizes and beyond them, of each system](attention/costs.svg)\n"


TABLES: dict[str, Callable[[Records], str]] = {
    "solved": solved_table(tuple(SYSTEMS)),
    "solved-equal": solved_table(EQUAL),
    **{task: task_table(task) for task in comparison.TASKS},
    "picture": picture,
    "rates": rates_table,
    "speed": speed_table,
    "memory": memory_table,
}


def with_tables(
    page: str, records: Any, only: set[str] | None = None, tables: Mapping[str, Callable[[Any], str]] = TABLES
) -> str:
    """A page with the tables that its records make; of all tables, or of some."""

    def made(block: re.Match[str]) -> str:
        if only is not None and block[2] not in only:
            return block[0]
        return f"{block[1]}\n{tables[block[2]](records)}\n{block[3]}"

    return BLOCK.sub(made, page)


def main() -> None:
    records = load()
    PAGE.write_text(with_tables(PAGE.read_text(), records))
    folder = PAGE.parent / "attention"
    style.save(draw_memory(), folder, "memory")
    figure = draw_costs(records)
    if figure is not None:
        style.save(figure, folder, "costs")


if __name__ == "__main__":
    main()
