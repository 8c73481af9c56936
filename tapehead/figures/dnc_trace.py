"""What a Differentiable Neural Computer did with one sequence, prepared for the figure of its allocation and links.

Legend: T time, R read heads, N slots.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tapehead import equations_dnc
from tapehead.figures.memory_trace import Numbers, as_rows, longest_sizes
from tapehead.figures.run_model import run_with_trace, source
from tapehead.models.dnc.model import DNC
from tapehead.models.sequence import SequenceModel
from tapehead.tasks import Task

USED = 0.1
"""A slot whose weighting never exceeds this is not used. More than in the memory figure: a head that finds nothing by
content is everywhere."""


class LinkTrace(NamedTuple):
    """One sequence's gates, usage, allocation, links and read modes, over time."""

    write_gate: Numbers  # [T]
    allocation_gate: Numbers  # [T]
    free_gates: Numbers  # [R, T]
    usage: Numbers  # [N, T]
    allocation: Numbers  # [N, T]
    writing: Numbers  # [N, T]: write weightings
    reading: Numbers  # [R, N, T]: read weightings
    modes: Numbers  # [R, 3, T]: backward, content, forward
    links: Numbers  # [N, N] at the step `linked`: row i, column j: how much slot i was written right after slot j
    linked: int  # the last step before the answer
    answer: int  # the first scored step


def make_link_trace(model: SequenceModel, task: Task) -> LinkTrace | None:
    """One sequence of the largest training sizes; None if the model is no DNC."""
    if not isinstance(model, DNC):
        return None
    batch = task.sample(source(task), batch_size=1, **longest_sizes(task))
    _, trace = run_with_trace(model, batch)
    answer = int((batch.mask[:, 0] > 0).int().argmax())
    linked = max(answer - 1, 0)
    read, write = trace.read, trace.write
    written = write.weightings[:, 0, 0]  # [T, N]
    links: Numbers = links_after(written[: linked + 1]).double().cpu().numpy()
    return LinkTrace(
        write_gate=as_rows(write.write_gates[:, 0, 0]),
        allocation_gate=as_rows(write.allocation_gates[:, 0, 0]),
        free_gates=as_rows(read.free_gates[:, 0]),
        usage=as_rows(trace.usage[:, 0]),
        allocation=as_rows(write.allocation[:, 0, 0]),
        writing=as_rows(written),
        reading=as_rows(read.weightings[:, 0]),
        modes=as_rows(read.modes[:, 0]),
        links=links,
        linked=linked,
        answer=answer,
    )


def links_after(written: Tensor) -> Tensor:
    """The link matrix [N, N] after a sequence whose write weightings were these, [T, N]. A trace does not keep it."""
    links = written.new_zeros(written.shape[1], written.shape[1])
    precedence = torch.zeros_like(written[0])
    for weighting in written:
        links = equations_dnc.link(links, precedence, weighting)
        precedence = equations_dnc.precedence(precedence, weighting)
    return links


def slots_in_use(trace: LinkTrace) -> list[int]:
    """The slots where a head has been: those written in the order of their first write, then those only read.

    Slots are interchangeable in a DNC: which of equally used ones is taken says nothing.
    """
    written = trace.writing > USED  # [N, T]
    first = np.where(written.any(axis=1), written.argmax(axis=1), written.shape[1])
    peak = np.concatenate([trace.writing[None], trace.reading]).max(axis=(0, 2))
    return [int(slot) for slot in np.argsort(first, kind="stable") if peak[slot] > USED]


def count_written(trace: LinkTrace) -> int:
    """How many of the slots in use were written; they come first."""
    return int((trace.writing > USED).any(axis=1).sum())


def strongest_links(links: Numbers, slots: list[int], least: float) -> list[tuple[int, int, float]]:
    """Links between the slots shown that are at least so strong, (from, to, strength) by places in `slots`, the weakest
    first."""
    shown = links[np.ix_(slots, slots)]
    found = [(int(j), int(i), float(shown[i, j])) for i, j in np.argwhere(shown >= least)]
    return sorted(found, key=lambda one: one[2])
