"""One step of a Neural Turing Machine as a torch module."""

from typing import Never

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import ScanState, check_state, full_precision, half_precision
from tapehead.kernels.ntm_scan.spec import AddActivation, KeyActivation, Order, OutputFrom, Shift
from tapehead.models.config import (
    InitialController,
    InitialMemory,
    InitialReads,
    InitialWeightings,
    NTMConfig,
)
from tapehead.models.machine import Machine, NTMState
from tapehead.models.sequence import named_state


class NTMCell(Machine):
    """One step: `y, state = cell(x, state)` with x [B, I] or [I]; `state` None starts a sequence.

    It has the parameters of `NTM` under the same names, so a checkpoint of one loads into the other. Written in plain
    torch operations, so it can be exported with `torch.export`. The options are the fields of `NTMConfig`, whose text
    says what each does: `help(tapehead.NTMConfig)`.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        controller: str = "lstm",
        controller_size: int = 100,
        controller_layers: int = 1,
        num_heads: int = 1,
        memory_slots: int = 128,
        memory_width: int = 20,
        shift: Shift = "softmax",
        shift_range: int = 1,
        read_heads: int | None = None,
        write_heads: int | None = None,
        initial_memory: InitialMemory = "constant",
        initial_memory_value: float = 1e-6,
        initial_memory_scale: float = 0.1,
        initial_weightings: InitialWeightings = "first",
        initial_reads: InitialReads = "zeros",
        initial_controller: InitialController = "zeros",
        order: Order = "write_then_read",
        key_activation: KeyActivation = "linear",
        add_activation: AddActivation = "linear",
        output_from: OutputFrom = "hidden_and_reads",
        forget_bias: float = 1.0,
        read_gate_bias: float = 0.0,
        write_gate_bias: float = 0.0,
        strength_bias: float = 0.0,
        sharpen_bias: float = 0.0,
        interface_clip: float | None = None,
        write_gate: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Never,
    ) -> None:
        super().__init__(NTMConfig.from_arguments(locals(), unknown), device, dtype)

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
            check_state(self._spec, state, tuple(x.shape[:-1]), weight.dtype, weight.device)
            state = ScanState(*(part.unsqueeze(0) for part in state)) if x.ndim == 1 else state
        parameters = {name: self._value(name) for name in self._spec.parameter_shapes}
        with full_precision(x.device):
            y, state, _ = reference.step(self._spec, parameters, batch.to(state.memory.dtype), state)
        if x.ndim == 1:
            return y.squeeze(0), ScanState(*(part.squeeze(0) for part in state))
        return y, state
