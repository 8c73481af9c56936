"""The parameters of a Neural Turing Machine as a torch module, and its start."""

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.models.config import NTMConfig
from tapehead.models.initial import initial_shapes, initial_state
from tapehead.models.parameters import Parameters

NTMState = ScanState


class Machine(Parameters):
    """The parameters of a machine and their start; shared by `NTM` and `NTMCell`."""

    config: NTMConfig

    def __init__(self, config: NTMConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__(config, initial_shapes(config), device, dtype)
        self._spec = config.spec

    def _initial_value(self, name: str, zeros: Tensor) -> Tensor:
        config, spec, value = self.config, self.config.spec, zeros
        self._set_controller_bias(name, value, config.forget_bias)
        if name == "initial.memory":
            value.fill_(config.initial_memory_value)
        elif name.endswith("_rates"):
            value.fill_(1.0)
        elif name == "interface.bias":
            reading, writing = spec.interface.heads(value)
            read, write = spec.interface.read, spec.interface.write
            for heads, parts, gate_bias in (
                (reading, read, config.read_gate_bias),
                (writing, write, config.write_gate_bias),
            ):
                heads[:, parts["strength"]] = config.strength_bias
                heads[:, parts["gate"]] = gate_bias
                heads[:, parts["sharpening"]] = config.sharpen_bias
        return value

    def initial_state(self, batch_size: int = 1) -> NTMState:
        """The state at the start of every sequence: memory, weightings, reads and controller at their bias values."""
        batch_size = checks.whole("batch_size", batch_size, 0)
        return ScanState(*(part.squeeze(0) for part in self._start(batch_size, None)))

    def set_initial_memory(self, rows: Tensor, trained: bool = False) -> None:
        """Start every sequence with these rows [slots, width]; the machine's `initial_memory` has to be "given"."""
        if self.config.initial_memory != "given":
            raise ValueError(f"initial_memory is {self.config.initial_memory!r}, but only 'given' takes rows.")
        parameter = self.get_parameter("initial.memory")
        if checks.tensor("rows", rows).shape != parameter.shape:
            raise ValueError(f"rows has shape {tuple(rows.shape)}, but the tape is {tuple(parameter.shape)}.")
        with torch.no_grad():
            parameter.copy_(rows)
        parameter.requires_grad_(checks.flag("trained", trained))

    def _start(self, batch_size: int, slots: Tensor | None) -> ScanState:
        """The initial state with a leading seed axis of one."""
        learned = {name: self._value(name).unsqueeze(0) for name in self._learned_start}
        weight = self._value("output.weight")
        return initial_state(self.config, learned, (1, batch_size), slots, device=weight.device, dtype=weight.dtype)
