"""One step of a Neural Turing Machine as a torch module."""

from typing import Any

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import ScanState, check_state, half_precision
from tapehead.models.config import NTMConfig
from tapehead.models.machine import Machine, NTMState
from tapehead.models.sequence import named_state


class NTMCell(Machine):
    """One step: `y, state = cell(x, state)` with x [B, I] or [I]; `state` None starts a sequence.

    It has the parameters of `NTM` under the same names, so a checkpoint of one loads into the other. Written in plain
    torch operations, so it can be exported with `torch.export`. Options: see `NTMConfig`.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        config = NTMConfig.from_options({"input_size": input_size, "output_size": output_size, **options})
        super().__init__(config, device, dtype)

    def forward(self, x: Tensor, state: NTMState | None = None) -> tuple[Tensor, NTMState]:
        checks.tensor("input", x)
        weight = self._value("output.weight")
        if weight.dtype not in checks.FLOATS:
            raise ValueError(half_precision(weight.dtype))
        if x.device != weight.device:
            raise ValueError(f"input is on {x.device}, but the parameters are on {weight.device}: move one.")
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(f"input has shape {tuple(x.shape)}, but this cell takes [batch, {self.input_size}].")
        batch = x if x.ndim == 2 else x.unsqueeze(0)
        if state is None:
            state = self.initial_state(batch.shape[0])
        else:
            state = named_state(ScanState, state)
            state = ScanState(*(part.unsqueeze(0) for part in state)) if x.ndim == 1 else state
            check_state(self._spec, state, (batch.shape[0],), weight.dtype, weight.device)
        parameters = {name: self._value(name) for name in self._spec.parameter_shapes}
        y, state, _ = reference.step(self._spec, parameters, batch.to(state.memory.dtype), state)
        if x.ndim == 1:
            return y.squeeze(0), ScanState(*(part.squeeze(0) for part in state))
        return y, state
