"""The fused backend of the LSTM for CPUs: products of torch, gradients by hand, a seed on each core.

Every product runs on one thread, so that a seed's bits depend neither on the number of threads nor on other seeds. Rows
are packed as in scan.cu: a seed's sequences are sorted, longest first, and a step has rows for those that still run.
"""

import concurrent.futures
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tapehead.kernels.lstm_scan.contract import LSTMSpec, Run
from tapehead.losses import BINARY, CATEGORICAL
from tapehead.threads import one_thread

LOSSES = {"binary": BINARY, "categorical": CATEGORICAL}
DTYPES = (torch.float32, torch.float64)


def refusal(spec: LSTMSpec, dtype: torch.dtype, device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"the CPU kernel runs on CPUs, and this is {device}."
    if dtype not in DTYPES:
        return f"the CPU kernel computes in float32 and float64, and the parameters are {dtype}."
    return None


def identity(dtype: torch.dtype, device: torch.device) -> str:
    return f"torch-{torch.__version__}"


def forward(spec: LSTMSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor) -> Run:
    def one(seed: int) -> Run:
        scan = _Scan(spec, parameters[seed], inputs[seed], lengths[seed])
        scan.forward()
        return scan.run()

    runs = _each(one, len(parameters))
    return Run(*(torch.stack(parts) for parts in zip(*runs, strict=True)))


def loss_and_gradient(
    spec: LSTMSpec, parameters: Tensor, inputs: Tensor, targets: Tensor, mask: Tensor, lengths: Tensor, loss: str
) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(parameters, memory_format=torch.contiguous_format)
    costs = parameters.new_empty(inputs.shape[0], inputs.shape[2])

    def one(seed: int) -> None:
        scan = _Scan(spec, parameters[seed], inputs[seed], lengths[seed])
        scan.forward()
        costs[seed] = scan.loss(loss, targets[seed], mask[seed])
        gradient[seed] = scan.backward()

    _each(one, len(parameters))
    return costs, gradient


def _each(one: Callable[[int], Any], seeds: int) -> list[Any]:
    """A call for every seed, over the cores; torch computes on one thread meanwhile."""
    with one_thread() as threads, torch.no_grad():
        if threads == 1 or seeds == 1:
            return [one(seed) for seed in range(seeds)]
        return list(_pool(threads, os.getpid()).map(torch.no_grad()(one), range(seeds)))


@functools.cache
def _pool(threads: int, process: int) -> concurrent.futures.ThreadPoolExecutor:
    """process: after a fork there are no threads."""
    return concurrent.futures.ThreadPoolExecutor(threads, "tapehead-lstm")


class _Layer(NamedTuple):
    """What a layer keeps for the way back. Legend: R rows, H units."""

    inputs: Tensor  # [R, columns]
    gates: Tensor  # [R, 4 H]: input, forget, candidate, output
    hidden: Tensor  # [B + R, H]: the initial states first
    cells: Tensor  # [B + R, H]
    squashed: Tensor  # tanh of the new cells, [R, H]


class _Scan:
    """One network on its sequences."""

    def __init__(self, spec: LSTMSpec, flat: Tensor, inputs: Tensor, lengths: Tensor) -> None:
        self.spec, self.shape = spec, inputs.shape[:2]
        sizes = [torch.Size(shape).numel() for shape in spec.shapes().values()]
        # copies: at another alignment a product rounds apart
        parts = flat.split(sizes)
        self.weights = {
            name: part.clone().view(shape) for part, (name, shape) in zip(parts, spec.shapes().items(), strict=True)
        }
        self.lengths, self.order = lengths.sort(descending=True, stable=True)
        steps = int(self.lengths[0])
        running = torch.arange(steps).unsqueeze(-1) < self.lengths  # [T, B], in the sorted order
        self.counts: list[int] = running.sum(dim=1).tolist()
        self.starts = [0]
        for count in self.counts:
            self.starts.append(self.starts[-1] + count)
        step, place = running.nonzero(as_tuple=True)
        self.origin = step * inputs.shape[1] + self.order[place]  # of each row, in [T, B]
        starts = torch.tensor([-inputs.shape[1], *self.starts])
        self.before = starts[step] + inputs.shape[1] + place  # of each row, in [B + R]: where its last state is
        self.rows = inputs.flatten(0, 1)[self.origin].to(flat.dtype)
        self.layers: list[_Layer] = []

    def forward(self) -> None:
        batch, inputs = self.shape[1], self.rows
        for layer in range(self.spec.num_layers):
            self.layers.append(self._layer(layer, inputs))
            inputs = torch.cat([self.rows, self.layers[-1].hidden[batch:]], dim=1)
        self.hidden = torch.cat([kept.hidden[batch:] for kept in self.layers], dim=1)
        self.logits = torch.addmm(self.weights["output_bias"], self.hidden, self.weights["output_weight"].T)

    def _layer(self, layer: int, inputs: Tensor) -> _Layer:
        size, batch, rows = self.spec.hidden_size, self.shape[1], len(inputs)
        weight = self.weights[f"weight_hidden_{layer}"].T
        gates = torch.addmm(self.weights[f"bias_{layer}"], inputs, self.weights[f"weight_input_{layer}"].T)
        hidden = inputs.new_empty(batch + rows, size)
        cells = inputs.new_empty(batch + rows, size)
        squashed = inputs.new_empty(rows, size)
        hidden[:batch] = self.weights["initial_hidden"][layer]
        cells[:batch] = self.weights["initial_cell"][layer]
        before = 0
        for start, count in zip(self.starts, self.counts, strict=False):
            now, last, new = slice(start, start + count), slice(before, before + count), batch + start
            z = gates[now]
            z.addmm_(hidden[last], weight)
            i, f, g, o = z.chunk(4, dim=1)
            z[:, : 2 * size].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            cell = torch.mul(f, cells[last], out=cells[new : new + count]).addcmul_(i, g)
            torch.mul(o, torch.tanh(cell, out=squashed[now]), out=hidden[new : new + count])
            before = new
        return _Layer(inputs, gates, hidden, cells, squashed)

    def loss(self, loss: str, targets: Tensor, mask: Tensor) -> Tensor:
        """Costs [B] of the sequences in their own order; keeps the gradient of their mean."""
        batch, logits = self.shape[1], self.logits
        wanted, scored = targets.flatten(0, 1)[self.origin].to(logits.dtype), mask.flatten()[self.origin] != 0
        share = (scored.to(logits.dtype) / batch).unsqueeze(-1)
        logits = torch.where(scored.unsqueeze(-1), logits, 0.0)
        if loss == "binary":
            self.d_logits = (logits.sigmoid() - wanted) * share
        else:
            self.d_logits = (wanted.sum(dim=1, keepdim=True) * logits.softmax(dim=1) - wanted) * share
        each = LOSSES[loss].each(logits, wanted).sum(dim=1).mul_(scored)
        return logits.new_zeros(batch).index_add_(0, self.origin % batch, each)

    def backward(self) -> Tensor:
        """The gradient [P]."""
        size, layers = self.spec.hidden_size, self.spec.num_layers
        d: dict[str, Tensor] = {
            "output_weight": self.d_logits.T @ self.hidden,
            "output_bias": self.d_logits.sum(dim=0),
        }
        d_hidden = self.d_logits @ self.weights["output_weight"]  # [R, L H]
        above: Tensor | None = None
        starts = []
        for layer in reversed(range(layers)):
            kept = self.layers[layer]
            mine = d_hidden[:, layer * size : (layer + 1) * size]
            d_gates, *start = self._layer_back(layer, mine if above is None else mine + above)
            starts.append(start)
            d[f"weight_input_{layer}"] = d_gates.T @ kept.inputs
            d[f"weight_hidden_{layer}"] = d_gates.T @ kept.hidden[self.before]
            d[f"bias_{layer}"] = d_gates.sum(dim=0)
            if layer:
                above = d_gates @ self.weights[f"weight_input_{layer}"][:, self.spec.input_size :]
        for place, name in enumerate(("initial_hidden", "initial_cell")):
            d[name] = torch.stack([start[place] for start in reversed(starts)])
        return torch.cat([d[name].reshape(-1) for name in self.spec.shapes()])

    def _layer_back(self, layer: int, d_hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the gates' inputs [R, 4 H], and of the initial hidden and cell state [H]."""
        size, batch = self.spec.hidden_size, self.shape[1]
        kept, weight = self.layers[layer], self.weights[f"weight_hidden_{layer}"]
        before, (i, f, g, o) = kept.cells[self.before], kept.gates.chunk(4, dim=1)
        # what does not depend on later steps, for all rows: a gate's gradient is one of these times d_cell or d_hidden
        slopes = torch.cat([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), kept.squashed * o * (1 - o)], dim=1)
        into_cell = o * (1 - kept.squashed * kept.squashed)
        d_gates = slopes.view(-1, 4, size)
        d_h, d_c = d_hidden.new_zeros(batch, size), d_hidden.new_zeros(batch, size)
        for start, count in zip(reversed(self.starts[:-1]), reversed(self.counts), strict=True):
            now = slice(start, start + count)
            h, c = d_h[:count].add_(d_hidden[now]), d_c[:count]
            c.addcmul_(h, into_cell[now])
            d_gates[now, :3].mul_(c.unsqueeze(1))
            d_gates[now, 3].mul_(h)
            torch.mm(slopes[now], weight, out=d_h[:count])
            c.mul_(f[now])
        return slopes, d_h.sum(dim=0), d_c.sum(dim=0)

    def run(self) -> Run:
        steps, batch = self.shape
        outputs = self.logits.new_zeros(steps * batch, self.spec.output_size)
        outputs[self.origin] = self.logits
        last = torch.tensor([self.starts[length - 1] for length in self.lengths.tolist()]) + torch.arange(batch)
        final = torch.empty_like(last)
        final[self.order] = last
        states = ([kept.hidden, kept.cells] for kept in self.layers)
        hidden, cell = (
            torch.stack([part[batch + final] for part in parts], dim=1) for parts in zip(*states, strict=True)
        )
        return Run(outputs.view(steps, batch, -1), hidden, cell)
