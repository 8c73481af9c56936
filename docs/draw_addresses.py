"""How a machine without a state of its own remembers bits, the zoo's for N-grams: the picture in recipes.md.

    python docs/draw_addresses.py

Every row of its memory begins with its own number in binary. The read head moves from row to row so that the digits of
the number are the last five bits: the machine's memory of them is where its head is.
"""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import tapehead
from tapehead.figures import style
from tapehead.models.config import ADDRESS_DIGITS

SEQUENCES, CONTEXT, FIRST, SHOWN = 100, 5, 12, 60  # FIRST: a step by which all of the context has been seen
AGO = ("last", "one before", "two before", "three before", "four before")


def last_bits(inputs: Tensor) -> Tensor:
    """The last bits seen at each step from FIRST on, the newest first.   inputs [T, B] -> [CONTEXT, T - FIRST, B]"""
    return torch.stack([inputs[FIRST - ago : len(inputs) - ago] for ago in range(CONTEXT)])


def digits_of(slots: Tensor) -> Tensor:
    """Binary digits of slot numbers, the lowest first.   [T, B] -> [digits, T - FIRST, B]"""
    return torch.stack([(slots[FIRST:] >> place) & 1 for place in range(ADDRESS_DIGITS)])


def shares(digits: Tensor, bits: Tensor) -> Tensor:
    """How often each digit is each of the last bits, [digits, CONTEXT]."""
    return (digits.unsqueeze(1) == bits).float().mean(dim=(2, 3))


@style.look()
def draw(bits: Tensor, digits: Tensor, names: list[str], weightings: Tensor) -> Figure:
    """bits and digits [CONTEXT, steps], weightings [steps, slots]."""
    figure = Figure(figsize=(style.WIDTH, 5.2), layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True, height_ratios=(0.6, 0.6, 1.0))
    _strips(above, bits, list(AGO), "The last five bits")
    _strips(middle, digits, names, "Digits of the number of the row that the read head is on")
    extent = (0, SHOWN, weightings.shape[1], 0)
    below.imshow(weightings.T.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=extent, aspect="auto")
    below.set(title="Read head", ylabel="slot", xlabel="time step; white is one")
    return figure


def _strips(axis: Axes, values: Tensor, names: list[str], title: str) -> None:
    axis.imshow(values.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=(0, SHOWN, CONTEXT, 0), aspect="auto")
    axis.set(title=title, yticks=[place + 0.5 for place in range(CONTEXT)], yticklabels=names)
    axis.hlines(range(1, CONTEXT), 0, SHOWN, color="white", linewidth=1.5)


def main() -> None:
    machine = tapehead.load("ngrams-ntm-feedforward")
    batch = tapehead.make_task("ngrams").sample(tapehead.stream(seed=3, name="look", step=0), batch_size=SEQUENCES)
    with torch.no_grad():
        _, _, trace = machine(batch.inputs, return_trace=True)
    weightings = trace.read.weightings[:, :, 0]
    bits, digits = last_bits(batch.inputs[..., 0].long()), digits_of(weightings.argmax(dim=-1))
    same = shares(digits, bits)
    best = (same - 0.5).abs().argmax(dim=0)  # the digit for each of the last bits
    flipped = same[best, range(CONTEXT)] < 0.5
    said = torch.where(flipped.view(-1, 1, 1), 1 - digits[best], digits[best])
    names = [f"{'not ' if no else ''}digit {place}" for place, no in zip(best.tolist(), flipped.tolist(), strict=True)]
    for ago, name, share in zip(AGO, names, (said == bits).float().mean(dim=(1, 2)).tolist(), strict=True):
        print(f"{name} is the {ago} bit at {share:.1%} of all steps")
    shown = slice(0, SHOWN)
    figure = draw(bits[:, shown, 0], said[:, shown, 0], names, weightings[FIRST:][shown, 0])
    svg, png = style.save(figure, Path(__file__).with_name("images"), "addresses")
    svg.unlink()  # images of heads
    print(png)


if __name__ == "__main__":
    main()
