"""How the machine of the zoo that repeats a sequence counts its repeats: the picture in recipes.md.

    python docs/draw_counting.py

The count comes as pulses (not in the paper). The machine moves its write head one slot for each of them and takes it
back by one after each repeat, until it stands behind the sequence again.
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


def from_first(slots: Tensor) -> Tensor:
    """Slots as distances from slot 0, either way round the tape."""
    return torch.remainder(slots + 64, 128) - 64


def says(write: Tensor) -> list[str]:
    """Where the write head is, [T, B] of distances."""
    moves = write[1:] - write[:-1]
    out = moves[PULSES - 1 : ANSWER - 1]
    ends = range(ANSWER + LENGTH - 1, STEPS - LENGTH, LENGTH)  # the last step of each repeat but the last
    back = torch.stack([write[end + LENGTH] - write[end] for end in ends])
    step = out.mode().values.mode().values
    return [
        f"the write head moves by {int(step)} at {(out == step).float().mean():.1%} of the pulses",
        f"and by {-int(step)} in the course of {(back == -step).float().mean():.1%} of the repeats",
    ]


@style.look()
def draw(pulses: Tensor, write: Tensor, read: Tensor) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 4.6), layout="constrained")
    top, *heads = figure.subplots(3, 1, sharex=True, height_ratios=(0.35, 1.0, 1.0))
    top.bar(torch.arange(STEPS) + 0.5, pulses, color=style.BLUE)
    top.set(title=f"Pulses: {REPEATS} repeats are asked for", yticks=[])
    titles = {"Write head: one slot for each pulse, one back for each repeat": write, "Read head: the sequence": read}
    places = torch.tensor(list(SHOWN)).remainder(128)
    for axis, (title, weightings) in zip(heads, titles.items(), strict=True):
        extent = (0, STEPS, SHOWN.stop, SHOWN.start)
        axis.imshow(weightings[:, places].T.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=extent, aspect="auto")
        axis.set(title=title, ylabel="slot from the first")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
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
    print("\n".join(says(from_first(write.argmax(dim=-1)))))
    figure = draw(batch.inputs[:, 0, -1], write[:, 0], read[:, 0])
    svg, png = style.save(figure, Path(__file__).with_name("images"), "counting")
    svg.unlink()  # images of heads
    print(png)


if __name__ == "__main__":
    main()
