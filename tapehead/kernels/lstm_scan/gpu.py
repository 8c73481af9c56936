"""The fused backend of the LSTM for NVIDIA GPUs: scan.cu, compiled by nvrtc.py. See README.md.

Nothing here waits for the device, and all memory comes from torch, so a call can be captured in a CUDA graph (after one
call that compiles). No sum depends on another seed, or on padding.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels import nvrtc
from tapehead.kernels.lstm_scan.contract import LSTMSpec, Run

LOSSES = {"binary": 0, "categorical": 1}
OLDEST = (8, 0)  # compute capability
THREADS = 256
PADDED_TO = 32
FEW_ROWS, MANY_ROWS = 4, 16  # sequences that a block takes a step with
MOST_OUTPUTS = 2048  # a row's logits are in shared memory
STEP_THREADS, FORWARD_UNITS, BACKWARD_UNITS, UNROLL = 256, 16, 16, 4
LAYER_THREADS = 256
CLUSTERS = {32: 1, 64: 4, 128: 8, 256: 8}
"""Blocks of a cluster that runs a whole layer, by its padded units: their weights are in the threads' registers."""
MOST_STEPS = 8192  # whose numbers of rows fit into shared memory
CLUSTERS_SINCE = (9, 0)  # compute capability
PRODUCT_THREADS, PRODUCT_SHARED = 128, 2 * 16 * (128 + 4 + 64) * 4
TILE_ROWS, TILE_COLUMNS, GRADIENT_COLUMNS, GRADIENT_GATES = 128, 64, 64, 128
SUMS_COLUMNS, SUMS_OUTPUTS = 64, 8
BLOCKS = 64  # for each seed, of kernels that take any number


