"""What every backend of the scan agrees on: its arguments, its state, its trace, and the functions of a backend.

Legend: S seeds (machines trained side by side), B sequences of each, T time, I inputs, O outputs, C controller size,
L controller layers, R read heads, W write heads, N memory slots, M memory width, r shift range.

The scan runs S machines over B sequences each:

    parameters [S, P]          one flat vector per machine; `ScanSpec.parameter_shapes` names its parts in order
    inputs     [S, T, B, I]
    lengths    [S, B]          steps of each sequence; beyond them outputs are zero and the state stands still
    slots      [S, B]          memory slots in use by each sequence, at most N; the rest of the tape is never touched
    state      ScanState       -> outputs [S, T, B, O] (logits) and the state after each sequence's last step
"""

import contextlib
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tapehead.checks import FLOATS
from tapehead.kernels.machine_spec import MachineSpec
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.kernels.state import carried


@carried("tapehead.NTMState")
class ScanState(NamedTuple):
    """All that a machine carries from step to step. With a leading S inside the scan, without it in `NTM`."""

    memory: Tensor  # [..., B, N, M]
    read_weightings: Tensor  # [..., B, R, N]
    write_weightings: Tensor  # [..., B, W, N]
    reads: Tensor  # [..., B, R, M]
    hidden: Tensor  # [..., B, L, C]; L is 0 for a feedforward controller
    cell: Tensor  # [..., B, L, C]

    def detach(self) -> "ScanState":
        """The same numbers, cut off from the graph: between two parts of a long sequence, gradients end here."""
        return ScanState(*(part.detach() for part in self))

    def to(self, *place: Any, **options: Any) -> "ScanState":
        """Every tensor on another device or in another type; the arguments are those of `torch.Tensor.to`."""
        return ScanState(*(part.to(*place, **options) for part in self))


class HeadTrace(NamedTuple):
    """How the heads of one kind found their places: the stages of Figure 2 of the paper, at every step."""

    keys: Tensor  # [..., T, B, H, M]
    strengths: Tensor  # [..., T, B, H]
    gates: Tensor  # [..., T, B, H]
    shifts: Tensor  # [..., T, B, H, 2r+1]: entry j is the weight of a shift by j - r
    sharpenings: Tensor  # [..., T, B, H]
    content: Tensor  # [..., T, B, H, N]: Eq. 5
    interpolated: Tensor  # [..., T, B, H, N]: Eq. 7
    shifted: Tensor  # [..., T, B, H, N]: Eq. 8
    weightings: Tensor  # [..., T, B, H, N]: Eq. 9


class Trace(NamedTuple):
    """Everything a machine did, step by step; steps beyond a sequence's length hold zeros. Carries no gradient."""

    read: HeadTrace
    write: HeadTrace
    erase: Tensor  # [..., T, B, W, M]
    add: Tensor  # [..., T, B, W, M]
    write_gates: Tensor  # [..., T, B, W]; ones where the machine has no write gate
    memory: Tensor  # [..., T, B, N, M], after the step
    reads: Tensor  # [..., T, B, R, M]
    hidden: Tensor  # [..., T, B, C], the last layer


class Learned(NamedTuple):
    """What one training step finds out."""

    costs: Tensor  # [S, B] in nats
    gradient: Tensor  # [S, P], of each seed's mean cost over its B sequences
    d_initial: ScanState | None  # if asked for
    squares: Tensor | None  # see `loss_and_gradient`


COUNTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""Types of lengths and slots."""


def check_arguments(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
) -> None:
    """Refuse arguments of wrong shape, type, layout or device. The kernels go by addresses and would not notice.

    The values of lengths and slots are another matter (`check_counts`): on a GPU, looking at them waits for the device.
    """
    check_sequences(spec, parameters, inputs, {"lengths": lengths, "slots": slots})
    check_state(spec, state, (inputs.shape[0], inputs.shape[2]), parameters.dtype, parameters.device)


def check_sequences(spec: MachineSpec, parameters: Tensor, inputs: Tensor, counts: dict[str, Tensor]) -> None:
    """The same for all but a state, of any machine."""
    dtype = parameters.dtype
    if dtype not in FLOATS:
        raise ValueError(half_precision(dtype))
    if inputs.ndim != 4:
        raise ValueError(f"inputs has shape {tuple(inputs.shape)}, but the scan takes [S, T, B, I].")
    seeds, steps, batch, _ = inputs.shape
    if steps == 0:
        raise ValueError("inputs has no time steps, but a sequence needs at least one.")
    device = parameters.device
    check_tensor("parameters", parameters, (seeds, spec.parameter_count), dtype, device)
    check_tensor("inputs", inputs, (seeds, steps, batch, spec.input_size), dtype, device)
    for name, each in counts.items():
        if each.dtype not in COUNTS:
            raise ValueError(f"{name} is {each.dtype}, but it must hold whole numbers: use torch.int64.")
        check_tensor(name, each, (seeds, batch), each.dtype, device)


def check_state(
    spec: ScanSpec, state: ScanState, lead: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """The same for a state; `lead` is (S, B), or (B,) for a single machine."""
    tape = state.memory.shape[-2] if state.memory.ndim == len(lead) + 2 else 0
    if tape == 0:
        raise ValueError(
            f"state.memory has shape {tuple(state.memory.shape)}, but this machine needs "
            f"({', '.join([*map(str, lead), 'slots', str(spec.memory_width)])}), with one slot or more."
        )
    width, controller = spec.memory_width, (*lead, spec.recurrent_layers, spec.controller_size)
    check_tensor("state.memory", state.memory, (*lead, tape, width), dtype, device)
    check_tensor("state.read_weightings", state.read_weightings, (*lead, spec.read_heads, tape), dtype, device)
    check_tensor("state.write_weightings", state.write_weightings, (*lead, spec.write_heads, tape), dtype, device)
    check_tensor("state.reads", state.reads, (*lead, spec.read_heads, width), dtype, device)
    check_tensor("state.hidden", state.hidden, controller, dtype, device)
    check_tensor("state.cell", state.cell, controller, dtype, device)


def half_precision(dtype: torch.dtype) -> str:
    """Why a machine with parameters of this type is refused."""
    return (
        f"the parameters are {dtype}, but a machine computes in float32 or float64: call .float(); torch.autocast may "
        "stay around the call, and has no effect on the machine."
    )


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A machine computes in the type of its parameters, on every backend; inside torch.autocast, too."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a tensor that is not exactly so. Called ten times in every update, so the sentences are written last."""
    if tensor.shape == shape and tensor.dtype == dtype and tensor.device == device and tensor.layout == torch.strided:
        return
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but this machine needs {shape}.")
    if tensor.dtype != dtype:
        raise ValueError(f"{name} is {tensor.dtype}, but the parameters are {dtype}: convert one.")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, but the parameters are on {device}: move one.")
    raise ValueError(f"{name} has layout {tensor.layout}, but the scan takes dense tensors: use to_dense().")


