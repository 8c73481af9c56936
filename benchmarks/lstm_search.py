"""Search for the LSTM's recipes: several learning rates in one population.

python benchmarks/lstm_search.py --rows copy-lstm ngrams-lstm --optimiser adam --rates 3e-4 1e-3 3e-3 --seeds 3 \\
    --episodes 200000 --set clipping.kind=norm clipping.limit=1.0 --out search.json

Seeds are tuning seeds, from 9000 on. A setting's result is the median over its seeds of the mean cost of the last 10 %
of the sequences, in bits over the best possible. All seeds are written to the file, with their curves, after those that
it has.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.experiment.metrics import Line
from tapehead.lab.blocks import blocks_of, curve_of, mean_bits
from tapehead.paper.recipes import row_experiment

FIRST_SEED = 9000


class RatesTrainer(Trainer):
    """Seeds of one experiment, each at a multiple of its learning rate."""

    def __init__(self, experiment: Experiment, multiples: list[float]) -> None:
        super().__init__(experiment)
        self._multiples = torch.tensor(multiples, device=self.device)

    def _rates(self, done: list[int], updates: int) -> Tensor:
        return super()._rates(done, updates) * self._multiples[self.seeds.index.to(self.device)]


def search(row: str, given: argparse.Namespace, changes: dict[str, Any]) -> list[dict[str, Any]]:
    places = [FIRST_SEED + i for i in range(given.seeds * len(given.rates))]
    episodes = given.episodes if row != "repeat-copy-lstm" else given.episodes // given.less_of_repeat_copy
    changes = changes | {
        "seeds": tuple(places), "optimiser.name": given.optimiser, "optimiser.learning_rate": given.rates[0],
        "training.episodes": episodes, "training.batch_size": given.batch, "training.early_stop": False,
        "place.device": given.device,
    }  # fmt: skip
    experiment = row_experiment(row, "tuned", changes)
    multiples = [rate / given.rates[0] for rate in given.rates for _ in range(given.seeds)]
    begin = time.perf_counter()
    trainer = RatesTrainer(experiment, multiples)
    trainer.prepare()
    for _ in trainer.iter_blocks():
        if time.perf_counter() - begin > given.seconds:
            break
    seconds = time.perf_counter() - begin
    lines = [Line.from_json(line) for line in trainer.metrics]
    found = []
    for place, seed in enumerate(places):
        blocks = blocks_of(seed, lines)
        last = [block for block in blocks if block.end > 0.9 * trainer.episodes]
        found.append(
            {
                "row": row, "optimiser": given.optimiser, "rate": given.rates[place // given.seeds], "seed": seed,
                "batch": given.batch, "set": given.set, "episodes": trainer.episodes, "planned": episodes,
                "bits": round(mean_bits(last), 4),
                "curve": [(end, round(bits, 4)) for end, bits in curve_of(blocks, 60)],
            }
        )  # fmt: skip
    for rate in given.rates:
        bits = sorted(one["bits"] for one in found if one["rate"] == rate)
        shown = ", ".join(f"{value:.3f}" for value in bits)
        print(
            f"{row:24} {given.optimiser:7} {rate:.0e} batch {given.batch} {' '.join(given.set)}: "
            f"median {statistics.median(bits):8.3f} of {shown} after {trainer.episodes:,} in {seconds:.0f} s "
            f"({len(places) * trainer.episodes / seconds:,.0f}/s)",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", required=True)
    parser.add_argument("--optimiser", default="adam")
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--episodes", type=int, default=200_000)
    parser.add_argument("--less-of-repeat-copy", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop a row after so long")
    parser.add_argument("--set", nargs="*", default=[], help="settings as path=value")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    changes = {}
    for pair in given.set:
        path, _, value = pair.partition("=")
        try:
            changes[path] = json.loads(value)
        except json.JSONDecodeError:
            changes[path] = value
    found = [one for row in given.rows for one in search(row, given, changes)]
    before = json.loads(given.out.read_text()) if given.out.exists() else []
    given.out.write_text(json.dumps(before + found) + "\n")


if __name__ == "__main__":
    main()
