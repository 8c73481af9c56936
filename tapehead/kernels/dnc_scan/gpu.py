"""The fused backend for NVIDIA GPUs: scan.cu, laid out by gpu_plan.py, compiled by nvrtc.py. See README.md.

A block of threads runs up to four sequences of one seed, and no seed or sequence meets another: only the weight
gradient adds over a seed's own sequences, in an order that depends on their number alone. Nothing here waits for the
device, and all memory comes from torch, so a call can be captured in a CUDA graph (after one call that compiles).
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tapehead.kernels import nvrtc
from tapehead.kernels.dnc_scan.contract import DNCState, state_shapes
from tapehead.kernels.dnc_scan.gpu_plan import (
    OUTPUT_THREADS,
    THREADS,
    TILE_COLUMNS,
    TILE_DEPTH,
    TILE_ROWS,
    TILE_THREADS,
    Layout,
    Plan,
    rows_of_block,
)
from tapehead.kernels.dnc_scan.spec import DNCSpec
from tapehead.kernels.ntm_scan.spec import unknown_option

KNOWN: dict[str, tuple[Any, ...]] = {
    "controller": ("lstm", "feedforward"),
    "strength": ("oneplus", "softplus"),
    "detached_usage": (False, True),
    "masked_content": (False, True),
    "deallocation": (False, True),
    "link_sharpness": (False, True),
}
"""The values of every choice of a specification that the kernel computes; it refuses any other."""

LOSSES = {"binary": 0, "categorical": 1}
OLDEST = (8, 0)  # compute capability
MOST_CHUNKS = 128  # of the sequences that a weight gradient sums over
SMALL_THREADS = 256  # of kernels that take any number of blocks
MOST_BLOCKS = 1024  # of those
PACK_BLOCKS = 32  # for each product of a seed
GRADIENT_SHARED = 4 * TILE_DEPTH * (TILE_ROWS + 4 + TILE_COLUMNS)
OUTPUT_SHARED = 4 * OUTPUT_THREADS // 32

_POINTERS = ("parameters", "inputs", "lengths", "slots")
_STATES = ("initial", "final", "d_initial")
_REST = (
    "outputs", "kept", "packed", "work", "targets", "mask", "costs", "d_outputs", "d_seen", "d_rows", "gradient",
    "d_inputs",
)  # fmt: skip
_INTEGERS = ("seeds", "steps", "batch", "keep", "chunks", "chunk_rows", "loss")


class Arguments(ctypes.Structure):
    """`Arguments` of scan.cu, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_void_p * len(DNCState._fields)) for name in _STATES),
        *((name, ctypes.c_void_p) for name in _REST),
        ("kept_size", ctypes.c_longlong),
        ("work_size", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in _INTEGERS),
    ]


def source(plan: Plan) -> str:
    """The whole CUDA source for one layout."""
    return plan.header + Path(__file__).with_name("scan.cu").read_text(encoding="utf-8")


def identity(dtype: torch.dtype, device: torch.device) -> str:
    """A word for the compiled code, known before it is compiled; what gpu_plan.py writes follows from the machine."""
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("scan.cu", "gpu_plan.py")]
    return f"gpu-{nvrtc.key(''.join(texts), nvrtc.architecture(device))[:16]}"


def make_ready(dtype: torch.dtype) -> None:
    """The first call of a machine compiles, in seconds, for its length of the tape: nothing is known of them here."""


@functools.cache
def _shared_limit(device: torch.device) -> int:
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@functools.cache
def _kernels(plan: Plan, device: torch.device) -> Any:
    return nvrtc.Kernels(source(plan), "dnc.cu", device)


