"""The paper's baseline: three LSTM layers, as its Table 3 was decoded from the parameter counts.

The input is connected to every layer, every layer to the output; one bias per gate, no peepholes; the initial hidden
and cell state of every layer are learned. With L layers of size H, x inputs and y outputs that makes
4H(Lx + (2L - 1)H + L) + 2LH + y(LH + 1) parameters: for L = 3 exactly the numbers of Table 3.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tapehead import checks
from tapehead.kernels import dispatch
from tapehead.kernels.lstm_scan.contract import LSTMSpec, check_population
from tapehead.kernels.machine_spec import MOST_LAYERS
from tapehead.kernels.ntm_scan.contract import check_tensor, is_vmapped, refuse_forward_mode
from tapehead.kernels.state import carried
from tapehead.losses import BINARY, Loss
from tapehead.models.sequence import SequenceModel, named_state

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@carried("tapehead.LSTMState")
class LSTMState(NamedTuple):
    """Legend: B batch, L layers, H size."""

    hidden: Tensor  # [B, L, H]
    cell: Tensor  # [B, L, H]

    def detach(self) -> "LSTMState":
        """As of `NTMState`."""
        return LSTMState(*(part.detach() for part in self))

    def to(self, *place: Any, **options: Any) -> "LSTMState":
        """As of `NTMState`."""
        return LSTMState(*(part.to(*place, **options) for part in self))


class LSTMTrace(NamedTuple):
    hidden: Tensor  # [T, B, L, H]


class PaperLSTM(SequenceModel):
    """Stacked LSTM with skip connections and learned initial states (Table 3 of the paper).

    As a layer it runs in torch. Populations train in kernels of their own, `backend` "cpu" or "gpu"; "auto" takes the
    one of the device, "reference" is torch with autograd, a seed at a time.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        hidden_size: int = 256,
        num_layers: int = 3,
        *,
        forget_bias: float = 1.0,
        batch_first: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = dict(input_size=input_size, output_size=output_size, hidden_size=hidden_size, num_layers=num_layers)
        sizes = {name: checks.whole(name, value, 1) for name, value in sizes.items()}
        checks.whole("num_layers", num_layers, 1, MOST_LAYERS)
        x, y, h, layers = sizes.values()
        checks.affordable("parameters", 4 * h * (layers * x + (2 * layers - 1) * h + layers) + y * layers * h)
        device, dtype = checks.device(device), checks.floating(dtype, FLOATS)
        self.input_size, self.output_size, self.hidden_size, self.num_layers = sizes.values()
        self.batch_first = checks.flag("batch_first", batch_first)
        self.forget_bias = checks.real("forget_bias", forget_bias)
        self._spec = LSTMSpec(*sizes.values())
        self.choose_backend(backend)

        def learned(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        for layer in range(num_layers):
            below = input_size + (hidden_size if layer else 0)
            self.register_parameter(f"weight_input_{layer}", learned(4 * hidden_size, below))
            self.register_parameter(f"weight_hidden_{layer}", learned(4 * hidden_size, hidden_size))
            self.register_parameter(f"bias_{layer}", learned(4 * hidden_size))
        self.initial_hidden = learned(num_layers, hidden_size)
        self.initial_cell = learned(num_layers, hidden_size)
        self.output_weight = learned(output_size, num_layers * hidden_size)
        self.output_bias = learned(output_size)
        self.reset_parameters()

    def extra_repr(self) -> str:
        sizes = ("input_size", "output_size", "hidden_size", "num_layers")
        return ", ".join(f"{name}={getattr(self, name)}" for name in sizes)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Uniform in +- 1 / sqrt(fan-in) for weights, zero for biases and initial states; `forget_bias` for
        the biases of forget gates."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "weight" in name:
                    bound = parameter.shape[1] ** -0.5
                    drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
                    parameter.copy_(drawn.uniform_(-bound, bound, generator=generator))
                else:
                    parameter.zero_()
                if name.startswith("bias"):
                    parameter[self.hidden_size : 2 * self.hidden_size] = self.forget_bias

    # --- where it runs -----------------------------------------------------------------------------------------------

    def choose_backend(self, backend: str) -> None:
        """Train populations on this backend from now on; "auto" takes the best that the device has."""
        if backend not in dispatch.BACKENDS:
            raise ValueError(
                f"backend is {checks.shown(backend)}, but it must be one of {', '.join(dispatch.BACKENDS)}."
            )
        self.backend = backend

    def backend_and_reason(self) -> tuple[str, str]:
        return self._backend_for(self.output_weight)

    def _backend_for(self, weights: Tensor) -> tuple[str, str]:
        return dispatch.choose_lstm(self.backend, self._spec, weights.dtype, weights.device)

    def kernel_identity(self) -> str:
        backend = self.backend_in_use()
        if backend == "reference":
            return super().kernel_identity()
        return dispatch.fused_lstm(backend).identity(self.output_weight.dtype, self.output_weight.device)

    # --- populations -------------------------------------------------------------------------------------------------

    def capturable(self, loss: Loss) -> bool:
        backend = self.backend_in_use()
        return backend == "gpu" and dispatch.is_fused(backend, loss)

    def population(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None = None) -> Tensor:
        backend, _ = self._backend_for(flat)
        learning = torch.is_grad_enabled() and (flat.requires_grad or inputs.requires_grad)
        if backend == "reference" or learning or slots is not None or is_vmapped(flat):
            return super().population(flat, inputs, lengths, slots)
        refuse_forward_mode()
        check_population(self._spec, flat, inputs, lengths)
        return dispatch.fused_lstm(backend).forward(self._spec, flat, inputs, lengths).outputs

    def loss_and_gradient(
        self,
        flat: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        *,
        slots: Tensor | None = None,
        loss: Loss = BINARY,
        checked: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        backend, _ = self._backend_for(flat)
        if slots is not None or not dispatch.is_fused(backend, loss):
            return super().loss_and_gradient(flat, inputs, targets, mask, lengths, slots=slots, loss=loss)
        if not checked:
            check_population(self._spec, flat, inputs, lengths, targets, mask)
        given = (flat, inputs, targets, mask, lengths)
        costs, gradient = dispatch.fused_lstm(backend).loss_and_gradient(self._spec, *given, str(loss.kernel))
        return costs, gradient, None

    # --- as a layer --------------------------------------------------------------------------------------------------

    def initial_state(self, batch_size: int) -> LSTMState:
        batch_size = checks.whole("batch_size", batch_size, 0)
        return LSTMState(
            self.initial_hidden.expand(batch_size, -1, -1).clone(), self.initial_cell.expand(batch_size, -1, -1).clone()
        )

    def _as_state(self, state: Any) -> LSTMState:
        named: LSTMState = named_state(LSTMState, state)
        return named

    def _run(
        self, x: Tensor, state: LSTMState | None, lengths: Tensor | None, slots: Tensor | None, return_trace: bool
    ) -> tuple[Tensor, LSTMState, LSTMTrace | None]:
        if slots is not None:
            raise ValueError("slots were given, but PaperLSTM has no memory: leave them out.")
        weight = self.output_weight
        if x.device != weight.device:
            raise ValueError(f"input is on {x.device}, but the parameters are on {weight.device}: move one.")
        x = x.to(weight.dtype)
        state = self.initial_state(x.shape[1]) if state is None else state
        for name, part in zip(LSTMState._fields, state, strict=True):
            shape = (x.shape[1], self.num_layers, self.hidden_size)
            check_tensor(f"state.{name}", part, shape, weight.dtype, weight.device)
        by_steps = any(is_vmapped(tensor) for tensor in (x, *state, *self._parameters.values()) if tensor is not None)
        packed = None
        if lengths is not None and not by_steps and x.shape[1]:
            packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
        if packed is not None and packed.sorted_indices is not None:
            state = LSTMState(*(part[packed.sorted_indices] for part in state))
        data = x if packed is None else packed.data
        below, hiddens, last = data, [], []
        for layer in range(self.num_layers):
            below, *ends = self._layer(layer, below, state, packed, lengths, by_steps)
            hiddens.append(below)
            last.append(ends)
            below = torch.cat([data, below], dim=-1)
        stacked = torch.stack(hiddens, dim=-2)  # [T, B, L, H], or [all steps, L, H] if packed
        logits = torch.nn.functional.linear(stacked.flatten(-2), self.output_weight, self.output_bias)
        final = LSTMState(*(torch.cat(parts).transpose(0, 1) for parts in zip(*last, strict=True)))
        if by_steps and lengths is not None:
            inside = (torch.arange(x.shape[0], device=x.device).unsqueeze(-1) < lengths).unsqueeze(-1)
            logits, stacked = torch.where(inside, logits, 0.0), torch.where(inside.unsqueeze(-1), stacked, 0.0)
        if packed is not None:
            logits, stacked = (_unpack(part, packed, x.shape[0]) for part in (logits, stacked))
            final = LSTMState(*(part[packed.unsorted_indices] for part in final))
        return logits, final, LSTMTrace(stacked.detach()) if return_trace else None

    def _layer(
        self,
        layer: int,
        data: Tensor,
        state: LSTMState,
        packed: PackedSequence | None,
        lengths: Tensor | None,
        by_steps: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One layer over all steps: its outputs, last hidden and last cell state [1, B, H]."""
        bias = getattr(self, f"bias_{layer}")
        weights = [
            getattr(self, f"weight_input_{layer}"),
            getattr(self, f"weight_hidden_{layer}"),
            bias,
            torch.zeros_like(bias),  # torch has two biases, the paper one
        ]
        start = [part[:, layer].unsqueeze(0).contiguous() for part in state]
        if by_steps:
            return self._layer_by_steps(data, weights, start, lengths)
        if packed is None:
            return torch.lstm(data, start, weights, True, 1, 0.0, self.training, False, False)
        return torch.lstm(data, packed.batch_sizes, start, weights, True, 1, 0.0, self.training, False)

    @staticmethod
    def _layer_by_steps(
        data: Tensor, weights: list[Tensor], start: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same in plain operations, because `torch.lstm` has no rule for `torch.func.vmap`."""
        weight_input, weight_hidden, bias, _ = weights
        hidden, cell = start[0][0], start[1][0]
        outputs = []
        for t, x in enumerate(data):
            i, f, g, o = (x @ weight_input.T + hidden @ weight_hidden.T + bias).chunk(4, dim=-1)
            new_cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            new_hidden = torch.sigmoid(o) * torch.tanh(new_cell)
            active = (
                torch.ones_like(new_cell[:, :1], dtype=torch.bool) if lengths is None else (t < lengths).unsqueeze(-1)
            )
            cell, hidden = torch.where(active, new_cell, cell), torch.where(active, new_hidden, hidden)
            outputs.append(hidden)
        return torch.stack(outputs), hidden.unsqueeze(0), cell.unsqueeze(0)


def _unpack(data: Tensor, packed: PackedSequence, steps: int) -> Tensor:
    padded, _ = pad_packed_sequence(packed._replace(data=data), total_length=steps)
    return padded
