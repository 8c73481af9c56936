"""A machine as torch modules of plain tensors, on the reference's operations, which exporters can trace.

Legend: T time, B batch, I inputs, O outputs. Both T and B are free: the machine is a scan over time, not a loop that is
written out, and no shape depends on a value. The state is a tuple of the parts that have numbers, in the order of
`NTMState`: a feedforward controller has neither hidden nor cell state.
"""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import ScanState, full_precision
from tapehead.models.cell import NTMCell
from tapehead.models.ntm import NTM

State = tuple[Tensor, ...]


class PortableCell(nn.Module):
    """One step: inputs [B, I] and the state -> logits [B, O] and the next state."""

    def __init__(self, machine: NTM | NTMCell) -> None:
        super().__init__()
        self._spec = machine.config.spec.compute_all()
        self._names = tuple(self._spec.parameter_shapes)
        parameters = dict(machine.named_parameters())
        for name in self._names:  # copies: those of a machine share one storage, which torch.export.save warns about
            self.register_buffer(_flat(name), parameters[name].detach().cpu().clone())
        with full_precision(torch.device("cpu")), torch.no_grad():
            start = machine.initial_state(1)
        self.state_names = tuple(name for name, part in start._asdict().items() if part.numel())
        self._empty = {name: part.shape[1:] for name, part in start._asdict().items() if not part.numel()}
        for name in self.state_names:
            self.register_buffer(f"start_{name}", getattr(start, name).cpu().clone())

    def start(self, batch_size: int) -> State:
        """The state at the start of B sequences."""
        parts = (getattr(self, f"start_{name}") for name in self.state_names)
        return tuple(part.expand(batch_size, *part.shape[1:]) for part in parts)

    def forward(self, inputs: Tensor, *state: Tensor) -> State:
        parts = dict(zip(self.state_names, state, strict=True))
        for name, shape in self._empty.items():
            parts[name] = inputs.new_zeros(inputs.shape[0], *shape)
        parameters = {name: getattr(self, _flat(name)) for name in self._names}
        logits, new, _ = reference.step(self._spec, parameters, inputs, ScanState(**parts))
        return (logits, *(getattr(new, name) for name in self.state_names))


class PortableMachine(nn.Module):
    """Whole sequences: inputs [T, B, I] and lengths [B] -> logits [T, B, O] and the state after each row's last step.

    Every sequence begins at the machine's start. Beyond a row's length logits are zero.
    """

    def __init__(self, machine: NTM | NTMCell) -> None:
        super().__init__()
        self.cell = PortableCell(machine)
        self.state_names = self.cell.state_names

    def forward(self, inputs: Tensor, lengths: Tensor) -> State:
        steps, batch = inputs.shape[:2]
        inside = torch.arange(steps, device=inputs.device).unsqueeze(-1) < lengths  # [T, B]

        def body(state: State, now: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
            x, active = now
            logits, *new = self.cell(x, *state)
            kept = tuple(_where_row(active, after, before) for after, before in zip(new, state, strict=True))
            return kept, _where_row(active, logits, torch.zeros_like(logits))

        start = tuple(part.clone() for part in self.cell.start(batch))
        final, logits = scan(body, start, (inputs, inside))
        return (logits, *final)


def _flat(name: str) -> str:
    """The name of a parameter without the dot, which a buffer cannot have."""
    return name.replace(".", "_")


def _where_row(active: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(active.reshape(-1, *(1,) * (yes.ndim - 1)), yes, no)
