"""A task of your own, from training to figures: train half of it, resume, evaluate at longer sizes, draw.

    python examples/own_task.py --out runs/own-task

The task: symbols come one by one, and after a delimiter those that were seen last must be said first, every other one
left out. Answers are symbols, so its loss is categorical.
"""

import argparse
import dataclasses
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

import tapehead
from tapehead.figures.draw import draw_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class EveryOther(tapehead.Task):
    """length: pairs of symbols in a sequence. symbols: how many different ones there are."""

    length: tapehead.Size = (1, 5)
    symbols: int = 4

    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    loss: ClassVar[tapehead.Loss] = tapehead.CATEGORICAL
    generalisation: ClassVar = ({"length": 5}, {"length": 10})

    @property
    def input_size(self) -> int:
        return self.symbols + 1

    @property
    def output_size(self) -> int:
        return self.symbols

    def draw(self, draws: tapehead.Stream, rows: int, sizes: Mapping[str, tuple[int, int]]) -> tapehead.Batch:
        pairs = draws.integers(rows, 1, *sizes["length"])  # [*lead, B, 1]
        longest = int(pairs.max())
        symbols = draws.integers(rows, 2 * longest, 0, self.symbols - 1)  # [*lead, B, 2 L]
        time = torch.arange(3 * longest + 1, device=draws.device)
        place = time - 2 * pairs - 1  # in the answer, [*lead, B, T]
        answering = (place >= 0) & (place < pairs)

        def symbols_at(places: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
            found = symbols.gather(-1, places.clamp(0, 2 * longest - 1))
            return one_hot(found, self.symbols).float() * where.unsqueeze(-1)

        seen = symbols_at(time.expand_as(place), time < 2 * pairs)
        inputs = torch.cat([seen, (time == 2 * pairs).float().unsqueeze(-1)], dim=-1)
        targets = symbols_at(2 * (pairs - place) - 1, answering)
        in_time = (inputs.transpose(-3, -2), targets.transpose(-3, -2), answering.float().transpose(-2, -1))
        return tapehead.Batch(*in_time, 3 * pairs.squeeze(-1) + 1)


class StopAfter(tapehead.Observer):
    """An observer that sends this process what Ctrl-C sends, after so many updates."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def begin(self, status: tapehead.Status) -> None:
        print(f"training from episode {status.episodes:,} on, {status.backend} backend")

    def block(self, status: tapehead.Status) -> None:
        if status.updates >= self.updates:
            signal.raise_signal(signal.SIGINT)

    def stopping(self, signal_name: str) -> None:
        print(f"{signal_name}: the run stops after this block")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/own-task"), help="the run's folder")
    parser.add_argument("--quick", action="store_true", help="train too little to learn it")
    options = parser.parse_args()
    updates = 300 if options.quick else 40_000
    experiment = tapehead.Experiment(
        task=EveryOther(),
        model=tapehead.Model(options={"controller_size": 64, "memory_slots": 32, "order": "read_then_write"}),
        optimiser=tapehead.Graves(learning_rate=3e-4),
        training=tapehead.Training(episodes=updates, average=0.998, early_stop=False),
        evaluation=tapehead.Evaluation(sequences=20 if options.quick else 200),
    )
    try:
        tapehead.train(experiment, options.out, observer=StopAfter(updates // 2))
    except tapehead.Interrupted as stop:
        print(f"{stop}; the same call resumes")
    result = tapehead.train(experiment, options.out, observer=StopAfter(2 * updates))
    for score in [*result.generalisation, *tapehead.evaluate(options.out, sizes={"length": 8}, sequences=20)]:
        print(f"{score.label}: {score.costs[0]:.3g} bits per sequence, {score.wrong[0]:.3g} wrong symbols")
    for path in draw_run(options.out):
        print(path)


if __name__ == "__main__":
    import own_task  # under its own name, so that the run says own_task:EveryOther and any process can resume it

    own_task.main()
