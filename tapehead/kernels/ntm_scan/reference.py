"""The truth: the machine step by step, in torch and autograd, straight from the equations. Never made faster.

Legend as in contract.py. All functions here work with any leading dimensions before B in state and inputs, as long as
the parameters have the same ones; the scan uses [S].
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from tapehead import equations
from tapehead.kernels.ntm_scan.contract import HeadTrace, ScanState, Trace
from tapehead.kernels.ntm_scan.controllers import control, linear
from tapehead.kernels.ntm_scan.spec import ScanSpec


class Addressing(NamedTuple):
    """What one kind of heads asks for, after the activations."""

    key: Tensor  # [..., H, M]
    strength: Tensor  # [..., H]
    gate: Tensor  # [..., H]
    shift: Tensor  # [..., H, 2r+1]
    sharpening: Tensor  # [..., H]


def scalar_shift_weights(amount: Tensor, shift_range: int) -> Tensor:
    """A width-one uniform over shifts from `amount` in [-r, r] on, as weights of the integer shifts -r .. r.

    The same distribution as `equations.scalar_shift`, written out: [...] -> [..., 2r+1].
    """
    offsets = torch.arange(-shift_range, shift_range + 1, device=amount.device, dtype=amount.dtype)
    whole = torch.floor(amount.detach()).unsqueeze(-1)
    part = amount.unsqueeze(-1) - whole
    return torch.where(offsets == whole, 1 - part, 0.0) + torch.where(offsets == whole + 1, part, 0.0)


def addressing(spec: ScanSpec, raw: dict[str, Tensor]) -> Addressing:
    """Activations of the addressing part of the interface: raw parts [..., H, part] by name."""
    key, shift = raw["key"], raw["shift"]
    if spec.shift == "softmax":
        weights = torch.softmax(shift, dim=-1)
    else:
        weights = scalar_shift_weights(spec.shift_range * torch.tanh(shift.squeeze(-1)), spec.shift_range)
    return Addressing(
        key=torch.tanh(key) if spec.key_activation == "tanh" else key,
        strength=F.softplus(raw["strength"].squeeze(-1)),
        gate=torch.sigmoid(raw["gate"].squeeze(-1)),
        shift=weights,
        sharpening=1 + F.softplus(raw["sharpening"].squeeze(-1)),
    )


def address(ask: Addressing, memory: Tensor, previous: Tensor) -> HeadTrace:
    """Figure 2 of the paper, Eqs. 5 to 9: the new weightings [..., H, N], with every stage on the way to them."""
    content = equations.content_weighting(ask.key, ask.strength, memory)
    interpolated = equations.interpolate(ask.gate, content, previous)
    shifted = equations.shift(interpolated, ask.shift)
    weightings = equations.sharpen(shifted, ask.sharpening)
    return HeadTrace(*ask, content, interpolated, shifted, weightings)


def step(
    spec: ScanSpec, parameters: dict[str, Tensor], inputs: Tensor, state: ScanState
) -> tuple[Tensor, ScanState, Trace]:
    """One step: inputs [..., B, I] -> logits [..., B, O], the next state, and what was done (without a time axis)."""
    hidden, hiddens, cells = control(spec, parameters, inputs, state.reads, state.hidden, state.cell)
    interface = linear(hidden, parameters["interface.weight"], parameters["interface.bias"])
    if spec.interface_clip is not None:
        interface = interface.clamp(-spec.interface_clip, spec.interface_clip)
    reading, writing = spec.interface.heads(interface)
    after = _use_memory(spec, spec.interface.read.split(reading), spec.interface.write.split(writing), state)
    outputs = hidden
    if spec.output_from == "hidden_and_reads":
        outputs = torch.cat([hidden, after.reads.flatten(-2)], dim=-1)
    logits = linear(outputs, parameters["output.weight"], parameters["output.bias"])
    new = ScanState(after.memory, after.read.weightings, after.write.weightings, after.reads, hiddens, cells)
    return logits, new, after._replace(hidden=hidden)


def _use_memory(spec: ScanSpec, reading: dict[str, Tensor], writing: dict[str, Tensor], state: ScanState) -> Trace:
    """Both kinds of heads on the tape, in the order of the specification. Raw parts [..., H, part] by name."""
    erase = torch.sigmoid(writing["erase"])
    add = writing["add"]
    if spec.add_activation != "linear":
        add = torch.tanh(add) if spec.add_activation == "tanh" else torch.sigmoid(add)
    write = address(addressing(spec, writing), state.memory, state.write_weightings)
    gate = writing["write_gate"]
    gates = torch.sigmoid(gate.squeeze(-1)) if spec.write_gate else torch.ones_like(write.gates)
    effective = gates.unsqueeze(-1) * write.weightings
    memory = equations.add(equations.erase(state.memory, effective, erase), effective, add)
    seen = memory if spec.order == "write_then_read" else state.memory
    read = address(addressing(spec, reading), seen, state.read_weightings)
    reads = equations.read(seen, read.weightings)
    return Trace(read, write, erase, add, gates, memory, reads, hidden=reads)


def scan(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    with_trace: bool = False,
) -> tuple[Tensor, ScanState, Trace | None]:
    """The scan of contract.py. If some sequences use a part of the tape only, each is run alone, on its part."""
    tape = state.memory.shape[-2]
    if bool((slots == tape).all()):
        return scan_tape(spec, parameters, inputs, lengths, state, with_trace)
    columns = []
    for s in range(inputs.shape[0]):
        rows = []
        for b in range(inputs.shape[2]):
            seed, row = slice(s, s + 1), slice(b, b + 1)
            one = _cut_tape(ScanState(*(part[seed, row] for part in state)), int(slots[s, b]))
            y, one, trace = scan_tape(spec, parameters[seed], inputs[seed, :, row], lengths[seed, row], one, with_trace)
            rows.append((y, _pad_tape(one, tape), _pad_tape(trace, tape) if trace else None))
        columns.append(_cat(rows, batch_axis=True))
    outputs, final, full_trace = _cat(columns, batch_axis=False)
    used = torch.arange(tape, device=slots.device) < slots.unsqueeze(-1)  # [S, B, N]
    final = final._replace(
        memory=torch.where(used.unsqueeze(-1), final.memory, state.memory),
        read_weightings=torch.where(used.unsqueeze(-2), final.read_weightings, state.read_weightings),
        write_weightings=torch.where(used.unsqueeze(-2), final.write_weightings, state.write_weightings),
    )
    return outputs, final, full_trace


def scan_tape(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, state: ScanState, with_trace: bool
) -> tuple[Tensor, ScanState, Trace | None]:
    """The scan for sequences that all use the whole tape."""
    named = spec.split_parameters(parameters)
    outputs: list[Tensor] = []
    traces: list[Trace] = []
    for t in range(inputs.shape[1]):
        active = t < lengths  # [S, B]
        x = _where_row(active, inputs[:, t], 0.0)  # whatever stands in the padding is harmless
        y, new, trace = step(spec, named, x, state)
        outputs.append(_where_row(active, y, 0.0))
        state = ScanState(*(_where_row(active, after, before) for after, before in zip(new, state, strict=True)))
        if with_trace:
            traces.append(tree_map(lambda part, active=active: _where_row(active, part.detach(), 0.0), trace))
    stacked = tree_map(lambda *parts: torch.stack(parts, dim=1), *traces) if with_trace else None
    return torch.stack(outputs, dim=1), state, stacked


def _where_row(active: Tensor, yes: Tensor, no: Tensor | float) -> Tensor:
    return torch.where(active.reshape(active.shape + (1,) * (yes.ndim - active.ndim)), yes, no)


# Which axis of a state's or a trace's tensors runs along the slots.
TAPE_AXIS = {"memory": -2} | dict.fromkeys(
    ("read_weightings", "write_weightings", "content", "interpolated", "shifted", "weightings"), -1
)


def _cut_tape(state: ScanState, slots: int) -> ScanState:
    parts = state._asdict()
    return ScanState(**{k: v.narrow(TAPE_AXIS[k], 0, slots) if k in TAPE_AXIS else v for k, v in parts.items()})


def _pad_tape(values: Any, tape: int) -> Any:
    """A state or trace of a part of the tape, with zeros for the rest of it."""
    padded = {}
    for name, part in values._asdict().items():
        if not isinstance(part, Tensor):
            padded[name] = _pad_tape(part, tape)
        elif name in TAPE_AXIS:
            missing = tape - part.shape[TAPE_AXIS[name]]
            padded[name] = F.pad(part, (0, 0, 0, missing) if TAPE_AXIS[name] == -2 else (0, missing))
        else:
            padded[name] = part
    return type(values)(**padded)


Result = tuple[Tensor, ScanState, Trace | None]


def _cat(results: list[Result], batch_axis: bool) -> Result:
    """Results of single sequences joined along the batch, or of single seeds along the seeds."""
    outputs, states, traces = zip(*results, strict=True)
    timed, timeless = (2, 1) if batch_axis else (0, 0)
    state = tree_map(lambda *parts: torch.cat(parts, dim=timeless), *states)
    trace = tree_map(lambda *parts: torch.cat(parts, dim=timed), *traces) if traces[0] else None
    return torch.cat(outputs, dim=timed), state, trace
