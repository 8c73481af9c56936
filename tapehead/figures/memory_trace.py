"""What a machine did with one sequence, prepared for the figure of its memory.

Legend: T time, I inputs, O outputs, H heads, N slots, M width.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapehead.figures.run_model import run_with_trace, source
from tapehead.models.sequence import SequenceModel
from tapehead.tasks import Task

USED = 0.05  # a slot whose weighting never exceeds this is not used
MARGIN = 2  # unused slots shown on either side

Numbers = NDArray[np.float64]


class MemoryTrace(NamedTuple):
    """One sequence and what the machine did with it, each quantity as rows over time."""

    inputs: Numbers  # [I, T]
    outputs: Numbers  # [O, T], NaN where nothing is scored
    adds: Numbers  # [H, M, T]
    reads: Numbers  # [H, M, T]
    writing: Numbers  # [H, N, T]: write weightings
    reading: Numbers  # [H, N, T]: read weightings
    answer: int  # the first scored step


def longest_sizes(task: Task) -> dict[str, int]:
    """The largest training sizes."""
    return {name: high for name, (_, high) in task.ranges().items()}


def make_memory_trace(model: SequenceModel, task: Task) -> MemoryTrace | None:
    """One sequence of the largest training sizes; None if the model has no memory to show."""
    if model.memory_slots is None:
        return None
    batch = task.sample(source(task), batch_size=1, **longest_sizes(task))
    logits, trace = run_with_trace(model, batch)
    scored = batch.mask[:, 0] > 0
    outputs = torch.where(scored.unsqueeze(-1), task.loss.probabilities(logits[:, 0]), torch.nan)
    heads = (trace.add, trace.reads, trace.write.weightings, trace.read.weightings)
    adds, reads, writing, reading = (as_rows(part[:, 0]) for part in heads)
    answer = int(scored.int().argmax())
    return MemoryTrace(as_rows(batch.inputs[:, 0]), as_rows(outputs), adds, reads, writing, reading, answer)


def as_rows(values: Tensor) -> Numbers:
    """[T, ...] as [..., T]."""
    rows: Numbers = values.movedim(0, -1).double().cpu().numpy()
    return rows


def used_slots(trace: MemoryTrace) -> list[int]:
    """The slots to show, in order along the tape: all but the longest unused stretch of it, which is a ring."""
    slots = trace.writing.shape[1]
    peak = np.concatenate([trace.writing, trace.reading]).max(axis=(0, 2))
    used = np.flatnonzero(peak > USED)
    if not len(used):
        return list(range(slots))
    gaps = np.diff(used, append=used[0] + slots)  # from each used slot to the next, around the ring
    last = int(gaps.argmax())
    if gaps[last] <= 2 * MARGIN + 1:
        return list(range(slots))
    first, count = int(used[(last + 1) % len(used)]), slots - int(gaps[last]) + 1
    return [slot % slots for slot in range(first - MARGIN, first + count + MARGIN)]


def into_range(inputs: Numbers, names: Mapping[int, str]) -> tuple[Numbers, str]:
    """Inputs in 0..1, and a note on channels that had to be scaled: repeat counts, priorities.   inputs [I, T]"""
    scaled, notes = inputs.copy(), []
    for channel, values in enumerate(inputs):
        reach = np.abs(values).max()
        if values.min() < 0:
            scaled[channel] = (values / reach + 1) / 2
            notes.append(f"{names.get(channel, f'channel {channel}')}: {-reach:.2g} to {reach:.2g}")
        elif reach > 1:
            scaled[channel] = values / reach
            notes.append(f"{names.get(channel, f'channel {channel}')}: 0 to {reach:.2g}")
    return scaled, f" ({', '.join(notes)})" if notes else ""
