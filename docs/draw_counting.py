"""How the machine of the zoo that repeats a sequence counts its repeats: the picture in recipes.md, and the figures
beside it.

    python docs/draw_counting.py

The count comes as pulses (not in the paper). The write head is an abacus: one slot on for each pulse, one back for each
repeat. Move it by a slot while the machine answers, and there is one repeat more, or one less.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

import tapehead
from tapehead.pictures import style
from tapehead.tasks import Batch

LENGTH, REPEATS, SEQUENCES = 5, 6, 50
PULSES = LENGTH + 1  # the step of the first
ANSWER = PULSES + REPEATS
STEPS = ANSWER + LENGTH * REPEATS + 1  # and the end marker
SLOTS = LENGTH + REPEATS + 2  # that are shown
LARGEST = (20, 20)  # vectors and repeats at which it was asked for no wrong bit


def sample(length: int, repeats: int) -> Batch:
    task = tapehead.make_task("repeat-copy", count="pulses")
    source = tapehead.stream(seed=5, name="look", step=0)
    return task.sample(source, batch_size=SEQUENCES, length=length, repeats=repeats)


def abacus(length: int, repeats: int) -> Tensor:
    """The slot of the write head from the second pulse on, if it is one; -1 where it changes, [T]."""
    pulses = [length + k for k in range(1, repeats)]
    answer = [[-1] + [length + repeats - k] * (length - 1) for k in range(repeats)]
    return torch.tensor([*pulses, *(slot for one in answer for slot in one)])


@torch.no_grad()
def follows(machine: torch.nn.Module, length: int, repeats: int) -> float:
    """In which share of the steps the write head is where an abacus has it."""
    _, _, trace = machine(sample(length, repeats).inputs, return_trace=True)
    expected = abacus(length, repeats)
    slots = trace.write.weightings[:, :, 0].argmax(dim=-1)[length + 2 :][: len(expected)]  # [T, B]
    return float((slots == expected.unsqueeze(-1))[expected >= 0].float().mean())


@torch.no_grad()
def repeats_after(machine: torch.nn.Module, moved: int) -> int:
    """How many of the sequences are said `moved` times more, and rightly, if the write head is moved by as many slots
    while the machine answers."""
    batch = sample(LENGTH, REPEATS)
    end = LENGTH * (REPEATS + moved)  # of what is expected then
    inputs = torch.cat([batch.inputs, torch.zeros_like(batch.inputs[:LENGTH])])
    begun, state = machine(inputs[: ANSWER + LENGTH // 2])
    state = state._replace(write_weightings=state.write_weightings.roll(moved, dims=-1))
    rest, _ = machine(inputs[ANSWER + LENGTH // 2 :], state)
    said = (torch.cat([begun, rest])[ANSWER:][: end + 1] > 0).float()
    width = said.shape[-1] - 1
    wanted = torch.zeros_like(said)
    wanted[:end, :, :width] = batch.inputs[:LENGTH, :, :width].repeat(REPEATS + moved, 1, 1)
    wanted[end, :, width] = 1
    wrong = said != wanted
    wrong[end, :, :width] = False  # beside the end marker anything may be said
    return int((~wrong).all(dim=(0, 2)).sum())


@style.look()
def draw(pulses: Tensor, write: Tensor, read: Tensor) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 4.6), layout="constrained")
    top, *heads = figure.subplots(3, 1, sharex=True, height_ratios=(0.3, 1.0, 1.0))
    top.bar(torch.arange(STEPS) + 0.5, pulses, color=style.BLUE)
    top.set(title=f"Pulses: {REPEATS} repeats are asked for", yticks=[])
    titles = {
        "Write head: the sequence, then a slot on for each pulse and one back for each repeat": write,
        "Read head: the sequence, over and over": read,
    }
    for axis, (title, weightings) in zip(heads, titles.items(), strict=True):
        extent = (0, STEPS, SLOTS, 0)
        axis.imshow(weightings[:, :SLOTS].T.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=extent, aspect="auto")
        axis.set(title=title, ylabel="slot")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        for step in range(ANSWER, STEPS, LENGTH):
            axis.axvline(step, color=style.ORANGE, linewidth=0.8)
    heads[-1].set_xlabel("time step; a repeat begins at each orange line, the end marker at the last")
    return figure


def main() -> None:
    machine = tapehead.load("repeat-copy-pulses-ntm-lstm")
    for length, repeats in ((LENGTH, REPEATS), LARGEST):
        share = follows(machine, length, repeats)
        print(f"{length} x {repeats}: the write head is where an abacus has it in {share:.2%} of the steps")
    for moved in (-1, 0, 1):
        print(f"moved by {moved}: {repeats_after(machine, moved)} of {SEQUENCES} said {REPEATS + moved} times")
    batch = sample(LENGTH, REPEATS)
    assert len(batch.inputs) == STEPS
    with torch.no_grad():
        _, _, trace = machine(batch.inputs, return_trace=True)
    write, read = (heads.weightings[:, 0, 0] for heads in (trace.write, trace.read))
    figure = draw(batch.inputs[:, 0, -1], write, read)
    svg, png = style.save(figure, Path(__file__).with_name("images"), "counting")
    svg.unlink()  # images of heads
    print(png)


if __name__ == "__main__":
    main()
