"""Several seeds of two settings, compared: medians of the learning curves with quartile bands.

    python examples/many_seeds.py --out runs/many-seeds

The question: does a controller whose forget gates start closed learn to copy faster? One figure is written,
many-seeds.png, beside the two run folders; the same command again resumes or redraws.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import tapehead
from tapehead.experiment.folder import read_metrics

SETTINGS = {"forget gates start open (+1)": 1.0, "forget gates start closed (-2)": -2.0}


def experiment(forget_bias: float, seeds: int, episodes: int) -> tapehead.Experiment:
    return tapehead.Experiment(
        task=tapehead.make_task("copy", length=(1, 10)),
        model=tapehead.Model(options={"forget_bias": forget_bias, "memory_slots": 32}),
        optimiser=tapehead.Graves(learning_rate=3e-4),
        training=tapehead.Training(episodes=episodes, early_stop=False),
        evaluation=tapehead.Evaluation(sizes=({"length": 20},), sequences=50),
        seeds=tuple(range(seeds)),
    )


def curves(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Episodes [blocks], and the cost in bits of every seed [blocks, seeds]. Without early stop no seed is missing."""
    lines = read_metrics(folder)
    return np.array([line.episodes for line in lines]), np.array([line.bits for line in lines], dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/many-seeds"), help="the folder of runs and figure")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for number, (label, forget_bias) in enumerate(SETTINGS.items()):
        folder = options.out / f"forget-bias{forget_bias:+g}"
        result = tapehead.train(experiment(forget_bias, options.seeds, options.episodes), folder)
        print(f"{label}: {result.solved} of {len(result.seeds)} seeds solved")
        print(f"  median at length 20: {np.median(result.generalisation[0].costs):.3g} bits")
        episodes, bits = curves(folder)
        low, median, high = np.nanquantile(bits, (0.25, 0.5, 0.75), axis=1)
        axes.plot(episodes, median, color=f"C{number}", label=label)
        axes.fill_between(episodes, low, high, color=f"C{number}", alpha=0.25, linewidth=0)
    axes.set(xlabel="training sequences", ylabel="bits per sequence", title="Copy: median and quartiles of the seeds")
    axes.legend()
    figure.savefig(options.out / "many-seeds.png", dpi=150)
    print(options.out / "many-seeds.png")


if __name__ == "__main__":
    main()
