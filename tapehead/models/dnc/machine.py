"""The parameters of a Differentiable Neural Computer as a torch module, and its start."""

import torch
from torch import Tensor

from tapehead import checks
from tapehead.kernels.dnc_scan.contract import DNCState, initial_state
from tapehead.kernels.dnc_scan.spec import MODES
from tapehead.kernels.ntm_scan.contract import half_precision
from tapehead.models.dnc.config import DNCConfig
from tapehead.models.parameters import Parameters


class DNCMachine(Parameters):
    """The parameters of a machine and their start; shared by `DNC` and `DNCCell`."""

    config: DNCConfig

    def __init__(self, config: DNCConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__(config, {}, device, dtype)
        self._spec = config.spec

    def _initial_value(self, name: str, zeros: Tensor) -> Tensor:
        config, value = self.config, zeros
        self._set_controller_bias(name, value, config.forget_bias)
        if name == "interface.bias":
            interface = config.spec.interface
            reading, writing = interface.heads(value)
            reading[:, interface.read["strength"]] = config.strength_bias
            reading[:, interface.read["free_gate"]] = config.free_gate_bias
            reading[:, interface.read["modes"]][:, MODES.index("content")] = config.content_mode_bias
            writing[:, interface.write["strength"]] = config.strength_bias
            writing[:, interface.write["allocation_gate"]] = config.allocation_gate_bias
            writing[:, interface.write["write_gate"]] = config.write_gate_bias
        return value

    def initial_state(self, batch_size: int = 1) -> DNCState:
        """The state at the start of every sequence: zeros, in an empty memory without links."""
        batch_size = checks.whole("batch_size", batch_size, 0)
        weight = self._value("output.weight")
        slots = self.config.memory_slots
        return initial_state(self._spec, (batch_size,), slots, device=weight.device, dtype=weight.dtype)

    def _check_input(self, x: Tensor) -> Tensor:
        """The input in the parameters' type; refuses what the machine cannot compute with."""
        weight = self._value("output.weight")
        if weight.dtype not in checks.FLOATS:
            raise ValueError(half_precision(weight.dtype))
        if x.device != weight.device:
            raise ValueError(f"input is on {x.device}, but the parameters are on {weight.device}: move one.")
        return x.to(weight.dtype)
