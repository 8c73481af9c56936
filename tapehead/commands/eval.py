"""`tapehead eval`: score a run's machines again, on more sequences or another backend."""

import json
import sys
from typing import TYPE_CHECKING

from tapehead.commands.options import check_count, check_device
from tapehead.commands.tables import print_table, score_table
from tapehead.experiment.folder import read_config
from tapehead.experiment.run import evaluate

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Eval") -> int:
    check_count("--episodes", options.episodes)
    check_device(options.device)
    seeds = read_config(options.run).seeds
    scores = evaluate(options.run, sequences=options.episodes, device=options.device, backend=options.backend)
    print_table(score_table(seeds, scores))
    if not sys.stdout.isatty():
        print(json.dumps({"seeds": list(seeds), "generalisation": [score.to_plain() for score in scores]}))
    return 0
