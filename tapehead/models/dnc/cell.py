"""One step of a Differentiable Neural Computer as a torch module."""

from typing import Never

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.dnc_scan import reference
from tapehead.kernels.dnc_scan.contract import DNCState, check_state
from tapehead.kernels.dnc_scan.spec import Strength
from tapehead.models.dnc.config import DNCConfig
from tapehead.models.dnc.machine import DNCMachine
from tapehead.models.sequence import named_state


class DNCCell(DNCMachine):
    """One step: `y, state = cell(x, state)` with x [B, I] or [I]; `state` None starts a sequence.

    It has the parameters of `DNC` under the same names, so a checkpoint of one loads into the other. Options: see
    `DNCConfig`.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        controller: str = "lstm",
        controller_size: int = 100,
        controller_layers: int = 1,
        read_heads: int = 4,
        memory_slots: int = 128,
        memory_width: int = 20,
        strength: Strength = "oneplus",
        detached_usage: bool = False,
        masked_content: bool = False,
        deallocation: bool = False,
        link_sharpness: bool = False,
        forget_bias: float = 1.0,
        strength_bias: float = 0.0,
        free_gate_bias: float = 0.0,
        content_mode_bias: float = 0.0,
        allocation_gate_bias: float = 0.0,
        write_gate_bias: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Never,
    ) -> None:
        super().__init__(DNCConfig.from_arguments(locals(), unknown), device, dtype)

    def forward(self, x: Tensor, state: DNCState | None = None) -> tuple[Tensor, DNCState]:
        checks.tensor("input", x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(f"input has shape {tuple(x.shape)}, but this cell takes [batch, {self.input_size}].")
        batch = self._check_input(x if x.ndim == 2 else x.unsqueeze(0))
        if state is None:
            state = self.initial_state(batch.shape[0])
        else:
            state = named_state(DNCState, state)
            state = DNCState(*(part.unsqueeze(0) for part in state)) if x.ndim == 1 else state
            check_state(self._spec, state, (batch.shape[0],), batch.dtype, batch.device)
        parameters = {name: self._value(name) for name in self._spec.parameter_shapes}
        y, state, _ = reference.step(self._spec, parameters, batch, state)
        if x.ndim == 1:
            return y.squeeze(0), DNCState(*(part.squeeze(0) for part in state))
        return y, state
