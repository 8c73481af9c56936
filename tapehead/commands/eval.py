"""`tapehead eval`: score a run's machines again, on more sequences or another backend."""

import json
from typing import TYPE_CHECKING

from rich.console import Console

from tapehead.commands.options import check_device
from tapehead.commands.tables import score_table
from tapehead.evaluation.generalisation import generalisation
from tapehead.training.runs import delivered, machine, newest, read_config

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Eval") -> int:
    if options.episodes < 1:
        raise ValueError(f"--episodes is {options.episodes}, but at least 1 sequence must be scored.")
    check_device(options.device)
    config = read_config(options.run)
    task, model = machine(config)
    model.to(options.device).choose_backend(options.backend)
    model.backend_in_use()  # refuses a backend that cannot run here
    point = newest(options.run, config)
    if point is None:
        raise ValueError(f"{options.run} has no checkpoint yet: train it first.")
    weights = delivered(point, config, model).to(options.device)
    scores = generalisation(model, weights, task, options.episodes)
    result = {"seeds": list(config.seeds), "generalisation": [score.to_dict() for score in scores]}
    console = Console(highlight=False)
    console.print(score_table(result))
    if not console.is_terminal:
        print(json.dumps(result))
    return 0
