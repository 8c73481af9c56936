"""`tapehead eval`: score a run's machines again, on more sequences or another backend."""

import json
import sys
from typing import TYPE_CHECKING

from tapehead.commands.options import check_count, check_device
from tapehead.commands.tables import score_table, show
from tapehead.evaluation.generalisation import generalisation
from tapehead.training.runs import delivered, machine, newest, read_config

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Eval") -> int:
    check_count("--episodes", options.episodes)
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
    show(score_table(result))
    if not sys.stdout.isatty():
        print(json.dumps(result))
    return 0
