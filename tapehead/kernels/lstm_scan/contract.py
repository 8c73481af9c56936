"""What the fused backends of the LSTM agree on.

Legend: S seeds, T steps, B sequences of a seed, I inputs, O outputs, H units of a layer, L layers, P parameters.

The truth that they are held to is `PaperLSTM` in torch, with autograd.
"""

import dataclasses
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tapehead.kernels.ntm_scan.contract import check_tensor


@dataclasses.dataclass(frozen=True)
class LSTMSpec:
    """The sizes of a stacked LSTM."""

    input_size: int
    output_size: int
    hidden_size: int
    num_layers: int

    def input_columns(self, layer: int) -> int:
        """Columns of a layer's input weights: the inputs, and the layer below."""
        return self.input_size + (self.hidden_size if layer else 0)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Parameters by name, in the order in which they are the P values of a seed."""
        gates, layers = 4 * self.hidden_size, range(self.num_layers)
        named: dict[str, tuple[int, ...]] = {}
        for layer in layers:
            named[f"weight_input_{layer}"] = (gates, self.input_columns(layer))
            named[f"weight_hidden_{layer}"] = (gates, self.hidden_size)
            named[f"bias_{layer}"] = (gates,)
        named["initial_hidden"] = named["initial_cell"] = (self.num_layers, self.hidden_size)
        named["output_weight"] = (self.output_size, self.num_layers * self.hidden_size)
        named["output_bias"] = (self.output_size,)
        return named


class LSTMBackend(Protocol):
    """A module that trains populations: parameters [S, P], inputs [S, T, B, I], lengths [S, B]."""

    def refusal(self, spec: LSTMSpec, dtype: torch.dtype, device: torch.device) -> str | None:
        """None if it can run such a network here, otherwise why not."""

    def identity(self, dtype: torch.dtype, device: torch.device) -> str:
        """A word for the code that runs: where two differ, bits may."""

    def forward(self, spec: LSTMSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor) -> "Run":
        """Logits and final state, from the learned initial state."""

    def loss_and_gradient(
        self,
        spec: LSTMSpec,
        parameters: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        loss: str,
    ) -> tuple[Tensor, Tensor]:
        """Costs [S, B] in nats, and the gradient [S, P] of each seed's mean cost."""


class Run(NamedTuple):
    """What a network did; zero beyond a sequence's length."""

    outputs: Tensor  # [S, T, B, O]
    hidden: Tensor  # [S, B, L, H], after the last step of each sequence
    cell: Tensor


def check_population(
    spec: LSTMSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    targets: Tensor | None = None,
    mask: Tensor | None = None,
) -> None:
    """Refuse tensors that do not belong together; lengths outside the sequences where that needs no waiting."""
    dtype, device = parameters.dtype, parameters.device
    count = sum(torch.Size(shape).numel() for shape in spec.shapes().values())
    if inputs.ndim != 4 or inputs.shape[2] == 0 or inputs.shape[1] == 0:
        raise ValueError(f"inputs have shape {tuple(inputs.shape)}, but [seeds, steps, sequences, inputs] is needed.")
    seeds, steps, batch, _ = inputs.shape
    check_tensor("parameters", parameters, (seeds, count), dtype, device)
    check_tensor("inputs", inputs, (seeds, steps, batch, spec.input_size), dtype, device)
    check_tensor("lengths", lengths, (seeds, batch), lengths.dtype, device)
    if targets is not None and mask is not None:
        check_tensor("targets", targets, (seeds, steps, batch, spec.output_size), targets.dtype, device)
        check_tensor("mask", mask, (seeds, steps, batch), mask.dtype, device)
    if device.type == "cpu":
        low, high = (int(bound) for bound in torch.aminmax(lengths))
        if low < 1 or high > steps:
            raise ValueError(f"lengths run from {low} to {high}, but must lie between 1 and the {steps} steps given.")
