"""How the machine of the zoo that repeats a sequence counts its repeats: the picture in recipes.md, and the experiments
beside it.

    python docs/draw_counting.py

The count comes as pulses (not in the paper). The write head is an abacus: it goes on, slot by slot, with the pulses,
and comes back, slot by slot, with the repeats. From the second repeat on the read head begins at the slot behind the
sequence instead of its first. When the write head has come back to that slot, the machine says that it is over.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

import tapehead
from tapehead.figures import style
from tapehead.models.machine import NTMState
from tapehead.models.ntm import NTM
from tapehead.tasks import Batch

LENGTH, REPEATS, SEQUENCES = 5, 6, 50
ANSWER = LENGTH + 1 + REPEATS  # the step at which it begins
END = ANSWER + LENGTH * REPEATS  # the step of the end marker
BEHIND = LENGTH + 1  # the slot behind the sequence, which begins at slot 1
MIDDLE = LENGTH // 2  # steps into the first repeat

Change = Callable[[NTMState], NTMState]


def sample(repeats: int = REPEATS) -> Batch:
    """The same sequences, whatever the number of repeats."""
    task = tapehead.make_task("repeat-copy", count="pulses")
    source = tapehead.stream(seed=5, name="look", step=0)
    return task.sample(source, batch_size=SEQUENCES, length=LENGTH, repeats=repeats)


def state_at(machine: NTM, step: int, repeats: int = REPEATS) -> NTMState:
    """Before a step of a run that is asked for so many repeats."""
    return machine(sample(repeats).inputs[:step])[1]


def said(machine: NTM, state: NTMState, steps: int) -> Tensor:
    """The bits that follow, from a state in the answer, where nothing comes in: [T, B, W + 1]."""
    silence = torch.zeros(steps, SEQUENCES, machine.config.input_size)
    return machine(silence, state)[0] > 0


def right(bits: Tensor, repeats: int) -> int:
    """How many of the sequences end, bit by bit, as they do where so many repeats are asked for."""
    return int((bits == sample(repeats).targets[-len(bits) :].bool()).all(dim=(0, 2)).sum())


def goes_on(machine: NTM, repeats: int, change: Change) -> int:
    """How many sequences are said so many times after a change to the state in the middle of the first repeat."""
    steps = LENGTH * repeats + 1 - MIDDLE
    return right(said(machine, change(state_at(machine, ANSWER + MIDDLE)), steps), repeats)


def moved(by: int) -> Change:
    """The write head, by some slots."""
    return lambda state: state._replace(write_weightings=state.write_weightings.roll(by, dims=-1))


def exchanged(machine: NTM, repeats: int, *parts: str) -> Change:
    """Parts of the state of the same sequence and step, where another number of repeats was asked for."""
    other = state_at(machine, LENGTH + 1 + repeats + MIDDLE, repeats)
    return lambda state: state._replace(**{part: getattr(other, part) for part in parts})


def with_slot(state: NTMState, source: NTMState) -> NTMState:
    """With the slot behind the sequence as it is in another state."""
    memory = state.memory.clone()
    memory[:, BEHIND] = source.memory[:, BEHIND]
    return state._replace(memory=memory)


def says(machine: NTM) -> list[str]:
    of = f"of {SEQUENCES}"
    lines = [f"asked for {REPEATS}: {goes_on(machine, REPEATS, moved(0))} {of} right"]
    for by in (-2, -1, 1, 2):
        count = goes_on(machine, REPEATS + by, moved(by))
        lines.append(f"write head moved by {by:+}: {count} {of} said {REPEATS + by} times")
    for repeats in (4, 8, 10):
        for parts in (("write_weightings",), ("write_weightings", "hidden", "cell")):
            count = goes_on(machine, repeats, exchanged(machine, repeats, *parts))
            lines.append(f"{', '.join(parts)} of {repeats} repeats: {count} {of} said {repeats} times")
    first, end = (sample().targets[step].bool() for step in (ANSWER, END))
    before, last, early = (state_at(machine, step) for step in (END - LENGTH, END, ANSWER + 2 * LENGTH))
    again, over = (said(machine, with_slot(*both), 1)[0] for both in ((last, before), (early, last)))
    counts = [int((bits == wanted).all(dim=-1).sum()) for bits, wanted in ((again, first), (over, end))]
    lines.append(f"slot {BEHIND} put back before the end: {counts[0]} {of} begin again instead")
    lines.append(f"slot {BEHIND} as at the end, put in after two repeats: {counts[1]} {of} end there")
    return lines


@style.look()
def draw(pulses: Tensor, write: Tensor, read: Tensor) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 4.6), layout="constrained")
    top, *heads = figure.subplots(3, 1, sharex=True, height_ratios=(0.3, 1.0, 1.0))
    steps, slots = len(pulses), LENGTH + REPEATS + 2
    top.bar(torch.arange(steps) + 0.5, pulses, color=style.BLUE)
    top.set(title=f"Pulses: {REPEATS} repeats are asked for", yticks=[])
    titles = {
        "Write head: the sequence, then on with the pulses, and back with the repeats": write,
        f"Read head: the sequence, after the first time with slot {BEHIND} instead of slot 1": read,
    }
    for axis, (title, weightings) in zip(heads, titles.items(), strict=True):
        extent = (0, steps, slots, 0)
        axis.imshow(weightings[:, :slots].T.numpy(), cmap=style.GREYS, vmin=0, vmax=1, extent=extent, aspect="auto")
        axis.set(title=title, ylabel="slot")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        for step in range(ANSWER, END + 1, LENGTH):
            axis.axvline(step, color=style.ORANGE, linewidth=0.8)
    heads[-1].set_xlabel("time step; a repeat begins at each orange line, the end marker at the last")
    return figure


@torch.no_grad()
def main() -> None:
    machine = tapehead.load("repeat-copy-pulses-ntm-lstm")
    assert isinstance(machine, NTM)
    print("\n".join(says(machine)))
    batch = sample()
    _, _, trace = machine(batch.inputs, return_trace=True)
    write, read = (heads.weightings[:, 0, 0] for heads in (trace.write, trace.read))
    figure = draw(batch.inputs[:, 0, -1], write, read)
    svg, png = style.save(figure, Path(__file__).with_name("images"), "counting")
    svg.unlink()  # images of heads
    print(png)


if __name__ == "__main__":
    main()
