"""The fused backend for NVIDIA GPUs: scan.cu, laid out by gpu_plan.py, compiled by nvrtc.py. See README-gpu.md.

One block of threads runs one sequence, so S x B blocks are in flight, and no seed or sequence meets another: only the
weight gradient adds over a seed's own sequences, in an order that depends on their number alone. Nothing here waits for
the device, and all memory comes from torch, so a call can be captured in a CUDA graph (after one call that compiles).
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels import nvrtc
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import Learned, ScanState, Trace
from tapehead.kernels.ntm_scan.gpu_plan import TILE_COLUMNS, TILE_ROWS, Plan
from tapehead.kernels.ntm_scan.spec import ScanSpec, unknown_option

KNOWN: dict[str, tuple[Any, ...]] = {
    "controller": ("lstm", "feedforward"),
    "shift": ("softmax", "scalar"),
    "order": ("write_then_read", "read_then_write"),
    "key_activation": ("linear", "tanh"),
    "add_activation": ("linear", "tanh", "sigmoid"),
    "output_from": ("hidden_and_reads", "hidden"),
    "write_gate": (False, True),
}
"""The values of every choice of a specification that the kernel computes; it refuses any other."""

LOSSES = {"binary": 0, "categorical": 1}
OLDEST = (8, 0)  # compute capability
MOST_CHUNKS = 128  # of the rows that a weight gradient sums over
OUTPUT_THREADS = 1024
OUTPUT_SHARED = OUTPUT_THREADS // 32 * 2 * 8 * 4  # a warp for every two steps, of eight outputs at a time
GRADIENT_THREADS = 128
GRADIENT_SHARED = 48 * (TILE_ROWS + 4 + TILE_COLUMNS) * 4


class _StatePointers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ScanState._fields]


class Arguments(ctypes.Structure):
    """`Arguments` of scan.cu, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("parameters", "inputs", "lengths", "slots")),
        *((name, _StatePointers) for name in ("initial", "final", "d_initial")),
        *((name, ctypes.c_void_p) for name in ("outputs", "kept", "packed", "targets", "mask", "costs")),
        *((name, ctypes.c_void_p) for name in ("d_outputs", "d_rows", "gradient", "squares", "d_inputs")),
        ("kept_size", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("seeds", "steps", "batch", "keep", "chunks", "chunk_rows", "loss")),
    ]


def source(plan: Plan) -> str:
    """The whole CUDA source for one layout."""
    return plan.header() + Path(__file__).with_name("scan.cu").read_text(encoding="utf-8")


def identity(dtype: torch.dtype, device: torch.device) -> str:
    """A word for the compiled code, known before it is compiled; what gpu_plan.py writes follows from the machine."""
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("scan.cu", "gpu_plan.py")]
    return f"gpu-{nvrtc.key(''.join(texts), nvrtc.architecture(device))[:16]}"


