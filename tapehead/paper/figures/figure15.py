"""Figure 15: memory use during the dynamic N-gram task."""

from collections import Counter

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from tapehead.figures import style
from tapehead.figures.memory_trace import longest_sizes
from tapehead.figures.run_model import source
from tapehead.paper.figures.memory import Locations, MemoryUse, percent
from tapehead.paper.results import Machine

CONTEXT = 5  # bits
LAGS = range(4)  # steps from a read to a write that are looked at
MARKED = (style.VERMILION, style.GREEN)  # contexts of a sequence
APART = 3  # steps at least between two arrows of different colours
OFTEN = 8  # times that a marked context comes, or nearly so: few enough to see each


def contexts(bits: Tensor) -> Tensor:
    """The last bits as one number, at every step from the fifth on.   bits [T, B] -> [T - 4, B]"""
    places = 2 ** torch.arange(CONTEXT - 1, -1, -1)
    return bits.long().unfold(0, CONTEXT, 1) @ places


def returns(context: Tensor, places: Tensor) -> tuple[int, int]:
    """How often a context was seen before in its sequence, and how often the place is that of the last time."""
    again = same = 0
    for row in range(context.shape[1]):
        last: dict[int, int] = {}
        for seen, place in zip(context[:, row].tolist(), places[:, row].tolist(), strict=True):
            if seen in last:
                again, same = again + 1, same + (place == last[seen])
            last[seen] = place
    return again, same


def says(heads: Locations) -> str:
    read, write = heads.read[..., 0], heads.write[..., 0]
    again, same = returns(contexts(heads.batch.inputs[..., 0]), read[CONTEXT - 1 :])
    near = [_near(read[: len(read) - lag], write[lag:], heads.slots) for lag in LAGS]
    lag = max(LAGS, key=lambda steps: near[steps])
    return (
        "when a context of five bits comes again, the read head is at the slot of the last time in "
        f"{percent(same / again)} of {again:,} cases; the write head is at that slot or beside it {lag} steps after "
        f"the read in {percent(near[lag])}, more than at any other step from 0 to {LAGS[-1]}. Arrows: steps at which "
        "two contexts of this sequence end."
    )


def _near(read: Tensor, write: Tensor, slots: int) -> float:
    """How often two locations are at most one slot apart."""
    return float((((read - write + 1) % slots) <= 2).float().mean())


def shown_contexts(seen: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Two contexts that come about OFTEN times, and the steps at which they end, which are not beside each other."""
    found: list[tuple[int, NDArray[np.int64]]] = []
    for context, _ in sorted(Counter(seen.tolist()).items(), key=lambda item: (abs(item[1] - OFTEN), item[0])):
        steps = np.flatnonzero(seen == context) + CONTEXT - 1
        if all(np.abs(steps[:, None] - others).min() > APART for _, others in found):
            found.append((context, steps))
    return found[: len(MARKED)]


def marks(figure: Figure, machine: Machine) -> None:
    """Arrows under the read weightings, where two contexts of the sequence end."""
    batch = machine.task.sample(source(machine.task), batch_size=1, **longest_sizes(machine.task))
    seen = contexts(batch.inputs[..., 0])[:, 0].numpy()
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left").startswith("Read weightings"))
    bottom = axes.get_ylim()[0]
    for (context, steps), colour in zip(shown_contexts(seen), MARKED, strict=False):
        label = f"context {context:0{CONTEXT}b}"
        axes.scatter(steps, np.full(len(steps), bottom - 2.5), marker="^", s=18, color=colour, linewidth=0, label=label)
    axes.set_ylim(bottom, axes.get_ylim()[1])
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, -0.33), ncols=2, fontsize=8, handletextpad=0.1)


FIGURE = MemoryUse(
    15,
    "NTM memory use during the dynamic N-gram task",
    "ngrams-ntm-feedforward",
    says,
    "the same panels; where the same context comes again (arrows of two colours), the same slot is read, and it is "
    "written to in the next step.",
    marks,
).figure()
