"""`tapehead figures`: the pictures of a run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tapehead.training.runs import load, machine, newest, read_config, read_result

if TYPE_CHECKING:
    from tapehead import cli


def run(options: "cli.Figures") -> int:
    for picture in draw(options.run, options.seed):
        print(picture)
    return 0


def draw(folder: Path, seed: int | None) -> list[Path]:
    """All pictures of a run; of a population, by default, those of the machine of median quality."""
    from tapehead.figures.run import draw_run

    config = read_config(folder)
    seed = median_seed(folder) if seed is None else seed
    model = load(folder, seed)
    point = newest(folder, config)
    assert point is not None  # `load` has found it
    lines = point.files["metrics.jsonl"].splitlines()
    task, _ = machine(config)
    return draw_run(folder, model, task, seed=seed, metrics=[json.loads(line) for line in lines])


def median_seed(folder: Path) -> int:
    """The seed whose cost at the largest size is the median of the population: neither the luckiest nor the worst."""
    config = read_config(folder)
    result = read_result(folder)
    if result is None or len(config.seeds) == 1:
        return config.seeds[0]
    bits = result["generalisation"][-1]["bits"]
    order = sorted(range(len(bits)), key=lambda i: bits[i])
    return config.seeds[order[(len(order) - 1) // 2]]
