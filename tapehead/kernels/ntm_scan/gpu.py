"""The fused backend for NVIDIA GPUs: scan.cu, laid out by gpu_plan.py, compiled by nvrtc.py. See README-gpu.md.

One block of threads runs one sequence, so S x B blocks are in flight, and no seed or sequence meets another: only the
weight gradient adds over a seed's own sequences, in an order that depends on their number alone. Nothing here waits for
the device, and all memory comes from torch, so a call can be captured in a CUDA graph (after one call that compiles).
"""

import ctypes
import functools
import struct
from collections.abc import Sequence
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
MOST_SHAPES = 256  # of calls, for which what they have in common is kept

_POINTERS = (  # `_Call` sets the first ten, to the initial state's, at once
    "parameters", "inputs", "lengths", "slots",
    *(f"{state}.{part}" for state in ("initial", "final", "d_initial") for part in ScanState._fields),
    "outputs", "kept", "packed", "targets", "mask", "costs", "d_outputs", "d_rows", "gradient", "squares", "d_inputs",
)  # fmt: skip
_INTEGERS = ("seeds", "steps", "batch", "keep", "chunks", "chunk_rows", "loss")
_PLACES = {name: place for place, name in enumerate((*_POINTERS, "kept_size", *_INTEGERS))}
_STATES = {name: _PLACES[f"{name}.memory"] for name in ("initial", "final", "d_initial")}
_LAYOUT = struct.Struct(f"@{len(_POINTERS)}Pq{len(_INTEGERS)}i0P")
"""`Arguments` of scan.cu, field by field. Made from a list of all values: a ctypes structure takes longer to fill."""
Arguments = ctypes.c_longlong * (_LAYOUT.size // 8)


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


class _Shape:
    """What all calls with tensors of the same shapes on one device have in common."""

    def __init__(self, spec: ScanSpec, seeds: int, steps: int, batch: int, tape: int, device: torch.device) -> None:
        self.plan = plan = _plan(spec, tape, device)
        self.kernels = _kernels(plan, device)
        self.outputs = (seeds, steps, batch, spec.output_size)
        self.outputs_launch = ("ntm_outputs", (seeds * batch,), OUTPUT_THREADS, OUTPUT_SHARED)
        self.kept, self.rows = ((seeds, batch, size(steps)) for size in (plan.kept_size, plan.rows_size))
        self.d_rows = (seeds, batch, steps, plan.gradient_width)
        # of whole sequences, as many for any number of steps: a gradient must not see its neighbours' padding
        self.chunks = max(1, min(MOST_CHUNKS, batch // 32))
        count = spec.parameter_count
        self.gradient = (seeds, count) if self.chunks == 1 else (self.chunks, seeds, count)
        tiles = (plan.gradient_tiles, self.chunks, seeds)
        self.gradient_launch = ("ntm_gradient", tiles, GRADIENT_THREADS, GRADIENT_SHARED)
        grid = (min(seeds * batch, _blocks_at_once(device)),)
        self.scan_launches = tuple(
            (f"ntm_{word}", grid, plan.threads, plan.shared_bytes(backward), True)
            for backward, word in enumerate(("forward", "backward"))
        )
        self.streamed = tuple(map(plan.streamed_floats, (False, True)))
        self.values = [0] * len(_PLACES)
        numbers = dict(seeds=seeds, steps=steps, batch=batch, chunks=self.chunks)
        for name, number in (numbers | {"chunk_rows": -(-batch // self.chunks) * steps}).items():
            self.values[_PLACES[name]] = number


_shape = functools.lru_cache(maxsize=MOST_SHAPES)(_Shape)


class _Call:
    """The tensors of one call, in the form the kernels take, and the launches over them."""

    def __init__(
        self, spec: ScanSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, state: ScanState
    ) -> None:
        self.parameters = parameters
        self.seeds = inputs.shape[0] if inputs.ndim == 4 else 1
        self.steps, self.batch, _ = inputs.shape[-3:]
        tape = state.memory.shape[-2]
        self.shape = _shape(spec, self.seeds, self.steps, self.batch, tape, parameters.device)
        self._values = self.shape.values.copy()
        self._arguments: Any = None  # the values as the kernels take them; None: some were changed
        self._alive: list[Tensor] = []  # until the launches are queued; then torch's allocator keeps stream order
        if lengths.dtype != torch.int64 or slots.dtype != torch.int64:
            lengths, slots = lengths.to(torch.int64), slots.to(torch.int64)
        self._set_all(0, (parameters, inputs, lengths, slots, *state))

    def _set_all(self, first: int, tensors: Sequence[Tensor]) -> None:
        """Tensors whose addresses stand one behind the other, from this place on."""
        if not all(map(Tensor.is_contiguous, tensors)):
            tensors = [tensor.contiguous() for tensor in tensors]
        self._alive += tensors
        self._values[first : first + len(tensors)] = map(Tensor.data_ptr, tensors)
        self._arguments = None

    def set(self, name: str, tensor: Tensor) -> None:
        tensor = tensor if tensor.is_contiguous() else tensor.contiguous()
        self._alive.append(tensor)
        self.set_number(name, tensor.data_ptr())

    def set_number(self, name: str, number: int) -> None:
        self._values[_PLACES[name]] = number
        self._arguments = None

    def set_state(self, name: str, state: ScanState) -> None:
        self._set_all(_STATES[name], state)

    def empty(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self.parameters.new_empty(shape)
        self._alive.append(tensor)
        self.set_number(name, tensor.data_ptr())
        return tensor

    def empty_state(self, name: str, like: ScanState) -> ScanState:
        if all(map(Tensor.is_contiguous, like)):
            state = ScanState(*map(torch.empty_like, like))
        else:
            state = ScanState(*[torch.empty_like(part, memory_format=torch.contiguous_format) for part in like])
        self.set_state(name, state)
        return state

    def launch(self, name: str, grid: tuple[int, ...], threads: int, shared: int, urgent: bool = False) -> None:
        if 0 in grid:  # an empty batch: CUDA refuses to launch no blocks
            return
        if self._arguments is None:
            self._arguments = Arguments.from_buffer_copy(_LAYOUT.pack(*self._values))
        self.shape.kernels.launch(name, grid, threads, shared, self._arguments, urgent=urgent)

    def scan(self, backward: bool) -> None:
        packed = self.shape.streamed[backward]
        if packed:
            word = "backward" if backward else "forward"
            self.empty("packed", (self.seeds, packed))
            blocks = -(-packed // (4 * 256))
            self.launch(f"ntm_pack_{word}", (min(blocks, 256), self.seeds), 256, 0)
        self.launch(*self.shape.scan_launches[backward])

    def forward(self, keep: bool, clear: bool = False) -> Tensor:
        """Runs the scan; returns what it kept: [S, B, ...]."""
        kept = self.empty("kept", self.shape.kept if keep else self.shape.rows)
        if clear:
            kept.zero_()
        self.set_number("keep", int(keep))
        self.set_number("kept_size", kept.shape[2])
        self.scan(backward=False)
        return kept

    def outputs(self) -> None:
        """The output layer, in the directions for which there are tensors."""
        self.launch(*self.shape.outputs_launch)

    def set_backward(self, kept: Tensor) -> None:
        self.set_number("kept_size", self.shape.kept[2])
        self.set("kept", kept)
        self.empty("d_rows", self.shape.d_rows)

    def backward(self, look: bool = False) -> tuple[Tensor, Tensor | None]:
        """Runs the scan backwards, then the weight gradient [S, P]; with `look`, also its squares if they are cheap."""
        shape = self.shape
        gradient = self.empty("gradient", shape.gradient)
        squares = None
        if look and shape.chunks == 1:
            squares = self.empty("squares", (self.seeds, shape.plan.gradient_tiles))
        self.scan(backward=True)
        self.launch(*shape.gradient_launch)
        if shape.chunks > 1:
            blocks = -(-gradient[0].numel() // 256)
            self.launch("ntm_add_chunks", (blocks,), 256, 0)
            return gradient[0].clone(), None
        return gradient, squares


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
    outputs = call.empty("outputs", call.shape.outputs[-inputs.ndim :])
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
    call.set("d_outputs", d_outputs)
    if d_final is not None:  # a null pointer stands for zeros
        call.set_state("final", d_final)
    d_initial = call.empty_state("d_initial", state) if state_gradient else None
    call.set_backward(kept)
    call.outputs()
    gradient, _ = call.backward()
    d_inputs = None
    if inputs_gradient:
        d_inputs = call.empty("d_inputs", inputs.shape)
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
    call.set_number("loss", LOSSES[loss])
    costs = call.empty("costs", (call.seeds, call.batch))
    call.empty("d_outputs", call.shape.outputs)
    if mask.dtype != torch.float32:
        mask = (mask != 0).to(torch.float32)  # a float64 may round to zero
    call.set("targets", targets.to(torch.float32))
    call.set("mask", mask)
    call.set_backward(call.forward(keep=True))
    call.outputs()
    d_initial = call.empty_state("d_initial", state) if state_gradient else None
    gradient, squares = call.backward(look=True)
    return Learned(costs, gradient, d_initial, squares)
