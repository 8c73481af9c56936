"""`tapehead sublayers`: the map of a Transformer's sub-layers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from tapehead import files
from tapehead.commands.options import check_count, check_device, make_folder
from tapehead.commands.progress import Phases
from tapehead.commands.tables import print_table
from tapehead.evaluation.summaries import quartiles
from tapehead.experiment import folder
from tapehead.experiment.config import Experiment
from tapehead.experiment.parts import BLOCK
from tapehead.models.transformer.model import Transformer
from tapehead.sublayers.decoding import decode, draft_and_verify
from tapehead.sublayers.enumeration import enumerate_sets
from tapehead.sublayers.mapping import (
    PROMPT_TOKENS,
    SubLayerMap,
    is_language_model,
    make_space,
    make_window,
    map_sublayers,
)
from tapehead.sublayers.objectives import prompts_of
from tapehead.sublayers.search import middle_layers
from tapehead.sublayers.worth import expect_transformer, worth_over_training
from tapehead.zoo import store

if TYPE_CHECKING:
    from tapehead import arguments

TOKENS = 64
"""Generated after every prompt."""


def run(options: "arguments.SubLayers") -> int:
    for name in ("evaluations", "sequences"):
        check_count(f"--{name}", getattr(options, name))
    for name in ("prompts", "moments"):
        if getattr(options, name):
            check_count(f"--{name}", getattr(options, name))
    check_device(options.device)
    experiment, model = _load(options)
    task = experiment.task
    if options.prompts and not is_language_model(model, task):
        raise ValueError(f"--prompts is {options.prompts}, but a model of {task.name} does not generate tokens.")
    make_space(model, task, options.search, options.judge, options.share)
    out = options.out or (Path(options.model) if Path(options.model).is_dir() else Path()) / "sublayers"
    made = make_folder(out)
    try:
        with Phases() as phases:
            return _map(options, experiment, model, out, phases)
    except BaseException:
        files.remove_empty(made)
        raise


def _map(options: "arguments.SubLayers", experiment: Experiment, model: Transformer, out: Path, phases: Phases) -> int:
    from tapehead.figures import style, sublayers

    task = experiment.task
    found = map_sublayers(
        model,
        task,
        search=options.search,
        judge=options.judge,
        share=options.share,
        evaluations=options.evaluations,
        sequences=options.sequences,
        tick=phases,
    )
    phases.end()
    title = f"{style.task_title(task.name)}, {model.num_layers} layers of {model.hidden_size}"
    print_table(_worth_table(found))
    print(f"skipped: {', '.join(map(str, found.skip.numbers)) or 'none'}; {found.agreement:.1%} of the answers agree")
    written = style.save(sublayers.draw_map(found, title), out, "sublayers")
    written += [_write(out / "sublayers.json", found.to_plain()), _write(out / "skip.json", found.skip.to_plain())]
    if options.search == "all":
        window = make_window(model, task, TOKENS // 2, options.sequences)
        compared = enumerate_sets(model, window, options.share, tick=phases)
        phases.end()
        written.append(_write(out / "enumeration.json", compared.to_plain()))
        written += style.save(sublayers.draw_enumeration(compared, title), out, "enumeration")
    if options.prompts:
        print_table(_decoding_table(model, found, prompts_of(task, options.prompts, PROMPT_TOKENS), phases))
    if options.moments:
        written += _strip(options, experiment, model, found, out, title, phases)
    print("\n".join(map(str, written)))
    return 0


def _load(options: "arguments.SubLayers") -> tuple[Experiment, Transformer]:
    """The experiment and the machine, which must be a Transformer."""
    if Path(options.model).exists():
        experiment = folder.read_config(Path(options.model))
        seed = experiment.seeds[0] if options.seed is None else options.seed
        model = folder.load(options.model, seed)
        experiment = experiment.with_values({"seeds": (seed,), "place.device": options.device})
    elif options.model in store.names():
        experiment = Experiment.from_plain(store.card(options.model).experiment)
        model = store.load(options.model)
    else:
        raise ValueError(f"{options.model} is no folder of a run, nor in the zoo: {store.no_machine(options.model)}")
    return experiment, expect_transformer(model).to(options.device)


def _write(path: Path, values: dict[str, Any]) -> Path:
    """Plain JSON, in the place of what was there."""
    with files.writing(path.parent):
        files.replace(path, (json.dumps(values, indent=1) + "\n").encode())
    return path


def _worth_table(found: SubLayerMap) -> Table:
    table = Table("layer", "attention", "bits added", "MLP", "bits added", box=None)
    added = found.worth.by_number
    for i in range(found.layers):
        table.add_row(str(i), str(2 * i + 1), f"{added[2 * i + 1]:.4g}", str(2 * i + 2), f"{added[2 * i + 2]:.4g}")
    return table


def _decoding_table(model: Transformer, found: SubLayerMap, prompts: list[list[int]], phases: Phases) -> Table:
    """Greedy decoding of the same tokens with and without the draft."""
    pairs = []
    for each in prompts:
        pairs.append((decode(model, each, TOKENS), draft_and_verify(model, found.skip, each, TOKENS)))
        phases("decoding prompts", len(pairs), len(prompts))
    phases.end()
    plain, drafted = zip(*pairs, strict=True)
    same = sum(one.tokens == other.tokens for one, other in pairs)
    faster = quartiles([one.seconds / other.seconds for one, other in pairs])  # one after the other, under like load
    rounds, accepted = (sum(getattr(each, name) for each in drafted) for name in ("rounds", "accepted"))
    calls = [sum(each.evaluations for each in some) for some in (plain, drafted)]
    table = Table("draft and verify, greedy", "", box=None)
    for name, value in (
        ("prompts with the same output", f"{same} of {len(prompts)}, {TOKENS} tokens each"),
        ("accepted drafted tokens per verification", f"{accepted / rounds:.2f}"),
        ("sub-layer calls saved", f"{1 - calls[1] / calls[0]:.1%} of {calls[0]:,}"),
        ("tokens per pass of the whole model", f"{(accepted + rounds) / rounds:.2f}"),
        ("speed, where plain decoding is 1", f"{faster.median:.2f} ({faster.low:.2f} to {faster.high:.2f})"),
    ):
        table.add_row(name, value)
    return table


def _strip(
    options: "arguments.SubLayers",
    experiment: Experiment,
    model: Transformer,
    found: SubLayerMap,
    out: Path,
    title: str,
    phases: Phases,
) -> list[Path]:
    """Small maps over training: refused if it does not end in the same weights."""
    from tapehead.figures import style, sublayers

    moments = milestones(experiment.updates, options.moments)
    series, delivered = worth_over_training(experiment, moments, tick=phases)
    phases.end()
    if not torch.equal(delivered, model.flat_parameters().cpu()):
        raise ValueError("trained again, the machine has other weights: do it where it was made.")
    count = middle_layers(model.num_layers, options.share).count or 0
    plain = {str(episodes): worth.to_plain() for episodes, worth in series.items()}
    path = _write(out / "over-training.json", plain)
    return [*style.save(sublayers.draw_strip(series, count, title), out, "over-training"), path]


def milestones(updates: int, count: int) -> list[int]:
    """Numbers of updates to measure at: the beginning, the end, and between them whole blocks that double."""
    ends = [updates]
    while len(ends) < count - 1 and ends[-1] // 2 >= BLOCK:
        ends.append(ends[-1] // 2 // BLOCK * BLOCK)
    return sorted({0, *ends} if count > 1 else ends)
