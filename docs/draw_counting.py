"""How the machine of the zoo that repeats a sequence counts its repeats: the picture in recipes.md.

    python docs/draw_counting.py

The count comes as pulses (not in the paper). With each of them the machine writes the same, faintly, on all slots.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

import tapehead
from tapehead.pictures import style

LENGTH, REPEATS, SEQUENCES = 5, 6, 100
PULSES = LENGTH + 1  # the step of the first
ANSWER = PULSES + REPEATS
STEPS = ANSWER + LENGTH * REPEATS + 1  # and the end marker
SHOWN = range(-12, 2)  # slots, counted from the first


FREE = 60  # a slot that no sequence here comes near


def level(memory: Tensor) -> Tensor:
    """How far a free slot has gone in the direction in which the pulses took it, [T], the mean of all sequences."""
    way = memory[:, :, FREE] - memory[PULSES - 1, :, FREE]  # [T, B, M]
    pulses = way[ANSWER - 1]
    return ((way * pulses).sum(dim=-1) / pulses.norm(dim=-1)).mean(dim=-1)


def says(write: Tensor, levels: Tensor) -> list[str]:
    """Where the write head has how much of its weight, [T, B, N], and the level after each pulse."""
    most = write.max(dim=-1).values
    spans = {"while the sequence comes in": most[:LENGTH], "from the second pulse on": most[PULSES + 1 : ANSWER]}
    lines = [f"{when}, {part.min():.2f} to {part.max():.2f} of it on one slot" for when, part in spans.items()]
    return [*lines, "level after each pulse: " + ", ".join(f"{value:.2f}" for value in levels[PULSES:ANSWER])]


@style.look()
def draw(pulses: Tensor, levels: Tensor, write: Tensor, read: Tensor) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 5.4), layout="constrained")
    top, tape, *heads = figure.subplots(4, 1, sharex=True, height_ratios=(0.35, 0.7, 1.0, 1.0))
    top.bar(torch.arange(STEPS) + 0.5, pulses, color=style.BLUE)
    top.set(title=f"Pulses: {REPEATS} repeats are asked for", yticks=[])
    tape.step(torch.arange(STEPS) + 1, levels, where="pre", color=style.BLUE)
    tape.set(title=f"The level of a slot that is not used (slot {FREE}): as far for each pulse")
    titles = {"Write head: on all slots at once while it counts": write, "Read head: the sequence": read}
    places = torch.tensor(list(SHOWN)).remainder(128)
    for axis, (title, weightings) in zip(heads, titles.items(), strict=True):
        extent = (0, STEPS, SHOWN.stop, SHOWN.start)
        axis.imshow(weightings[:, places].T.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=extent, aspect="auto")
        axis.set(title=title, ylabel="slot from the first")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (tape, *heads):
        for step in range(ANSWER, STEPS, LENGTH):
            axis.axvline(step, color=style.ORANGE, linewidth=0.8)
    heads[-1].set_xlabel("time step; a repeat begins at each orange line, the end marker at the last")
    return figure


def main() -> None:
    machine = tapehead.load("repeat-copy-pulses-ntm-lstm")
    task = tapehead.make_task("repeat-copy", count="pulses")
    source = tapehead.stream(seed=5, name="look", step=0)
    batch = task.sample(source, batch_size=SEQUENCES, length=LENGTH, repeats=REPEATS)
    assert len(batch.inputs) == STEPS
    with torch.no_grad():
        _, _, trace = machine(batch.inputs, return_trace=True)
    write, read = (heads.weightings[:, :, 0] for heads in (trace.write, trace.read))
    levels = level(trace.memory)
    print("\n".join(says(write, levels)))
    figure = draw(batch.inputs[:, 0, -1], levels, write[:, 0], read[:, 0])
    svg, png = style.save(figure, Path(__file__).with_name("images"), "counting")
    svg.unlink()  # images of heads
    print(png)


if __name__ == "__main__":
    main()
