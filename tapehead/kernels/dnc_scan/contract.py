"""What every backend of the scan agrees on: its arguments, its state and its trace.

Legend: S seeds (machines trained side by side), B sequences of each, T time, I inputs, O outputs, C controller size,
L controller layers, R read heads, N memory slots, M memory width. There is one write head.

The scan runs S machines over B sequences each:

    parameters [S, P]          one flat vector per machine; `DNCSpec.parameter_shapes` names its parts in order
    inputs     [S, T, B, I]
    lengths    [S, B]          steps of each sequence; beyond them outputs are zero and the state stands still
    slots      [S, B] or None  memory slots in use by each sequence, at most N; the rest of the tape is never touched
    state      DNCState        -> outputs [S, T, B, O] (logits) and the state after each sequence's last step
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.ntm_scan.contract import check_tensor
from tapehead.kernels.state import carried


@carried("tapehead.DNCState")
class DNCState(NamedTuple):
    """All that a machine carries from step to step. With a leading S inside the scan, without it in `DNC`."""

    memory: Tensor  # [..., B, N, M]
    usage: Tensor  # [..., B, N]
    link: Tensor  # [..., B, N, N]: row i, column j: how much slot i was written right after slot j
    precedence: Tensor  # [..., B, N]
    read_weightings: Tensor  # [..., B, R, N]
    write_weighting: Tensor  # [..., B, N]
    reads: Tensor  # [..., B, R, M]
    hidden: Tensor  # [..., B, L, C]; L is 0 for a feedforward controller
    cell: Tensor  # [..., B, L, C]

    def detach(self) -> "DNCState":
        """As of `NTMState`."""
        return DNCState(*(part.detach() for part in self))

    def to(self, *place: Any, **options: Any) -> "DNCState":
        """As of `NTMState`."""
        return DNCState(*(part.to(*place, **options) for part in self))


class ReadTrace(NamedTuple):
    """How the read heads found their places, at every step."""

    keys: Tensor  # [..., T, B, R, M]
    strengths: Tensor  # [..., T, B, R]
    masks: Tensor  # [..., T, B, R, M]; ones in a machine without masks
    free_gates: Tensor  # [..., T, B, R]
    modes: Tensor  # [..., T, B, R, 3]: backward, content, forward
    sharpness: Tensor  # [..., T, B, R, 2]: forward, backward; ones in a machine without it
    backward: Tensor  # [..., T, B, R, N]
    content: Tensor  # [..., T, B, R, N]
    forward: Tensor  # [..., T, B, R, N]
    weightings: Tensor  # [..., T, B, R, N]


class WriteTrace(NamedTuple):
    """How the write head found its place, at every step. It is one head, with an axis of its own as in a `Trace`."""

    keys: Tensor  # [..., T, B, 1, M]
    strengths: Tensor  # [..., T, B, 1]
    masks: Tensor  # [..., T, B, 1, M]; ones in a machine without masks
    allocation_gates: Tensor  # [..., T, B, 1]
    write_gates: Tensor  # [..., T, B, 1]
    content: Tensor  # [..., T, B, 1, N]
    allocation: Tensor  # [..., T, B, 1, N]
    weightings: Tensor  # [..., T, B, 1, N], with the write gate


class DNCTrace(NamedTuple):
    """Everything a machine did, step by step; steps beyond a sequence's length hold zeros. Carries no gradient.

    Links are not kept, N x N numbers in every step: they follow from the write weightings (`equations_dnc.link`).
    """

    read: ReadTrace
    write: WriteTrace
    erase: Tensor  # [..., T, B, 1, M]
    add: Tensor  # [..., T, B, 1, M]
    retention: Tensor  # [..., T, B, N]
    usage: Tensor  # [..., T, B, N], by which the step allocates: without its own write
    precedence: Tensor  # [..., T, B, N], after the step
    memory: Tensor  # [..., T, B, N, M], after the step
    reads: Tensor  # [..., T, B, R, M]
    hidden: Tensor  # [..., T, B, C], the last layer


def initial_state(
    spec: DNCSpec, lead: tuple[int, ...], slots: int, *, device: torch.device, dtype: torch.dtype
) -> DNCState:
    """The start of every sequence: zeros. `lead` is (S, B), or (B,) for a single machine."""
    return DNCState(
        *(torch.zeros(shape, device=device, dtype=dtype) for shape in state_shapes(spec, lead, slots).values())
    )


def state_shapes(spec: DNCSpec, lead: tuple[int, ...], slots: int) -> dict[str, tuple[int, ...]]:
    """The shape of each part of a state, by name."""
    width, controller = spec.memory_width, (*lead, spec.recurrent_layers, spec.controller_size)
    return {
        "memory": (*lead, slots, width),
        "usage": (*lead, slots),
        "link": (*lead, slots, slots),
        "precedence": (*lead, slots),
        "read_weightings": (*lead, spec.read_heads, slots),
        "write_weighting": (*lead, slots),
        "reads": (*lead, spec.read_heads, width),
        "hidden": controller,
        "cell": controller,
    }


def check_state(
    spec: DNCSpec, state: DNCState, lead: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """Refuse a state of wrong shape, type, layout or device."""
    tape = state.memory.shape[-2] if state.memory.ndim == len(lead) + 2 else 0
    if tape == 0:
        raise ValueError(
            f"state.memory has shape {tuple(state.memory.shape)}, but this machine needs one or more slots of "
            f"{spec.memory_width} for each of {lead}."
        )
    for name, shape in state_shapes(spec, lead, tape).items():
        check_tensor(f"state.{name}", getattr(state, name), shape, dtype, device)


class FusedDNC(Protocol):
    """What the module of a fused backend (cpu/ or gpu.py) offers. All tensors on its device, shapes already checked.

    tape: N. `state` None stands for the start, zeros, and `d_final` None for zeros. A backend computes in the
    parameters' dtype and never mixes seeds or sequences: seed 7 alone and seed 7 among others give the same bits. There
    is no trace: that is the reference's.
    """

    def refusal(self, spec: DNCSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
        """None if this backend can run such a machine on a tape of so many slots here, otherwise one sentence that
        says why not."""

    def identity(self, dtype: torch.dtype, device: torch.device) -> str:
        """A word for the compiled code, known before it is compiled: where it is equal, the code is."""

    def make_ready(self, dtype: torch.dtype) -> object:
        """Compile or load what a training step needs."""

    def forward(
        self,
        spec: DNCSpec,
        parameters: Tensor,
        inputs: Tensor,
        lengths: Tensor,
        slots: Tensor,
        tape: int,
        state: DNCState | None,
        keep: bool,
    ) -> tuple[Tensor, DNCState, Tensor]:
        """Outputs, final state, and one opaque tensor for `backward` (empty unless `keep`)."""

    def backward(
        self,
        spec: DNCSpec,
        parameters: Tensor,
        inputs: Tensor,
        lengths: Tensor,
        slots: Tensor,
        tape: int,
        kept: Tensor,
        d_outputs: Tensor,
        d_final: DNCState | None,
        state_gradient: bool = True,
    ) -> tuple[Tensor, Tensor, DNCState | None]:
        """Gradients of parameters, inputs and, where asked for, initial state. May be called again with the same
        `kept`."""

    def loss_and_gradient(
        self,
        spec: DNCSpec,
        parameters: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        slots: Tensor,
        tape: int,
        loss: str,
        checked: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """One training step without autograd, from the start: costs [S, B] in nats, and the gradient [S, P] of each
        seed's mean cost. loss: "binary" or "categorical". checked: lengths and slots are known to fit, and the mask
        is of zeros and ones."""