@functools.cache  # asked before every update
def refusal(spec: DNCSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
    """None if this backend can run such a machine on a tape of so many slots here, otherwise why not."""
    if device.type != "cuda":
        return f"the GPU kernel runs on CUDA devices, and this is {device}."
    if dtype != torch.float32:
        return f"the GPU kernel computes in float32 only, and the parameters are {dtype}."
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        wanted, found = (".".join(map(str, pair)) for pair in (OLDEST, capability))
        return f"the GPU kernel needs compute capability {wanted}, and this device has {found}."
    unknown = unknown_option("GPU", spec, KNOWN)
    return nvrtc.missing() or unknown or Plan(spec, slots, _shared_limit(device)).refusal()


@functools.cache
def _plan(spec: DNCSpec, tape: int, rows: int, device: torch.device) -> Plan:
    plan = Plan(spec, tape, _shared_limit(device), rows)
    reason = plan.refusal()
    if reason is not None:
        raise ValueError(f"backend 'gpu' cannot run this scan: {reason}")
    return plan


class _Call:
    """The tensors of one call, in the form the kernels take, and the launches over them."""

    def __init__(
        self, spec: DNCSpec, parameters: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor, tape: int
    ) -> None:
        self.spec, self.parameters, self.tape = spec, parameters, tape
        self.seeds, self.steps, self.batch, _ = inputs.shape
        device = parameters.device
        self.plan = _plan(spec, tape, rows_of_block(self.batch), device)
        self.kernels = _kernels(self.plan, device)
        # of whole sequences, as many for any number of steps: a gradient must not see its neighbours' padding
        self.chunks = max(1, min(MOST_CHUNKS, self.batch // 32))
        self.arguments = Arguments(
            seeds=self.seeds, steps=self.steps, batch=self.batch, keep=1, chunks=self.chunks,
            chunk_rows=-(-self.batch // self.chunks) * self.steps, kept_size=self.plan.kept_size(self.steps),
        )  # fmt: skip
        self._alive: list[Tensor] = []  # until the launches are queued; then torch's allocator keeps stream order
        counts = {name: part.to(device, torch.int64) for name, part in (("lengths", lengths), ("slots", slots))}
        self.set(parameters=parameters, inputs=inputs, **counts)
        if self.plan.work_size:
            self.arguments.work_size = self.plan.work_size
            self.empty("work", self.seeds, self.batch, self.plan.work_size)

    def set(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            tensor = tensor.contiguous()
            self._alive.append(tensor)
            setattr(self.arguments, name, tensor.data_ptr())

    def empty(self, name: str, *shape: int) -> Tensor:
        tensor = self.parameters.new_empty(shape)
        self.set(**{name: tensor})
        return tensor

    def set_state(self, name: str, state: DNCState) -> None:
        parts = [part.contiguous() for part in state]
        self._alive += parts
        setattr(self.arguments, name, (ctypes.c_void_p * len(parts))(*map(Tensor.data_ptr, parts)))

    def empty_state(self, name: str) -> DNCState:
        shapes = state_shapes(self.spec, (self.seeds, self.batch), self.tape).values()
        state = DNCState(*(self.parameters.new_empty(shape) for shape in shapes))
        self.set_state(name, state)
        return state

    def launch(self, name: str, *grid: int, threads: int = SMALL_THREADS, shared: int = 0) -> None:
        if 0 not in grid:  # an empty batch: CUDA refuses to launch no blocks
            self.kernels.launch(f"dnc_{name}", grid, threads, shared, self.arguments)

    def scan(self, name: str, layout: Layout | None) -> None:
        assert layout is not None, "`_plan` refuses what does not fit"
        grid = (-(-self.batch // layout.rows), self.seeds)
        self.launch(name, *grid, threads=THREADS, shared=layout.shared_bytes)

    def pack(self) -> None:
        self.empty("packed", self.seeds, self.plan.packed, 4)
        if self.batch:
            self.launch("pack", PACK_BLOCKS, 2 * (self.spec.controller_layers + 1), self.seeds)

    def forward(self, keep: bool) -> Tensor:
        """Runs the scan; returns what it kept: [S, B, ...]."""
        size = self.plan.kept_size(self.steps) if keep else self.plan.rows_size(self.steps)
        self.arguments.keep, self.arguments.kept_size = int(keep), size
        kept = self.empty("kept", self.seeds, self.batch, size)
        self.pack()
        self.scan("forward", self.plan.forward)
        return kept

    def outputs(self) -> None:
        """The output layer, in the directions for which there are tensors."""
        self.launch("outputs", self.seeds * self.batch, threads=OUTPUT_THREADS, shared=OUTPUT_SHARED)

    def backward(self) -> Tensor:
        """Runs the scan backwards, then the weight gradient [S, P]."""
        self.empty("d_rows", self.seeds, self.batch, self.steps, self.plan.gradient_width)
        gradient = self.empty("gradient", self.chunks, self.seeds, self.spec.parameter_count)
        self.scan("backward", self.plan.backward)
        tiles = (self.plan.tiles, self.chunks, self.seeds)
        self.launch("gradient", *tiles, threads=TILE_THREADS, shared=GRADIENT_SHARED)
        if self.chunks > 1:
            self.launch("add_chunks", min(MOST_BLOCKS, -(-gradient[0].numel() // SMALL_THREADS)))
        return gradient[0].clone() if self.chunks > 1 else gradient[0]

    def with_d_seen(self) -> None:
        """A place for the gradients of what the output layer saw."""
        self.empty("d_seen", self.seeds, self.batch, self.steps, -(-self.spec.output_inputs // 4) * 4)


def forward(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    tape: int,
    state: DNCState | None,
    keep: bool,
) -> tuple[Tensor, DNCState, Tensor]:
    """Outputs, final state, and one opaque tensor for `backward` (empty unless `keep`)."""
    call = _Call(spec, parameters, inputs, lengths, slots, tape)
    outputs = call.empty("outputs", call.seeds, call.steps, call.batch, spec.output_size)
    if state is not None:  # null pointers stand for zeros
        call.set_state("initial", state)
    final = call.empty_state("final")
    kept = call.forward(keep)
    call.outputs()
    return outputs, final, kept if keep else kept.new_empty(0)


def backward(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    tape: int,
    kept: Tensor,
    d_outputs: Tensor,
    d_final: DNCState | None,
    state_gradient: bool = True,
) -> tuple[Tensor, Tensor, DNCState | None]:
    """Gradients of parameters, inputs and initial state. May be called again with the same `kept`."""
    call = _Call(spec, parameters, inputs, lengths, slots, tape)
    call.set(kept=kept, d_outputs=d_outputs)
    if d_final is not None:
        call.set_state("final", d_final)
    d_initial = call.empty_state("d_initial") if state_gradient else None
    call.pack()
    call.with_d_seen()
    call.outputs()
    gradient = call.backward()
    d_inputs = call.empty("d_inputs", *inputs.shape)
    call.launch("input_gradient", min(MOST_BLOCKS, -(-d_inputs.numel() // SMALL_THREADS)))
    return gradient, d_inputs, d_initial


def loss_and_gradient(
    spec: DNCSpec,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    lengths: Tensor,
    slots: Tensor,
    tape: int,
    loss: str,
    checked: bool = False,
) -> tuple[Tensor, Tensor]:
    """One training step without autograd: costs [S, B] and gradients [S, P] of the mean costs."""
    call = _Call(spec, parameters, inputs, lengths, slots, tape)
    call.arguments.loss = LOSSES[loss]
    costs = call.empty("costs", call.seeds, call.batch)
    call.empty("d_outputs", call.seeds, call.steps, call.batch, spec.output_size)
    if mask.dtype != torch.float32:
        mask = (mask != 0).to(torch.float32)  # a float64 may round to zero
    call.set(targets=targets.to(torch.float32), mask=mask)
    call.forward(keep=True)
    call.with_d_seen()
    call.outputs()
    return costs, call.backward()
