"""`tapehead eval`: score a run's machines again, on more sequences or another backend."""

import json

from rich.console import Console

from tapehead import cli
from tapehead.commands.tables import score_table
from tapehead.evaluation.generalisation import generalisation
from tapehead.models import make_model
from tapehead.tasks import make_task
from tapehead.training import checkpoint
from tapehead.training.runs import delivered, read_config


def run(options: cli.Eval) -> int:
    if options.episodes < 1:
        raise ValueError(f"--episodes is {options.episodes}, but at least 1 sequence must be scored.")
    config = read_config(options.run)
    point = checkpoint.load_newest(options.run / "checkpoints")
    if point is None:
        raise ValueError(f"{options.run} has no checkpoint yet: train it first.")
    task = make_task(config.task, **config.task_options)
    model = make_model(config.model, task, options.backend, **config.model_options)
    scores = generalisation(model, delivered(point), task, options.episodes)
    result = {"seeds": list(config.seeds), "generalisation": [score.to_dict() for score in scores]}
    console = Console(highlight=False)
    console.print(score_table(result))
    if not console.is_terminal:
        print(json.dumps(result))
    return 0
