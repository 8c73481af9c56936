"""The picture in recipes.md: why a feedforward controller repeats no more vectors than in training where rows have
addresses, and what it does where they have none.

    python docs/draw_repeats.py             trains both machines (about three minutes on one core), then draws

With addresses the write head is parked, between two repeats, on rows behind the sequence that it finds by their digits.
Up to ten vectors never use the digit of 16, so at sixteen vectors it takes rows of the sequence for free ones. Without
addresses, with a write gate and a head that stays sharp, it is held behind the sequence. Repeats begin at the orange
lines; this machine writes backwards from the end of the tape.
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tapehead.experiment.loop import Trainer
from tapehead.figures import style
from tapehead.figures.run_model import run_with_trace
from tapehead.models.sequence import SequenceModel
from tapehead.paper.recipes import row_experiment
from tapehead.streams import stream
from tapehead.tasks import Batch, Task

ROW = "repeat-copy-ntm-feedforward"
ADDRESSES = {
    "model.initial_memory": "addresses", "model.initial_memory_scale": 1.0, "model.initial_reads": "zeros",
    "model.write_gate": False, "model.write_gate_bias": 0.0, "model.sharpen_bias": 0.0, "model.strength_bias": 5.0,
    "clipping.limit": 1.0, "optimiser.learning_rate": 5e-4, "training.episodes": 100_000, "training.batch_size": 1,
    "training.slots": (40, 128), "seeds": (9100,),
}  # fmt: skip
SHOWN, REPEATS, SEQUENCES = 48, 4, 100  # slots
LENGTHS = (5, 10, 12, 14, 15, 16, 18, 20)


def machine(changes: dict[str, Any]) -> tuple[SequenceModel, Task]:
    trainer = Trainer(row_experiment(ROW, "once", changes))
    for _ in trainer.iter_blocks():
        pass
    trainer.model.load_flat(trainer.population.delivered()[0])
    return trainer.model.eval(), trainer.task


def sample(task: Task, length: int, repeats: int) -> Batch:
    return task.sample(stream(0, "repeats", 0), batch_size=SEQUENCES, length=length, repeats=repeats)


def wrong(task: Task, logits: Tensor, batch: Batch) -> Tensor:
    """Bools [T, B]."""
    return task.loss.errors(logits, batch.targets).any(dim=-1) & (batch.mask != 0)


def said(model: SequenceModel, task: Task) -> str:
    """How many of 100 sequences are wrong at each length, ten repeats."""
    counts = []
    for length in LENGTHS:
        batch = sample(task, length, 10)
        counts.append((length, int(wrong(task, run_with_trace(model, batch)[0], batch).any(dim=0).sum())))
    return ", ".join(f"{count} at {length}" for length, count in counts)


@style.look()
def draw() -> Figure:
    old, task = machine(ADDRESSES)
    new, _ = machine({"seeds": (9101,)})
    print(f"wrong of {SEQUENCES} at ten repeats: with addresses {said(old, task)}; without {said(new, task)}")
    figure = Figure(figsize=(style.WIDTH, 4.6), layout="constrained")
    axes = figure.subplots(2, 3, sharey="col")
    columns = (("addresses", old, 15), ("addresses", old, 16), ("rows alike", new, 16))
    for (write, read), (name, model, length) in zip(axes.T, columns, strict=True):
        batch = sample(task, length, REPEATS)
        logits, trace = run_with_trace(model, batch)
        mistakes = wrong(task, logits, batch)
        write.set_title(f"{name}: {length} vectors, {int(mistakes.any(dim=0).sum())} of {SEQUENCES} wrong")
        slots = trace.write.weightings.shape[-1]
        low = 0 if int(trace.write.weightings[length, 0, 0].argmax()) < slots // 2 else slots - SHOWN
        for axis, heads in ((write, trace.write), (read, trace.read)):
            weightings = heads.weightings[:, 0, 0, low : low + SHOWN].T.numpy()
            axis.imshow(weightings, cmap=style.GREYS, vmin=0, vmax=1, extent=(0, len(logits), low + SHOWN, low))
            for repeat in range(REPEATS):
                axis.axvline(length + 1 + repeat * length, color=style.ORANGE, linewidth=0.8)
        read.set_xlabel("time step")
    for axis, label in zip(axes[:, 0], ("write head, slot", "read head, slot"), strict=True):
        axis.set_ylabel(label)
    return figure


if __name__ == "__main__":
    torch.set_num_threads(1)
    svg, png = style.save(draw(), Path(__file__).with_name("images"), "repeats")
    svg.unlink()
    print(png)
