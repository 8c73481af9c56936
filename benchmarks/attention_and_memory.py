"""Sequential memory access against parallel attention: the experiments, and the commands that run them on a GPU.

    python benchmarks/attention_and_memory.py --out runs/attention

writes an experiment for each of the paper's five tasks and each system (the NTM and the LSTM with their tuned recipes,
the Transformer with rotary positions, ALiBi and none), and `commands.txt`, a `tapehead confirm` of ten held-out seeds
for each. All systems of a task are trained on equal numbers of sequences, those of the NTM's recipe. The Transformer
comes in two sizes: 4 layers of 128, and of the width whose number of parameters is nearest to the NTM's.
"""

import argparse
import dataclasses
from pathlib import Path

from tapehead.experiment.config import Experiment
from tapehead.models.transformer.model import Transformer
from tapehead.paper.recipes import general_experiment, row_experiment
from tapehead.paper.tables import PAPER_TASKS

LAYERS = 4
FEW_HEADS = 2
"""Of the smaller Transformers: their widths come in steps of twice as many."""
POSITIONS = ("rotary", "alibi", "none")
SEEDS = 10


def parameters(experiment: Experiment) -> int:
    return sum(parameter.numel() for parameter in experiment.build().parameters())


def width_of(target: int, inputs: int, outputs: int) -> int:
    """The hidden size whose Transformer has nearly `target` parameters: a multiple of 2 x FEW_HEADS."""

    def count(width: int) -> int:
        model = Transformer(inputs, outputs, width, LAYERS, num_heads=FEW_HEADS, device="meta")
        return sum(parameter.numel() for parameter in model.parameters())

    return min(range(2 * FEW_HEADS, 513, 2 * FEW_HEADS), key=lambda width: abs(count(width) - target))


def experiments(task: str) -> dict[str, Experiment]:
    """The experiments of a task by the name of the system."""
    ntm = row_experiment(f"{task}-ntm-lstm")
    episodes = ntm.training.episodes
    found = {"ntm": ntm, "lstm": row_experiment(f"{task}-lstm", changes={"training.episodes": episodes})}
    nearest = width_of(parameters(ntm), ntm.task.input_size, ntm.task.output_size)
    for size, width, heads in (("128", 128, 4), ("equal", nearest, FEW_HEADS)):
        for positions in POSITIONS:
            settings = {"model.hidden_size": width, "model.num_layers": LAYERS, "model.num_heads": heads}
            settings |= {"model.positions": positions, "training.episodes": episodes}
            found[f"transformer-{size}-{positions}"] = general_experiment(task, "transformer", settings)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/attention"), help="folder for the experiments")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    commands = []
    for task in PAPER_TASKS:
        for system, experiment in experiments(task).items():
            path = out / f"{task}-{system}.toml"
            path.write_text(dataclasses.replace(experiment, recipe=f"{task}, {system}").to_toml())
            commands.append(f"tapehead confirm {path} --seeds {SEEDS} --device cuda --work {out} --out {out}/results")
            print(f"{path}: {parameters(experiment):,} parameters, {experiment.training.episodes:,} sequences")
    (out / "commands.txt").write_text("\n".join(commands) + "\n")


if __name__ == "__main__":
    main()