class Arguments(ctypes.Structure):
    """`Arguments` of scan.cu, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("parameters", "inputs", "targets", "mask", "lengths")),
        *((name, ctypes.c_void_p) for name in ("starts", "places", "origin", "before", "packed", "rows")),
        *((name, ctypes.c_void_p) for name in ("hidden", "cell", "gates", "d_hidden", "d_cell", "d_start")),
        *((name, ctypes.c_void_p) for name in ("d_logits", "row_costs", "outputs", "costs", "gradient")),
        *((name, ctypes.c_int) for name in ("seeds", "steps", "batch", "layer", "step", "loss")),
    ]


def _padded(size: int) -> int:
    return -(-size // PADDED_TO) * PADDED_TO


def source(spec: LSTMSpec, rows: int, cluster: int) -> str:
    """The whole CUDA source for networks of these sizes, whose steps are taken with so many sequences at a time.

    cluster: blocks that run a layer together; 0 for a launch at every step.
    """
    sizes = dict(
        I=spec.input_size, O=spec.output_size, H=spec.hidden_size, L=spec.num_layers, IP=_padded(spec.input_size),
        HP=_padded(spec.hidden_size), THREADS=THREADS, TILE=rows,
        STEP_THREADS=STEP_THREADS, FORWARD_UNITS=FORWARD_UNITS, BACKWARD_UNITS=BACKWARD_UNITS, UNROLL=UNROLL,
        LAYER_THREADS=LAYER_THREADS,
    )  # fmt: skip
    header = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    return f"#define CLUSTER {cluster}\nconstexpr int {header};\n" + _text()


def _text() -> str:
    return Path(__file__).with_name("scan.cu").read_text(encoding="utf-8")


def identity(dtype: torch.dtype, device: torch.device) -> str:
    return f"gpu-{nvrtc.key(_text(), nvrtc.architecture(device))[:16]}"


@functools.cache
def _kernels(spec: LSTMSpec, rows: int, cluster: int, device: torch.device) -> Any:
    return nvrtc.Kernels(source(spec, rows, cluster), "lstm.cu", device)


@functools.cache
def _cluster(spec: LSTMSpec, device: torch.device) -> int:
    new = torch.cuda.get_device_capability(device) >= CLUSTERS_SINCE
    return CLUSTERS.get(_padded(spec.hidden_size), 0) if new else 0


@functools.cache
def refusal(spec: LSTMSpec, dtype: torch.dtype, device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"the GPU kernel runs on CUDA devices, and this is {device}."
    if dtype != torch.float32:
        return f"the GPU kernel computes in float32 only, and the parameters are {dtype}."
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        wanted, found = (".".join(map(str, pair)) for pair in (OLDEST, capability))
        return f"the GPU kernel needs compute capability {wanted}, and this device has {found}."
    if spec.output_size > MOST_OUTPUTS:
        return f"the GPU kernel has at most {MOST_OUTPUTS} outputs, and this network {spec.output_size}."
    return nvrtc.missing()


class _Call:
    """The tensors of one call, in the form the kernels take, and the launches over them."""

    def __init__(self, spec: LSTMSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor) -> None:
        self.spec, self.device = spec, parameters.device
        self.seeds, self.steps, self.batch, _ = inputs.shape
        self.tile = FEW_ROWS if self.batch <= FEW_ROWS else MANY_ROWS
        self.cluster = _cluster(spec, self.device) if self.steps <= MOST_STEPS else 0
        self.kernels = _kernels(spec, self.tile, self.cluster, self.device)
        self.layers, self.units, inputs_padded = spec.num_layers, _padded(spec.hidden_size), _padded(spec.input_size)
        self.all_rows = rows = self.steps * self.batch
        self.arguments = Arguments(seeds=self.seeds, steps=self.steps, batch=self.batch)
        self._alive: list[Tensor] = []  # until the launches are queued; then torch's allocator keeps stream order
        self.set(parameters=parameters, inputs=inputs, lengths=lengths.to(torch.int64))
        gates, layers = 4 * self.units, self.layers
        packed = layers * (gates * (inputs_padded + 2 * self.units) + 2 * gates * self.units + gates)
        self.starts = self.whole("starts", self.steps + 1)
        self.places = self.whole("places", self.batch)
        self.whole("origin", rows)
        self.whole("before", rows)
        self.empty("packed", packed + spec.output_size * layers * self.units)
        self.empty("rows", rows * inputs_padded)
        self.hidden = self.empty("hidden", self.batch + rows, layers, self.units)
        self.cell = self.empty("cell", layers, self.batch + rows, self.units)
        self.empty("gates", layers * rows * gates)

    def set(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            tensor = tensor.contiguous()
            self._alive.append(tensor)
            setattr(self.arguments, name, tensor.data_ptr())

    def empty(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        tensor = torch.empty(self.seeds, *shape, dtype=dtype, device=self.device)
        self.set(**{name: tensor})
        return tensor

    def whole(self, name: str, *shape: int) -> Tensor:
        return self.empty(name, *shape, dtype=torch.int32)

    def launch(self, name: str, *grid: int, threads: int = THREADS, shared: int = 0) -> None:
        if self.seeds and self.batch:
            self.kernels.launch(f"lstm_{name}", grid, threads, shared, self.arguments)

    def forward(self) -> None:
        """All layers over all steps: a product for all inputs of a layer, then its steps."""
        gate_tiles, width = 4 * self.units // 32, max(self.units, _padded(self.spec.input_size))
        self.launch("order", self.seeds)
        self.launch("pack", gate_tiles * -(-width // 32), 3 * self.layers, self.seeds, shared=32 * 33 * 4)
        self.launch("begin", BLOCKS, self.seeds)
        for layer in range(self.layers):
            self.arguments.layer = layer
            self.product("inputs", 4 * self.units)
            if self.cluster:
                self.whole_layer("layer", 4)
            else:
                for step in range(self.steps):
                    self.take("forward", FORWARD_UNITS, step)

    def product(self, name: str, width: int) -> None:
        grid = (-(-width // TILE_COLUMNS), -(-self.all_rows // TILE_ROWS), self.seeds)
        self.launch(name, *grid, threads=PRODUCT_THREADS, shared=PRODUCT_SHARED)

    def take(self, name: str, units: int, step: int) -> None:
        self.arguments.step = step
        grid = (self.units // units, -(-self.batch // self.tile), self.seeds)
        shared = STEP_THREADS * self.tile * 4  # of four columns and a quarter of the rows for each thread
        self.launch(name, *grid, threads=STEP_THREADS, shared=shared)

    def whole_layer(self, name: str, columns: int) -> None:
        """columns: of a unit, in the product of a step."""
        units = self.units // self.cluster
        terms, shares = self.units * units // LAYER_THREADS, 4 * LAYER_THREADS // (columns * units)
        shared = 4 * (self.tile * shares * (terms + 4) + 4 * self.tile * LAYER_THREADS + self.steps + 1)
        grid = (self.cluster * -(-self.batch // self.tile), self.seeds)
        self.launch(name, *grid, threads=LAYER_THREADS, shared=shared)

    def outputs(self) -> None:
        self.launch("outputs", BLOCKS, self.seeds, shared=THREADS // 32 * self.spec.output_size * 4)

    def backward(self) -> Tensor:
        """From the gradients of the logits to that of the parameters [S, P]."""
        gates, layers, spec = 4 * self.units, self.layers, self.spec
        self.empty("d_hidden", self.all_rows * layers * self.units)
        self.empty("d_cell", self.batch * self.units)
        self.empty("d_start", 2 * layers * self.batch * self.units)
        gradient = self.empty("gradient", sum(torch.Size(shape).numel() for shape in spec.shapes().values()))
        self.launch("outputs_back", BLOCKS, self.seeds)
        for layer in reversed(range(layers)):
            self.arguments.layer = layer
            if self.cluster:
                self.whole_layer("layer_back", 1)
            else:
                for step in reversed(range(-1, self.steps)):
                    self.take("backward", BACKWARD_UNITS, step)
            if layer:
                self.product("below", self.units)
        width = max(self.units, _padded(spec.input_size))
        tiles = -(-gates // GRADIENT_GATES) * -(-width // GRADIENT_COLUMNS)
        shared = 2 * 16 * (GRADIENT_COLUMNS + GRADIENT_GATES) * 4
        self.launch("gradient", tiles, 3 * layers, self.seeds, threads=PRODUCT_THREADS, shared=shared)
        tiles = -(-layers * self.units // SUMS_COLUMNS) + -(-layers * gates // SUMS_COLUMNS)
        shared = THREADS * SUMS_OUTPUTS * 4
        self.launch("sums", tiles, -(-spec.output_size // SUMS_OUTPUTS), self.seeds, shared=shared)
        self.launch("ends", 4, self.seeds)
        return gradient

    def final(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The state after the last step of each sequence: [S, B, L, H] twice."""
        last = self.batch + self.starts.gather(1, lengths - 1).long() + self.places.long()  # [S, B]
        at = last[:, :, None, None].expand(-1, -1, self.layers, self.units)
        used = self.spec.hidden_size
        states = self.hidden.gather(1, at), self.cell.transpose(1, 2).gather(1, at)
        return states[0][..., :used].contiguous(), states[1][..., :used].contiguous()


def forward(spec: LSTMSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor) -> Run:
    call = _Call(spec, parameters, inputs, lengths)
    outputs = inputs.new_zeros(*inputs.shape[:3], spec.output_size)
    call.set(outputs=outputs)
    call.forward()
    call.outputs()
    return Run(outputs, *call.final(lengths))


def loss_and_gradient(
    spec: LSTMSpec, parameters: Tensor, inputs: Tensor, targets: Tensor, mask: Tensor, lengths: Tensor, loss: str
) -> tuple[Tensor, Tensor]:
    call = _Call(spec, parameters, inputs, lengths)
    call.arguments.loss = LOSSES[loss]
    if mask.dtype != torch.float32:
        mask = (mask != 0).to(torch.float32)  # a float64 may round to zero
    call.set(targets=targets.to(torch.float32), mask=mask)
    costs = call.empty("costs", call.batch)
    call.empty("d_logits", call.all_rows * spec.output_size)
    call.empty("row_costs", call.all_rows)
    call.forward()
    call.outputs()
    return costs, call.backward()
