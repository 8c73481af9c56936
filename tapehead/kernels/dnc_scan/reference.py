"""The truth: the machine step by step, in torch and autograd, straight from the equations. Never made faster.

Legend as in contract.py. All functions here work with any leading dimensions before B in state and inputs, as long as
the parameters have the same ones; the scan uses [S].
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from tapehead import equations, equations_dnc
from tapehead.kernels.dnc_scan.contract import DNCState, DNCTrace, ReadTrace, WriteTrace
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.ntm_scan.controllers import control, linear


class Reading(NamedTuple):
    """What the read heads ask for, after the activations."""

    key: Tensor  # [..., R, M]
    strength: Tensor  # [..., R]
    mask: Tensor  # [..., R, M]
    free_gate: Tensor  # [..., R]
    modes: Tensor  # [..., R, 3]
    sharpness: Tensor  # [..., R, 2]


class Writing(NamedTuple):
    """What the write head asks for, after the activations."""

    key: Tensor  # [..., 1, M]
    strength: Tensor  # [..., 1]
    mask: Tensor  # [..., 1, M]
    allocation_gate: Tensor  # [..., 1]
    write_gate: Tensor  # [..., 1]
    erase: Tensor  # [..., 1, M]
    add: Tensor  # [..., 1, M]


def activations(spec: DNCSpec, interface: Tensor) -> tuple[Reading, Writing]:
    """The interface vector [..., B, size] as numbers in their ranges."""
    reading, writing = spec.interface.heads(interface)
    read, write = spec.interface.read.split(reading), spec.interface.write.split(writing)

    def strength(parts: dict[str, Tensor]) -> Tensor:
        least = 1.0 if spec.strength == "oneplus" else 0.0
        return least + F.softplus(parts["strength"].squeeze(-1))

    def mask(parts: dict[str, Tensor]) -> Tensor:
        return torch.sigmoid(parts["mask"]) if spec.masked_content else torch.ones_like(parts["key"])

    def gate(parts: dict[str, Tensor], name: str) -> Tensor:
        return torch.sigmoid(parts[name].squeeze(-1))

    modes = torch.softmax(read["modes"], dim=-1)
    sharpness = 1 + F.softplus(read["sharpness"]) if spec.link_sharpness else torch.ones_like(modes[..., :2])
    return (
        Reading(read["key"], strength(read), mask(read), gate(read, "free_gate"), modes, sharpness),
        Writing(
            write["key"],
            strength(write),
            mask(write),
            gate(write, "allocation_gate"),
            gate(write, "write_gate"),
            torch.sigmoid(write["erase"]),
            write["add"],
        ),
    )


def content_weighting(spec: DNCSpec, ask: Reading | Writing, memory: Tensor, inside: Tensor | None) -> Tensor:
    """Weightings [..., H, N] by content, over the slots in use alone: inside [..., N], None for all of them."""
    if spec.masked_content:
        similarity = equations_dnc.masked_similarity(ask.key, ask.mask, memory)
    else:
        similarity = equations.cosine_similarity(ask.key, memory)
    scores = ask.strength.unsqueeze(-1) * similarity
    if inside is not None:
        scores = torch.where(inside.unsqueeze(-2), scores, float("-inf"))
    return torch.softmax(scores, dim=-1)


def step(
    spec: DNCSpec, parameters: dict[str, Tensor], inputs: Tensor, state: DNCState, inside: Tensor | None = None
) -> tuple[Tensor, DNCState, DNCTrace]:
    """One step: inputs [..., B, I] -> logits [..., B, O], the next state, and what was done (without a time axis).

    inside [..., B, N]: the slots in use; the state is zero elsewhere, but for the memory.
    """
    hidden, hiddens, cells = control(spec, parameters, inputs, state.reads, state.hidden, state.cell)
    interface = linear(hidden, parameters["interface.weight"], parameters["interface.bias"]).to(state.memory.dtype)
    with torch.autocast(device_type=inputs.device.type, enabled=False):  # addressing needs the parameters' precision
        reading, writing = activations(spec, interface)
        after, did = _use_memory(spec, reading, writing, state, inside)
    outputs = torch.cat([hidden, after.reads.flatten(-2)], dim=-1)
    logits = linear(outputs, parameters["output.weight"], parameters["output.bias"])
    return logits, after._replace(hidden=hiddens, cell=cells), did._replace(hidden=hidden)


def _use_memory(
    spec: DNCSpec, reading: Reading, writing: Writing, state: DNCState, inside: Tensor | None
) -> tuple[DNCState, DNCTrace]:
    """Write, link, read: the state after the step, with the controller's part as it was."""
    retention = equations_dnc.retention(reading.free_gate, state.read_weightings)
    written = state.write_weighting.detach() if spec.detached_usage else state.write_weighting
    usage = equations_dnc.usage(state.usage, written, retention)
    write, weighting = _write_head(spec, writing, state.memory, usage, inside)

    kept = equations_dnc.deallocate(state.memory, retention) if spec.deallocation else state.memory
    memory = equations.erase(kept, weighting.unsqueeze(-2), writing.erase)
    memory = equations.add(memory, weighting.unsqueeze(-2), writing.add)
    link = equations_dnc.link(state.link, state.precedence, weighting)
    precedence = equations_dnc.precedence(state.precedence, weighting)

    read = _read_heads(spec, reading, memory, link, state.read_weightings, inside)
    reads = equations.read(memory, read.weightings)
    after = DNCState(
        memory, usage, link, precedence, read.weightings, weighting, reads, hidden=state.hidden, cell=state.cell
    )
    did = DNCTrace(
        read, write, writing.erase, writing.add, retention, usage, precedence, memory, reads, hidden=state.hidden
    )
    return after, did


