"""A controller of one's own: a layer of tanh units that sees what it was in the step before (Elman 1990)."""

import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.controllers import Controller, linear
from tapehead.kernels.ntm_scan.spec import ScanSpec


class Elman(Controller):
    def parameter_shapes(self, spec: ScanSpec) -> dict[str, tuple[int, ...]]:
        size = spec.controller_size
        return {"weight": (size, spec.input_size + spec.read_heads * spec.memory_width + size), "bias": (size,)}

    def recurrent_layers(self, spec: ScanSpec) -> int:
        return 1

    def step(
        self, spec: ScanSpec, parameters: dict[str, Tensor], inputs: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        seen = torch.cat([inputs, hidden[..., 0, :]], dim=-1)
        output = torch.tanh(linear(seen, parameters["weight"], parameters["bias"])).to(cell.dtype)
        return output, output.unsqueeze(-2), cell
