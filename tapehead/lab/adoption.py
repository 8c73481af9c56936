"""From a confirmation to the zoo: the machine of median cost, with its card."""

import dataclasses
from pathlib import Path
from typing import Any

from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import load, read_config, read_metrics
from tapehead.lab.blocks import blocks_of, curve_of
from tapehead.lab.confirmation import weights_hash
from tapehead.lab.tables import seeds_in_words
from tapehead.paper.recipes import row_experiment, rows
from tapehead.paper.tables import VARIANTS
from tapehead.zoo import store
from tapehead.zoo.cards import Card

LICENCE = "Apache-2.0"


def median_machine(record: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The machine in the middle of the solved ones by cost at the headline point, and these words.

    Neither the luckiest nor the worst: of an even number, the better of the middle two. Where a recipe validates, of
    those that passed, if any did: the others are known to fail. If none is solved, of all.
    """
    solved = [machine for machine in record["machines"] if machine["solved_at"] is not None]
    passed = [machine for machine in solved if machine["passed"]]
    among = passed or solved or record["machines"]
    if len(record["machines"]) == 1:
        only = record["machines"][0]
        return only, f"the only machine trained, {seeds_in_words(record)}{'' if solved else ', which is not solved'}"
    order = sorted(among, key=lambda machine: (_cost(machine, record["headline"]), machine["seed"]))
    kind = f"the {len(solved)} solved machines" if solved else f"all {len(among)} machines, none of them solved,"
    if 0 < len(passed) < len(solved):
        kind = f"the {len(passed)} machines that passed validation,"
    words = f"median of {kind} of {seeds_in_words(record)} by cost at {record['headline']}"
    return order[(len(order) - 1) // 2], words


def _cost(machine: dict[str, Any], label: str) -> float:
    bits = machine["scores"][label]["bits"]
    return float("inf") if bits is None else float(bits)


def adopt(record: dict[str, Any], run: Path, folder: Path | None = None) -> Card:
    """Put the median machine of a confirmation into the zoo. run: the folder where it was trained, which may be that
    of a part of a joined record."""
    experiment = Experiment.from_plain(record["experiment"])
    if dataclasses.replace(read_config(run), seeds=experiment.seeds).hash != experiment.hash:
        raise ValueError(f"{run} is not the run of this record: give the folder that holds it with --work.")
    machine, words = median_machine(record)
    seed = machine["seed"]
    model = load(run, seed)
    if weights_hash(model.flat_parameters()) != machine["weights_sha256"]:
        raise ValueError(f"the weights of seed {seed} in {run} are not those of the record: confirm the row again.")
    alone = dataclasses.replace(experiment, seeds=(seed,))
    card = Card(
        name=record["name"],
        experiment=alone.to_plain(),
        parameters=model.flat_parameters().numel(),
        command=train_command(alone),
        seed=seed,
        solved_at=machine["solved_at"],
        episodes=machine["episodes"],
        curve=[(episodes, float(f"{bits:.4g}")) for episodes, bits in curve_of(blocks_of(seed, read_metrics(run)))],
        points=[point | machine["scores"][point["label"]] for point in record["points"]],
        criteria=[c | {"met": met} for c, met in zip(record["criteria"], machine["met"], strict=True)],
        headline=record["headline"],
        chosen=words,
        environment=record["environment"],
        licence=LICENCE,
        sha256="",  # `put` knows it
    )
    return store.put(card, dict(model.named_parameters()), folder)


def train_command(experiment: Experiment) -> str:
    """The line that trains the one machine of an experiment, which must be a row's but for its episodes and place."""
    row, _, recipe = experiment.recipe.partition("/")
    if row not in rows():
        raise ValueError(f"{experiment.recipe} is no row of the paper's tables, so no short command trains it again.")
    seeds = {"seeds": experiment.seeds}
    standard = row_experiment(row, recipe, seeds)
    episodes = experiment.training.episodes
    if row_experiment(row, recipe, seeds | {"training.episodes": episodes}).hash != experiment.hash:
        raise ValueError(f"{experiment.recipe} has other settings now than in this record: confirm the row again.")
    options = experiment.model.options
    words = ["tapehead", "train", standard.task.name]
    words += ["--controller", options["controller"]] if "controller" in options else ["--model", experiment.model.name]
    for part, own in (("task", VARIANTS[row].task), ("model", VARIANTS[row].model)) if row in VARIANTS else ():
        for key, value in own.items():
            words += [f"--{part}.{key}", str(value)]
    given = {"recipe": (recipe, "tuned"), "episodes": (episodes, standard.training.episodes)}
    given |= {"device": (experiment.place.device, "cpu"), "backend": (experiment.place.backend, "auto")}
    for name, (value, default) in given.items():
        words += [f"--{name}", str(value)] if value != default else []
    return " ".join([*words, "--seed", str(experiment.seeds[0])])
