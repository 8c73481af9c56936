"""How the sorting machine of the zoo sorts: the picture in recipes.md, and the figures beside it.

    python docs/draw_sorting.py

It is a selection sort: items go to the tape as they come, the read heads find the highest priority by content, and a
write head crosses off what was just read. Every item also goes to slot 0, over the one before, and there the last one
is read.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import tapehead
from tapehead import equations
from tapehead.figures import style
from tapehead.models.ntm import NTM
from tapehead.tasks import Batch

ITEMS, OUTPUTS, PRIORITY = 20, 16, 8  # the last is an input channel
ANSWER = ITEMS + 1  # the step at which it begins
WRITER, READER, ERASER = 0, 0, 4  # heads of this machine, counted from 0
NEWEST = 0  # the slot that always has the newest item
SHOWN = [NEWEST, *range(127, 126 - ITEMS - 1, -1)]  # slots, in the order in which they are written


def load() -> tuple[NTM, Batch]:
    machine = tapehead.load("priority-sort-ntm-lstm")
    assert isinstance(machine, NTM)
    task = tapehead.make_task("priority-sort")
    return machine, task.sample(tapehead.stream(seed=5, name="look", step=0), batch_size=100)


@torch.no_grad()
def cost(machine: NTM, batch: Batch, without: int | None = None) -> float:
    """Mean bits per sequence; while it answers, what the write head `without` wrote is not there at the next step."""
    outputs, state = [], None
    others = [head for head in range(machine.config.num_heads) if head != without]
    for t, x in enumerate(batch.inputs):
        y, after, trace = machine(x.unsqueeze(0), state, return_trace=True)
        if t >= ANSWER and without is not None:
            assert state is not None
            where, erase, add = (part[0][:, others] for part in (trace.write.weightings, trace.erase, trace.add))
            after = after._replace(memory=equations.add(equations.erase(state.memory, where, erase), where, add))
        outputs.append(y)
        state = after
    return float(tapehead.bits_per_sequence(torch.cat(outputs), batch.targets, batch.mask).mean())


def places(writes: Tensor) -> Tensor:
    """Where items are read, [20, B]: where they were written, and the last one in the slot of the newest."""
    return torch.cat([writes[: ITEMS - 1, :, WRITER], torch.full_like(writes[:1, :, WRITER], NEWEST)])


def says(reads: Tensor, writes: Tensor, priorities: Tensor) -> list[str]:
    """Where the heads are, [T, B, heads] of slots."""
    order = priorities.argsort(dim=0, descending=True)[:OUTPUTS]  # [16, B]: which item comes next
    wanted = places(writes).gather(0, order)
    right = (reads[ANSWER:, :, READER] == wanted).float().mean()
    behind = (writes[ANSWER + 1 :, :, ERASER] == reads[ANSWER:-1, :, READER]).float().mean()
    return [
        f"read head {READER + 1} is at the item that comes next in {right:.1%} of all steps",
        f"write head {ERASER + 1} is where read head {READER + 1} was a step before in {behind:.1%}",
    ]


@style.look()
def draw(batch: Batch, trace: tapehead.Trace) -> Figure:
    steps = len(batch.inputs)
    written = places(trace.write.weightings.argmax(-1))[:, 0]
    of_slot = dict(zip(written.tolist(), batch.inputs[:ITEMS, 0, PRIORITY].tolist(), strict=True))
    found = trace.read.weightings[:, 0, READER].argmax(-1)[ANSWER:].tolist()
    figure = Figure(figsize=(style.WIDTH, 6.6), layout="constrained")
    top, *heads = figure.subplots(4, 1, sharex=True, height_ratios=(1.1, 1.0, 1.0, 1.0))
    top.bar(torch.arange(ITEMS) + 0.5, batch.inputs[:ITEMS, 0, PRIORITY], color=style.BLUE)
    top.bar(torch.arange(ANSWER, steps) + 0.5, [of_slot.get(slot, 0.0) for slot in found], color=style.ORANGE)
    top.axhline(0, color=style.FAINT, linewidth=0.8)
    top.set_title("Priorities of the items as they come, and of the items that are read")
    words = {
        f"Write head {WRITER + 1}: one slot back with every item": trace.write.weightings[:, 0, WRITER],
        f"Read head {READER + 1}: the highest priority that is left": trace.read.weightings[:, 0, READER],
        f"Write head {ERASER + 1}: crosses off what was read a step before": trace.write.weightings[:, 0, ERASER],
    }
    for axis, (title, weightings) in zip(heads, words.items(), strict=True):
        image = weightings[:, SHOWN].T.numpy()
        axis.imshow(image, cmap=style.GREYS, vmin=0, vmax=1, extent=(0, steps, len(SHOWN), 0), aspect="auto")
        axis.set_title(title)
        axis.set_ylabel("slot")
        ticks = range(0, len(SHOWN), 5)
        axis.set_yticks([tick + 0.5 for tick in ticks], [str(SHOWN[tick]) for tick in ticks])
        axis.axvline(ANSWER, color=style.ORANGE, linewidth=0.8)
    heads[-1].set_xlabel("time step; the answer begins at the orange line")
    return figure


def main() -> None:
    machine, batch = load()
    with torch.no_grad():
        _, _, trace = machine(batch.inputs, return_trace=True)
    reads, writes = (heads.weightings.argmax(dim=-1) for heads in (trace.read, trace.write))
    print("\n".join(says(reads, writes, batch.inputs[:ITEMS, :, PRIORITY])))
    print(f"{cost(machine, batch):.1f} bits per sequence as it is; if what one head writes while it answers is undone:")
    for head in range(machine.config.num_heads):
        print(f"    head {head + 1}: {cost(machine, batch, without=head):.1f}")
    svg, png = style.save(draw(batch, trace), Path(__file__).with_name("images"), "sorting")
    svg.unlink()  # images of heads
    print(png)


if __name__ == "__main__":
    main()