@functools.cache
def _shared_limit(device: torch.device) -> int:
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@functools.cache
def _blocks_at_once(device: torch.device) -> int:
    """Blocks worth launching: one per multiprocessor, each goes through several sequences with its weights at hand."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def _kernels(plan: Plan, device: torch.device) -> Any:
    return nvrtc.Kernels(source(plan), "scan.cu", device)


@functools.cache  # asked before every update
def refusal(spec: ScanSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
    """None if this backend can run such a machine on a tape of so many slots here, otherwise why not."""
    if device.type != "cuda":
        return f"the GPU kernel runs on CUDA devices, and this is {device}."
    if dtype != torch.float32:
        return f"the GPU kernel computes in float32 only, and the parameters are {dtype}."
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        return (
            f"the GPU kernel needs compute capability {OLDEST[0]}.{OLDEST[1]}, and this device has "
            f"{capability[0]}.{capability[1]}."
        )
    unknown = unknown_option("GPU", spec, KNOWN)
    return nvrtc.missing() or unknown or Plan(spec, slots, _shared_limit(device)).refusal()


@functools.cache
def _plan(spec: ScanSpec, tape: int, device: torch.device) -> Plan:
    plan = Plan(spec, tape, _shared_limit(device))
    reason = plan.refusal()
    if reason is not None:
        raise ValueError(f"backend 'gpu' cannot run this scan: {reason}")
    return plan


def record_size(spec: ScanSpec, steps: int, slots: int, device: torch.device) -> int:
    return _plan(spec, slots, device).kept_size(steps)


class _Call:
    """The tensors of one call, in the form the kernels take, and the launches over them."""

    def __init__(
        self, spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
    ) -> None:
        self.device = parameters.device
        self.seeds = inputs.shape[0] if inputs.ndim == 4 else 1
        self.steps, self.batch = inputs.shape[-3:-1]
        self.plan = _plan(spec, state.memory.shape[-2], self.device)
        self.kernels = _kernels(self.plan, self.device)
        self.arguments = Arguments(seeds=self.seeds, steps=self.steps, batch=self.batch)
        self._alive: list[Tensor] = []  # until the launches are queued; then torch's allocator keeps stream order
        self.set(parameters=parameters, inputs=inputs, lengths=lengths.to(torch.int64), slots=slots.to(torch.int64))
        self.set_state("initial", state)

    def set(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            tensor = tensor.contiguous()
            self._alive.append(tensor)
            setattr(self.arguments, name, tensor.data_ptr())

    def set_state(self, name: str, state: ScanState) -> None:
        pointers = getattr(self.arguments, name)
        for field, tensor in zip(ScanState._fields, state, strict=True):
            tensor = tensor.contiguous()
            self._alive.append(tensor)
            setattr(pointers, field, tensor.data_ptr())

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def empty_state(self, name: str, like: ScanState) -> ScanState:
        state = ScanState(*(torch.empty_like(part, memory_format=torch.contiguous_format) for part in like))
        self.set_state(name, state)
        return state

    def launch(self, name: str, grid: tuple[int, ...], threads: int, shared: int, urgent: bool = False) -> None:
        if 0 not in grid:  # an empty batch: CUDA refuses to launch no blocks
            self.kernels.launch(name, grid, threads, shared, self.arguments, urgent=urgent)

    def scan(self, backward: bool) -> None:
        word = "backward" if backward else "forward"
        packed = self.plan.streamed_floats(backward)
        if packed:
            self.set(packed=self.empty(self.seeds, packed))
            blocks = -(-packed // (4 * 256))
            self.launch(f"ntm_pack_{word}", (min(blocks, 256), self.seeds), 256, 0)
        blocks = min(self.seeds * self.batch, _blocks_at_once(self.device))
        shared = self.plan.shared_bytes(backward)
        self.launch(f"ntm_{word}", (blocks,), self.plan.threads, shared, urgent=True)

    def forward(self, keep: bool, clear: bool = False) -> Tensor:
        """Runs the scan; returns what it kept: [S, B, ...]."""
        size = self.plan.kept_size(self.steps) if keep else self.plan.rows_size(self.steps)
        kept = self.empty(self.seeds, self.batch, size)
        if clear:
            kept.zero_()
        self.arguments.keep, self.arguments.kept_size = int(keep), size
        self.set(kept=kept)
        self.scan(backward=False)
        return kept

    def outputs(self) -> None:
        """The output layer, in the directions for which there are tensors."""
        self.launch("ntm_outputs", (self.seeds * self.batch,), OUTPUT_THREADS, OUTPUT_SHARED)

    def set_backward(self, kept: Tensor) -> None:
        self.arguments.kept_size = self.plan.kept_size(self.steps)
        self.set(kept=kept, d_rows=self.empty(self.seeds, self.batch, self.steps, self.plan.gradient_width))

    def backward(self, look: bool = False) -> tuple[Tensor, Tensor | None]:
        """Runs the scan backwards, then the weight gradient [S, P]; with `look`, also its squares if they are cheap."""
        self.scan(backward=True)
        # of whole sequences, as many for any number of steps: a gradient must not see its neighbours' padding
        chunks = max(1, min(MOST_CHUNKS, self.batch // 32))
        self.arguments.chunks, self.arguments.chunk_rows = chunks, -(-self.batch // chunks) * self.steps
        gradient = self.empty(chunks, self.seeds, self.plan.spec.parameter_count)
        self.set(gradient=gradient)
        squares = self.empty(self.seeds, self.plan.gradient_tiles) if look and chunks == 1 else None
        if squares is not None:
            self.set(squares=squares)
        grid = (self.plan.gradient_tiles, chunks, self.seeds)
        self.launch("ntm_gradient", grid, GRADIENT_THREADS, GRADIENT_SHARED)
        if chunks > 1:
            blocks = -(-gradient[0].numel() // 256)
            self.launch("ntm_add_chunks", (blocks,), 256, 0)
            return gradient[0].clone(), None
        return gradient[0], squares


def forward(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    keep: bool,
    clear: bool = False,
    checked: bool = False,
) -> tuple[Tensor, ScanState, Tensor]:
    call = _Call(spec, parameters, inputs, lengths, slots, state)
    outputs = call.empty(*inputs.shape[:-1], spec.output_size)
    call.set(outputs=outputs)
    final = call.empty_state("final", state)
    kept = call.forward(keep, clear)
    call.outputs()
    return outputs, final, kept if keep else kept.new_empty(0)


def backward(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    kept: Tensor,
    d_outputs: Tensor,
    d_final: ScanState | None,
    inputs_gradient: bool = True,
    state_gradient: bool = True,
) -> tuple[Tensor, Tensor | None, ScanState | None]:
    call = _Call(spec, parameters, inputs, lengths, slots, state)
    call.set(d_outputs=d_outputs)
    if d_final is not None:  # a null pointer stands for zeros
        call.set_state("final", d_final)
    d_initial = call.empty_state("d_initial", state) if state_gradient else None
    call.set_backward(kept)
    call.outputs()
    gradient, _ = call.backward()
    d_inputs = None
    if inputs_gradient:
        d_inputs = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        call.set(d_inputs=d_inputs)
        call.launch("ntm_input_gradient", (-(-d_inputs.numel() // 256),), 256, 0)
    return gradient, d_inputs, d_initial


def trace(
    spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
) -> tuple[Tensor, ScanState, Trace]:
    """Runs on the reference, on the same device: a trace is for looking at, and every stage is a tensor there."""
    with torch.no_grad():
        outputs, final, done = reference.scan(spec, parameters, inputs, lengths, slots, state, with_trace=True)
    assert done is not None
    return outputs, final, done


def loss_and_gradient(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    state_gradient: bool,
    loss: str,
    checked: bool = False,
) -> Learned:
    call = _Call(spec, parameters, inputs, lengths, slots, state)
    call.arguments.loss = LOSSES[loss]
    costs = call.empty(call.seeds, call.batch)
    d_outputs = call.empty(call.seeds, call.steps, call.batch, spec.output_size)
    if mask.dtype != torch.float32:
        mask = (mask != 0).to(torch.float32)  # a float64 may round to zero
    call.set(targets=targets.to(torch.float32), mask=mask, costs=costs, d_outputs=d_outputs)
    call.set_backward(call.forward(keep=True))
    call.outputs()
    d_initial = call.empty_state("d_initial", state) if state_gradient else None
    gradient, squares = call.backward(look=True)
    return Learned(costs, gradient, d_initial, squares)
