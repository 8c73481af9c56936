"""A mask of resets [T, B]: where it is true, a row's state is the initial one before that step.

Legend: T time, B batch, K segments.

    reset   0 0 1 0 0 0 1 0        a row of 8 steps
            [ ] [     ] [ ]        is 3 segments: the first from the state given, the others from the initial state

The segments are independent sequences of their own lengths, so the model runs them side by side, on the backend that
runs everything else: what is kept of a sequence, and every gradient, are the kernels' own. Which steps are reset is
looked at on the host, and on a GPU that waits for the device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from tapehead import checks
from tapehead.kernels.ntm_scan.contract import is_vmapped

MOST_PADDING = 2
"""Segments run in one call unless padding them to the longest makes more than so many times the steps given."""

Run = Callable[[Tensor, Any, Tensor | None, Tensor | None, bool], tuple[Tensor, Any, Any]]


class Segments(NamedTuple):
    """Pieces of rows, row by row and in their order, on the host; each [K]."""

    rows: Tensor
    begins: Tensor
    lengths: Tensor
    fresh: Tensor  # from the initial state


def as_mask(reset: Any, shape: tuple[int, ...], axes: str) -> Tensor:
    """A mask of the model's axes, as bools."""
    given = checks.tensor("reset", reset)
    if given.shape != shape:
        raise ValueError(f"reset has shape {tuple(given.shape)}, but it must be {axes}, {tuple(shape)}.")
    if given.is_floating_point():
        raise ValueError(f"reset is {given.dtype}, but it must hold bools: use reset.bool().")
    return given != 0


def run_with_resets(
    run: Run, x: Tensor, state: Any, lengths: Tensor | None, slots: Tensor | None, trace: bool, reset: Tensor
) -> tuple[Tensor, Any, Any]:
    """`SequenceModel._run` of inputs [T, B, I] with resets [T, B]: logits, state and trace."""
    if is_vmapped(reset):
        raise ValueError("reset is inside vmap, where its values cannot be looked at: call the model outside of it.")
    steps, batch = x.shape[:2]
    host = reset.cpu()
    if not bool(host.any()):
        return run(x, state, lengths, slots, trace)
    ends = torch.full((batch,), steps) if lengths is None else lengths.long().cpu()
    segments = cut(host, ends, state is None)
    parts, order = [], []
    for chosen in _calls(segments, steps * batch):
        parts.append(_run_segments(run, x, state, slots, trace, segments, chosen))
        order.append(chosen)
    widths = [int(segments.lengths[chosen].max()) for chosen in order]
    places = _places(segments, order, widths, steps, batch)
    inside = (torch.arange(steps).unsqueeze(-1) < ends).to(x.device)  # [T, B]
    flat = places.clamp_min(0).flatten().to(x.device)

    def over_time(*pieces: Tensor) -> Tensor:
        """[T_k, K, ...] of every call -> [T, B, ...]."""
        joined = torch.cat([piece.flatten(0, 1) for piece in pieces])
        found = joined.index_select(0, flat).unflatten(0, (steps, batch))
        return torch.where(inside.reshape(steps, batch, *(1,) * (found.ndim - 2)), found, 0)

    last = _last_segments(segments, order, batch).to(x.device)
    states = [state for _, state, _ in parts]
    _check_alike(states)
    final = tree_map(lambda *pieces: torch.cat(pieces).index_select(0, last), *states)
    traced = tree_map(over_time, *(done for _, _, done in parts)) if trace else None
    return over_time(*(y for y, _, _ in parts)), final, traced


def cut(reset: Tensor, ends: Tensor, all_fresh: bool) -> Segments:
    """The segments of rows that end after `ends` steps [B], from a mask [T, B]."""
    steps = reset.shape[0]
    starts = reset.clone()
    starts[0] = True
    starts &= torch.arange(steps).unsqueeze(-1) < ends
    rows, begins = starts.T.nonzero().unbind(-1)
    following = torch.cat([begins[1:], ends[-1:]])
    is_last = torch.cat([rows[1:] != rows[:-1], torch.ones(1, dtype=torch.bool)])
    stops = torch.where(is_last, ends[rows], following)
    return Segments(rows, begins, stops - begins, reset[begins, rows] | all_fresh)


def _calls(segments: Segments, steps: int) -> list[Tensor]:
    """Indices [K] of the segments of each call: those from the state given, and those from the initial state; by
    powers of two of their lengths where one of the longest length for all would be mostly padding."""
    calls: list[Tensor] = []
    for kind in (False, True):
        chosen = (segments.fresh == kind).nonzero().squeeze(-1)
        if not len(chosen):
            continue
        lengths = segments.lengths[chosen]
        if int(lengths.max()) * len(chosen) <= MOST_PADDING * steps:
            calls.append(chosen)
            continue
        power = torch.log2(lengths.double()).ceil()
        calls += [chosen[power == one] for one in power.unique()]
    return calls


def _run_segments(
    run: Run, x: Tensor, state: Any, slots: Tensor | None, trace: bool, segments: Segments, chosen: Tensor
) -> tuple[Tensor, Any, Any]:
    """One call: segments as the rows of a batch."""
    batch = x.shape[1]
    rows, begins, lengths = segments.rows[chosen], segments.begins[chosen], segments.lengths[chosen]
    within = torch.minimum(torch.arange(int(lengths.max())).unsqueeze(-1), lengths - 1)  # padding repeats the last step
    index = ((begins + within) * batch + rows).to(x.device)  # [T_k, K]
    inputs = x.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, index.shape)
    rows = rows.to(x.device)
    start = None
    if not bool(segments.fresh[chosen[0]]):
        start = tree_map(lambda part: part.index_select(0, rows), state)
    if isinstance(slots, Tensor) and slots.ndim:
        slots = slots.to(x.device).index_select(0, rows)
    return run(inputs, start, lengths.to(x.device), slots, trace)


def _places(segments: Segments, order: list[Tensor], widths: list[int], steps: int, batch: int) -> Tensor:
    """Where step t of row b stands among the results of all calls, [T, B]; -1 where there is none."""
    places = torch.full((steps, batch), -1)
    offset = 0
    for chosen, width in zip(order, widths, strict=True):
        within = torch.arange(width).unsqueeze(-1)
        valid = within < segments.lengths[chosen]
        times = (segments.begins[chosen] + within)[valid]
        rows = segments.rows[chosen].expand(width, -1)[valid]
        places[times, rows] = offset + torch.arange(width * len(chosen)).view(width, -1)[valid]
        offset += width * len(chosen)
    return places


def _last_segments(segments: Segments, order: list[Tensor], batch: int) -> Tensor:
    """Where each row's last segment stands among the segments of all calls, [B]."""
    last = torch.searchsorted(segments.rows, torch.arange(batch), right=True) - 1
    place = torch.empty(len(segments.rows), dtype=torch.int64)
    joined = torch.cat(order)
    place[joined] = torch.arange(len(joined))
    return place[last]


def _check_alike(states: list[Any]) -> None:
    """Refuse states that cannot be those of one batch: of another tape, or of shapes that go with the length."""
    shapes = [[tuple(part.shape[1:]) for part in tree_leaves(state)] for state in states]
    for other in shapes[1:]:
        if other != shapes[0]:
            raise ValueError(
                f"the state given has parts of shapes {shapes[0]} for each row, but that of a reset row has {other}: "
                "reset needs a state of this model's own sizes."
            )
