"""Populations of LSTMs: sequences a second of the laboratory's loop, and errors against PaperLSTM in float64.

python benchmarks/lstm_population.py [--device cuda] [--seconds 5] [--profile]

The first three cases are those that the kernels were made for: 20 networks of 3 x 256 on copy, 20 of 3 x 128 on
N-grams, 10 of 3 x 512 on repeat copy, whose sequences have up to about 120 steps; batches of 16. Compare within one
run.
"""

import argparse
import statistics
import time

import torch

from tapehead.experiment.loop import Trainer
from tapehead.losses import BINARY, CATEGORICAL
from tapehead.models.lstm import PaperLSTM
from tapehead.models.sequence import SequenceModel
from tapehead.paper.recipes import row_experiment

CASES = {
    "copy-lstm": 20,
    "ngrams-lstm": 20,
    "repeat-copy-lstm": 10,
    "associative-recall-lstm": 10,
    "priority-sort-lstm": 10,
}


def trainer_of(row: str, seeds: int, batch: int, device: str) -> Trainer:
    changes = {"seeds": tuple(range(seeds)), "training.batch_size": batch, "place.device": device}
    return Trainer(row_experiment(row, "paper", changes | {"training.early_stop": False}))


def speed(row: str, seeds: int, batch: int, device: str, seconds: float) -> str:
    """Sequences a second, the median of at least three blocks after the graphs were captured."""
    trainer = trainer_of(row, seeds, batch, device)
    trainer.prepare()
    begin = time.perf_counter()
    blocks = trainer.iter_blocks()
    for _ in range(4 if device == "cuda" else 1):
        next(blocks)
    wait(device)
    ready = time.perf_counter() - begin
    rates = []
    while len(rates) < 3 or time.perf_counter() - begin < ready + seconds:
        start, before = time.perf_counter(), trainer.episodes
        next(blocks)
        wait(device)
        rates.append(seeds * (trainer.episodes - before) / (time.perf_counter() - start))
    return (
        f"{row:24} {seeds} x batch {batch} on {trainer.backend}: {statistics.median(rates):10,.0f} sequences a second "
        f"(ready in {ready:.1f} s)"
    )


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def gate(device: str) -> None:
    """Relative errors of outputs, states, costs and gradients against torch in float64 with autograd."""
    draw = torch.Generator().manual_seed(3)
    worst: dict[str, float] = {}
    for inputs, outputs, hidden, layers, steps, batch in (
        (9, 8, 256, 3, 41, 16), (1, 1, 128, 3, 199, 16), (8, 7, 100, 2, 30, 3), (40, 33, 37, 1, 17, 50),
        (8, 8, 512, 3, 60, 1),
    ):  # fmt: skip
        exact = PaperLSTM(inputs, outputs, hidden, layers, dtype=torch.float64)
        fast = PaperLSTM(inputs, outputs, hidden, layers, device=device)
        seeds = 3
        flat = fast.initial_population([1, 2, 3]).cpu().double()
        flat += 0.1 * torch.randn(flat.shape, generator=draw, dtype=torch.float64)
        flat = flat.float().double()
        x = torch.randn(seeds, steps, batch, inputs, generator=draw).double()
        lengths = torch.randint(1, steps + 1, (seeds, batch), generator=draw)
        mask = (torch.rand(seeds, steps, batch, generator=draw) < 0.7) & (
            torch.arange(steps)[:, None] < lengths[:, None]
        )
        for loss in (BINARY, CATEGORICAL):
            bits = torch.rand(seeds, steps, batch, outputs, generator=draw)
            y = (bits < 0.5 if loss is BINARY else bits == bits.amax(-1, keepdim=True)).double()
            want = SequenceModel.loss_and_gradient(exact, flat, x, y, mask.double(), lengths, loss=loss)[:2]
            given = [part.float().to(device) for part in (flat, x, y, mask.float())] + [lengths.to(device)]
            have = fast.loss_and_gradient(*given, loss=loss)[:2]
            alone = fast.loss_and_gradient(*(part[1:2] for part in given), loss=loss)[:2]
            for name, mine, other in zip(("costs", "gradient"), have, alone, strict=True):
                assert torch.equal(mine[1:2], other), f"{name}: a seed alone differs from the same among others"
            for name, a, b in zip(("costs", "gradient"), have, want, strict=True):
                worst[name] = max(worst.get(name, 0.0), float((a.cpu().double() - b).norm() / b.norm()))
            for name in exact.split_flat(want[1]):
                a, b = (exact.split_flat(part.cpu().double())[name] for part in (have[1], want[1]))
                worst[name[:12]] = max(worst.get(name[:12], 0.0), float((a - b).norm() / b.norm()))
    print("gate:", ", ".join(f"{name} {error:.1e}" for name, error in worst.items()))


def profile(row: str, seeds: int, batch: int) -> None:
    trainer = trainer_of(row, seeds, batch, "cuda")
    blocks = trainer.iter_blocks()
    for _ in range(4):
        next(blocks)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        next(blocks)
        torch.cuda.synchronize()
    print(row)
    print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=40))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rows", nargs="*", default=list(CASES))
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    gate(given.device)
    for row in given.rows:
        print(speed(row, CASES[row], given.batch, given.device, given.seconds), flush=True)
        if given.profile:
            profile(row, CASES[row], given.batch)


if __name__ == "__main__":
    main()