FEW = 256


def check_counts(lengths: Tensor, slots: Tensor, steps: int, tape: int) -> None:
    """Refuse numbers of steps and slots that a sequence of so many steps on such a tape cannot have."""
    for name, counts, least, most in (("lengths", lengths, 0, steps), ("slots", slots, 1, tape)):
        if counts.numel() == 0 or is_vmapped(counts):  # values inside vmap cannot be looked at
            continue
        if counts.is_cpu and counts.numel() <= FEW:  # of a few numbers Python finds the least faster than torch
            values = counts.flatten().tolist()
            low, high = min(values), max(values)
        else:
            low, high = torch.stack(torch.aminmax(counts)).tolist()
        if low < least or high > most:
            wrong = low if low < least else high
            raise ValueError(f"{name} holds {wrong}, but must lie between {least} and {most}.")


def is_vmapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for many inside `torch.func.vmap`, also below other transforms of `torch.func`. Torch has
    no public way to ask."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        if torch._C._functorch.is_batchedtensor(tensor):
            return True
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return False


def refuse_forward_mode() -> None:
    """Refuse forward-mode differentiation, that of `torch.func.jvp` too: a kernel would drop the tangents. Torch has
    no public way to ask."""
    if forward_ad._current_level >= 0:
        raise NotImplementedError("The fused backends have no forward-mode derivatives: choose backend='reference'.")


class FusedBackend(Protocol):
    """What the module of a fused backend (cpu/, gpu.py) offers. All tensors on its device, shapes already checked.

    Gradients are of the arguments' shapes. `forward` and `backward` also take one machine without its seed axis: inputs
    [T, B, I] and a state of such parts, beside parameters [1, P] and lengths and slots [1, B]; outputs, final state and
    all gradients but that of the parameters then have none either. A backend computes in the parameters' dtype and
    never mixes seeds or sequences: seed 7 alone and seed 7 among others give the same bits.
    """

    def refusal(self, spec: ScanSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
        """None if this backend can run such a machine here, otherwise one sentence that says why not."""

    def identity(self, dtype: torch.dtype, device: torch.device) -> str:
        """A word for the compiled code, known before it is compiled: where it is equal, the code is."""

    def forward(
        self,
        spec: ScanSpec,
        parameters: Tensor,
        inputs: Tensor,
        lengths: Tensor,
        slots: Tensor,
        state: ScanState,
        keep: bool,
        clear: bool = False,
        checked: bool = False,
    ) -> tuple[Tensor, ScanState, Tensor]:
        """Outputs, final state, and one opaque tensor for `backward` (empty unless `keep`).

        clear: zero the parts of that tensor that nothing writes, so that it is the same every time. checked: lengths
        and slots are known to fit.
        """

    def backward(
        self,
        spec: ScanSpec,
        parameters: Tensor,
        inputs: Tensor,
        lengths: Tensor,
        slots: Tensor,
        state: ScanState,
        kept: Tensor,
        d_outputs: Tensor,
        d_final: ScanState | None,
        inputs_gradient: bool = True,
        state_gradient: bool = True,
    ) -> tuple[Tensor, Tensor | None, ScanState | None]:
        """Gradients of parameters and, where asked for, of inputs and initial state; `d_final` None stands for zeros.

        May be called again with the same `kept`.
        """

    def trace(
        self, spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
    ) -> tuple[Tensor, ScanState, Trace]:
        """Outputs, final state and trace, without gradients."""

    def loss_and_gradient(
        self,
        spec: ScanSpec,
        parameters: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        slots: Tensor,
        state: ScanState,
        state_gradient: bool,
        loss: str,
        checked: bool = False,
    ) -> Learned:
        """One training step without autograd.

        A cost is that of `losses.BINARY` or `losses.CATEGORICAL`, as `loss` says, "binary" or "categorical", for the
        logits and targets [S, T, B, O], summed over the steps where mask [S, T, B] is not zero. A backend that has the
        gradient at hand part by part may return `squares` [S, parts], the sum of squares of each part, NaN in a part
        that is not finite or where a cost is not: then the update need not look at the gradient once more.
        """
