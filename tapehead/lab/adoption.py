"""From a confirmation to the zoo: the machine of median quality, with its card."""

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

from tapehead.lab.blocks import blocks_of, curve_of
from tapehead.lab.confirmation import name_of, weights_hash
from tapehead.lab.summary import has_passed
from tapehead.lab.tables import seeds_in_words
from tapehead.paper.presets import VARIANTS, Recipe, preset
from tapehead.training.config import RunConfig
from tapehead.training.runs import load, newest, read_config
from tapehead.zoo import store
from tapehead.zoo.cards import Card

LICENCE = "Apache-2.0"
OWN = ("task", "task_options", "model", "model_options", "preset")
"""What a card says of its run in fields of its own; the rest are its `settings`."""


def median_machine(record: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The machine in the middle of the solved ones by cost at the headline point, and these words.

    Neither the luckiest nor the worst: of an even number, the better of the middle two. Where a recipe validates, of
    those that passed, if any did: the others are known to break. If none is solved, of all.
    """
    solved = [machine for machine in record["machines"] if machine["solved_at"] is not None]
    passed = [machine for machine in solved if has_passed(machine, record["config"])]
    among = passed or solved or record["machines"]
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
    """Put the median machine of a confirmation into the zoo. run: the folder where it was trained."""
    config = RunConfig.from_dict(record["config"])
    if record["name"] != name_of(*config.preset.split("/")):
        raise ValueError(
            f"the record calls itself {record['name']!r}, but it is one of {config.preset}: confirm it again."
        )
    if read_config(run).hash != config.hash:
        raise ValueError(f"{run} is not the run of this record: give the folder that holds it with --work.")
    machine, words = median_machine(record)
    seed = machine["seed"]
    model = load(run, seed)
    if weights_hash(model.flat_parameters()) != machine["weights_sha256"]:
        raise ValueError(f"the weights of seed {seed} in {run} are not those of the record: confirm the row again.")
    point = newest(run, config)
    assert point is not None  # `load` has found it
    metrics = [json.loads(line) for line in point.files["metrics.jsonl"].splitlines()]
    alone = dataclasses.replace(config, seeds=(seed,))
    card = Card(
        name=record["name"],
        **{part: getattr(config, part) for part in OWN},
        settings={name: value for name, value in alone.to_dict().items() if name not in OWN},
        parameters=model.flat_parameters().numel(),
        command=train_command(alone),
        seed=seed,
        solved_at=machine["solved_at"],
        episodes=machine["episodes"],
        curve=[(episodes, float(f"{bits:.4g}")) for episodes, bits in curve_of(blocks_of(seed, metrics))],
        points=[point | machine["scores"][point["label"]] for point in record["points"]],
        criteria=[c | {"met": met} for c, met in zip(record["criteria"], machine["met"], strict=True)],
        headline=record["headline"],
        chosen=words,
        environment=record["environment"],
        licence=LICENCE,
        sha256="",  # `put` knows it
    )
    return store.put(card, dict(model.named_parameters()), folder)


def train_command(config: RunConfig) -> str:
    """The line that trains the one machine of a configuration, which must be a preset's but for its episodes."""
    row, _, recipe = config.preset.partition("/")
    standard = preset(row, cast(Recipe, recipe), seeds=config.seeds)
    if preset(row, cast(Recipe, recipe), seeds=config.seeds, episodes=config.episodes).hash != config.hash:
        raise ValueError(f"{config.preset} has other settings now than in this record: confirm the row again.")
    words = ["tapehead", "train", config.task]
    words += ["--model", "lstm"] if config.model == "lstm" else ["--controller", config.model_options["controller"]]
    for key, value in (VARIANTS[row].task_options if row in VARIANTS else {}).items():
        words += ["--task-options", key, str(value)]
    given = {"recipe": (recipe, "sure"), "episodes": (config.episodes, standard.episodes)}
    given |= {"device": (config.device, "cpu"), "backend": (config.backend, "auto")}
    for name, (value, default) in given.items():
        words += [f"--{name}", str(value)] if value != default else []
    return " ".join([*words, "--seed", str(config.seeds[0])])


def config_of(card: Card) -> RunConfig:
    """The run that trains a machine of the zoo again."""
    return RunConfig.from_dict(card.settings | {part: getattr(card, part) for part in OWN})
