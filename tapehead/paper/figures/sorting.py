"""Where the heads of a sorting machine are, in numbers (Figures 16 and 17).

The paper fits a linear function from an item's priority to the location that it is written to. Here the same fit is
made for every write head on many sequences, and beside it one from the item's position in the list.

Legend: T time, B sequences, H heads, I items.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tapehead.evaluation.learning import Numbers
from tapehead.paper.figures.memory import Locations, locations
from tapehead.paper.results import Machine
from tapehead.tasks.priority_sort import PrioritySort

ROW = "priority-sort-ntm-lstm"


class Fit(NamedTuple):
    """A least-squares line."""

    slope: float
    intercept: float
    r2: float
    """The share of the variance that it explains; 0 where there is none."""

    def __call__(self, x: Numbers) -> Numbers:
        return self.slope * x + self.intercept


class Sorting(NamedTuple):
    """What the heads do on B sequences. Heads are counted from 0."""

    heads: Locations
    priorities: Tensor  # [I, B]
    writer: int
    """The write head whose locations the priorities explain best."""
    written: Tensor  # [I, B], its locations, without a jump where the tape ends
    by_priority: Fit
    by_position: Fit
    reader: int
    """The read head that is most often at the item that comes next."""
    reads_next: float
    """How often it is."""
    eraser: int
    """The write head that is most often where `reader` was one step before."""
    follows: float
    """How often it is."""

    @property
    def items(self) -> int:
        return len(self.priorities)

    def ranks_read(self) -> Numbers:
        """The share of sequences in which answer t reads the item of rank r by priority, [I, answers]."""
        reads = self.heads.read[self.heads.answer :, :, self.reader]  # [answers, B]
        slots = self.heads.write[: self.items, :, self.writer]
        ranked = slots.gather(0, self.priorities.argsort(dim=0, descending=True))  # [I, B]
        shares: Numbers = (ranked.unsqueeze(1) == reads).double().mean(dim=-1).numpy()
        return shares


def sorting(machine: Machine) -> Sorting:
    """Of a machine that was trained on priority sort."""
    task, heads = machine.task, locations(machine)
    assert isinstance(task, PrioritySort)
    answer = heads.answer
    items = answer - 1
    priorities = heads.batch.inputs[:items, :, task.width]
    position = torch.arange(items, dtype=torch.float64).unsqueeze(-1).expand_as(priorities)
    places = [unrolled(heads.write[:items, :, head], heads.slots) for head in range(heads.write.shape[-1])]
    fits = [fit_line(priorities, place) for place in places]
    writer = int(np.argmax([fit.r2 for fit in fits]))
    order = priorities.argsort(dim=0, descending=True)[: len(heads.read) - answer]
    wanted = heads.write[:items, :, writer].gather(0, order)
    reader, often = _most(heads.read[answer:], wanted)
    eraser, follows = _most(heads.write[answer + 1 :], heads.read[answer:-1, :, reader])
    by_position = fit_line(position, places[writer])
    return Sorting(heads, priorities, writer, places[writer], fits[writer], by_position, reader, often, eraser, follows)


def unrolled(places: Tensor, slots: int) -> Tensor:
    """Locations on a ring as numbers without a jump: the ring is cut at its longest stretch without any of them."""
    used = places.unique()
    gaps = torch.cat([used[:1] + slots, used[1:]]).roll(-1) - used if len(used) > 1 else torch.zeros(1)
    first: Tensor = used.roll(-1)[gaps.argmax()]
    return (places - first) % slots + first


def fit_line(x: Tensor, y: Tensor) -> Fit:
    """The least-squares line from x to y, of the same shape."""
    a, b = (part.double().flatten().numpy() for part in (x, y))
    total = float(((b - b.mean()) ** 2).sum())
    if total == 0:
        return Fit(0.0, float(b.mean()), 0.0)
    slope, intercept = np.polyfit(a, b, 1)
    rest = float(((b - slope * a - intercept) ** 2).sum())
    return Fit(float(slope), float(intercept), 1 - rest / total)


def _most(heads: Tensor, places: Tensor) -> tuple[int, float]:
    """Which of the heads [T, B, H] is most often at these places [T, B], and how often."""
    shares = (heads == places.unsqueeze(-1)).double().mean(dim=(0, 1))
    return int(shares.argmax()), float(shares.max())