def _write_head(
    spec: DNCSpec, ask: Writing, memory: Tensor, usage: Tensor, inside: Tensor | None
) -> tuple[WriteTrace, Tensor]:
    """Where the write head writes: all the way there, and the weighting [..., N]."""
    content = content_weighting(spec, ask, memory, inside)
    free = usage if inside is None else torch.where(inside, usage, 1.0)  # what is not in use is not free
    allocation = equations_dnc.allocation(free)
    allocation_gate, write_gate = ask.allocation_gate, ask.write_gate
    weighting = equations_dnc.write_weighting(
        allocation, content.squeeze(-2), allocation_gate.squeeze(-1), write_gate.squeeze(-1)
    )
    way = (ask.key, ask.strength, ask.mask, allocation_gate, write_gate, content, allocation.unsqueeze(-2))
    return WriteTrace(*way, weighting.unsqueeze(-2)), weighting


def _read_heads(
    spec: DNCSpec, ask: Reading, memory: Tensor, link: Tensor, previous: Tensor, inside: Tensor | None
) -> ReadTrace:
    """Where the read heads read, from where they were, [..., R, N]."""
    content = content_weighting(spec, ask, memory, inside)
    forward = equations_dnc.forward_weighting(link, previous)
    backward = equations_dnc.backward_weighting(link, previous)
    if spec.link_sharpness:
        forward, backward = (
            _sharpened(weighting, ask.sharpness[..., k], inside) for k, weighting in enumerate((forward, backward))
        )
    weightings = equations_dnc.read_weighting(backward, content, forward, ask.modes)
    way = (ask.key, ask.strength, ask.mask, ask.free_gate, ask.modes, ask.sharpness)
    return ReadTrace(*way, backward, content, forward, weightings)


def _sharpened(weighting: Tensor, sharpness: Tensor, inside: Tensor | None) -> Tensor:
    sharp = equations_dnc.sharpen_link(weighting, sharpness)
    if inside is None:
        return sharp
    sharp = torch.where(inside.unsqueeze(-2), sharp, 0.0)
    return sharp / sharp.sum(dim=-1, keepdim=True)


def scan(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor | None,
    state: DNCState,
    with_trace: bool = False,
) -> tuple[Tensor, DNCState, DNCTrace | None]:
    """The scan of contract.py."""
    named = spec.split_parameters(parameters)
    inside, before = None, state
    if slots is not None:
        inside = torch.arange(state.memory.shape[-2], device=slots.device) < slots.unsqueeze(-1)  # [S, B, N]
        state = _only_inside(state, inside)
    outputs: list[Tensor] = []
    traces: list[DNCTrace] = []
    for t in range(inputs.shape[1]):
        active = t < lengths  # [S, B]
        x = _where_row(active, inputs[:, t], 0.0)  # whatever stands in the padding is harmless
        y, new, trace = step(spec, named, x, state, inside)
        outputs.append(_where_row(active, y, 0.0))
        state = DNCState(*(_where_row(active, after, old) for after, old in zip(new, state, strict=True)))
        if with_trace:
            traces.append(tree_map(lambda part, active=active: _where_row(active, part.detach(), 0.0), trace))
    if inside is not None:
        state = _rest_as_before(state, before, inside)
    stacked = tree_map(lambda *parts: torch.stack(parts, dim=1), *traces) if with_trace else None
    return torch.stack(outputs, dim=1), state, stacked


def _where_row(active: Tensor, yes: Tensor, no: Tensor | float) -> Tensor:
    return torch.where(active.reshape(active.shape + (1,) * (yes.ndim - active.ndim)), yes, no)


def _slots_of(inside: Tensor) -> dict[str, Tensor]:
    """For each part of a state that runs along the slots, other than the memory, which entries are of slots in use."""
    pairs = inside.unsqueeze(-1) & inside.unsqueeze(-2)
    return {
        "usage": inside,
        "link": pairs,
        "precedence": inside,
        "read_weightings": inside.unsqueeze(-2),
        "write_weighting": inside,
    }


def _only_inside(state: DNCState, inside: Tensor) -> DNCState:
    """A state whose heads have never been at slots that are not in use."""
    parts = state._asdict()
    return state._replace(**{name: torch.where(there, parts[name], 0.0) for name, there in _slots_of(inside).items()})


def _rest_as_before(state: DNCState, before: DNCState, inside: Tensor) -> DNCState:
    there = _slots_of(inside) | {"memory": inside.unsqueeze(-1)}
    after, old = state._asdict(), before._asdict()
    return state._replace(**{name: torch.where(where, after[name], old[name]) for name, where in there.items()})
