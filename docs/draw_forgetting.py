"""The picture in recipes.md: the same seed with forget gates that start open and with ones that start closed.

    python docs/draw_forgetting.py          trains both machines (about two minutes on one core), then draws

The recipe is that of `tapehead train copy`; all that differs is where the forget gates start.
"""

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from tapehead.experiment.loop import Trainer
from tapehead.figures import style
from tapehead.models.ntm import NTM
from tapehead.paper.recipes import row_experiment
from tapehead.streams import stream
from tapehead.tasks import Batch

SEED, LENGTH, LONGEST_TRAINED = 16, 120, 20
STARTS = {"forget gates start at +1": 1.0, "forget gates start at -2": -2.0}


def machine(forget_bias: float) -> tuple[NTM, Batch]:
    """A trained machine, and one long sequence."""
    changes = {"seeds": (SEED,), "model.forget_bias": forget_bias}
    trainer = Trainer(row_experiment("copy-ntm-lstm", "tuned", changes))
    for _ in trainer.iter_blocks():
        pass
    assert isinstance(trainer.model, NTM)
    trainer.model.load_flat(trainer.population.delivered()[0])
    return trainer.model, trainer.task.sample(stream(0, "evaluation", 0), batch_size=8, length=LENGTH)


@torch.no_grad()
def cell_sizes(model: NTM, batch: Batch) -> np.ndarray:
    """Root mean square of the controller's cell state at every step."""
    sizes, state = [], None
    for x in batch.inputs:
        _, state = model(x.unsqueeze(0), state)
        sizes.append(float(state.cell.square().mean().sqrt()))
    return np.array(sizes)


@style.look()
def draw() -> Figure:
    figure = Figure(figsize=(style.WIDTH, 6.2), layout="constrained")
    axes = figure.subplots(3, 2, sharex=True, sharey="row", height_ratios=(1.0, 1.3, 1.3))
    for column, (title, forget_bias) in enumerate(STARTS.items()):
        model, batch = machine(forget_bias)
        sizes = cell_sizes(model, batch)
        with torch.no_grad():
            y, _, trace = model(batch.inputs[:, :1], return_trace=True)
        steps = len(sizes)
        top, write, read = axes[:, column]
        wrong = int((((y[:, 0] > 0).float() != batch.targets[:, 0]) & (batch.mask[:, :1] > 0)).sum())
        top.set_title(f"{title}: {wrong:,} of {8 * LENGTH:,} bits wrong at length {LENGTH}")
        top.plot(sizes, color=style.BLUE)
        top.axvspan(0, LONGEST_TRAINED, color=style.UNSCORED, zorder=0)
        for axis, weightings in ((write, trace.write.weightings), (read, trace.read.weightings)):
            axis.imshow(weightings[:, 0, 0].T.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=(0, steps, 128, 0))
            axis.axvline(LENGTH, color=style.ORANGE, linewidth=0.8)
        read.set_xlabel("time step; the answer begins at the orange line")
    for axis, label in zip(axes[:, 0], ("size of the cell state", "write head, slot", "read head, slot"), strict=True):
        axis.set_ylabel(label)
    axes[0, 0].set_ylim(bottom=0)
    label = "input steps in training"
    axes[0, 0].annotate(
        label, (LONGEST_TRAINED, 1), (4, -10), xycoords=("data", "axes fraction"), textcoords="offset points"
    )
    return figure


if __name__ == "__main__":
    svg, png = style.save(draw(), Path(__file__).with_name("images"), "forgetting")
    svg.unlink()  # two large images of heads
    print(png)
