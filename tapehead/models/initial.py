"""Where a machine starts every sequence. No option has a parameter per slot, so all of them fit a tape of any length,
but for a given memory, whose rows a longer tape extends.

Legend: S seeds, B batch, N slots, M width, R read heads, W write heads, L controller layers, C controller size.
"""

import functools

import torch
from torch import Tensor

from tapehead import equations
from tapehead.kernels.ntm_scan.contract import ScanState, full_precision
from tapehead.models.config import ADDRESS_DIGITS, NTMConfig
from tapehead.streams import stream


def initial_shapes(config: NTMConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the learned parts of the start; none by default."""
    spec = config.spec
    shapes: dict[str, tuple[int, ...]] = {}
    if config.initial_memory == "learned":
        shapes["initial.memory"] = (config.memory_width,)
    if config.initial_memory == "given":
        shapes["initial.memory"] = (config.memory_slots, config.memory_width)
    if config.initial_weightings == "learned":
        shapes["initial.read_rates"] = (spec.read_heads,)
        shapes["initial.write_rates"] = (spec.write_heads,)
    if config.initial_reads == "learned":
        shapes["initial.reads"] = (spec.read_heads, config.memory_width)
    if config.initial_controller == "learned" and spec.recurrent_layers:
        shapes["initial.hidden"] = (spec.recurrent_layers, config.controller_size)
        shapes["initial.cell"] = (spec.recurrent_layers, config.controller_size)
    return shapes


def initial_state(
    config: NTMConfig,
    learned: dict[str, Tensor],
    shape: tuple[int, int],
    slots: Tensor | None,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> ScanState:
    """The start of S x B sequences. `learned` holds [S, ...] tensors; `slots` [S, B] what each sequence may use."""
    spec = config.spec

    def weightings(heads: int, kind: str) -> Tensor:
        return _weightings(config, heads, learned.get(f"initial.{kind}_rates"), shape, slots, device, dtype)

    def learned_or_zeros(name: str, *size: int) -> Tensor:
        if name not in learned:
            return torch.zeros(shape + size, device=device, dtype=dtype)
        return learned[name].unsqueeze(1).expand(shape + size).contiguous()

    memory = _memory(config, learned, shape, device, dtype)
    read_weightings = weightings(spec.read_heads, "read")
    if config.initial_reads == "memory":
        with full_precision(device):
            reads = equations.read(memory, read_weightings)
    else:
        reads = learned_or_zeros("initial.reads", spec.read_heads, config.memory_width)
    return ScanState(
        memory,
        read_weightings,
        weightings(spec.write_heads, "write"),
        reads,
        learned_or_zeros("initial.hidden", spec.recurrent_layers, config.controller_size),
        learned_or_zeros("initial.cell", spec.recurrent_layers, config.controller_size),
    )


def _memory(
    config: NTMConfig, learned: dict[str, Tensor], shape: tuple[int, int], device: torch.device, dtype: torch.dtype
) -> Tensor:
    size = (config.memory_slots, config.memory_width)
    if config.initial_memory == "constant":
        return torch.full(shape + size, config.initial_memory_value, device=device, dtype=dtype)
    if config.initial_memory == "learned":
        return learned["initial.memory"][:, None, None].expand(shape + size).contiguous()
    if config.initial_memory == "given":
        return learned["initial.memory"].unsqueeze(1).expand(shape + size).contiguous()
    pattern = (_addresses if config.initial_memory == "addresses" else _random)(*size, device)
    pattern = pattern * config.initial_memory_scale
    return pattern.to(dtype).expand(shape + size).contiguous()


def _random(slots: int, width: int, device: torch.device) -> Tensor:
    """The fixed random memory within +- 1, slot by slot the same whatever the tape's length; float64 [N, M]."""
    if torch._C._len_torch_dispatch_stack() > 0:  # inside torch.export: a tensor without numbers must not be kept
        return _drawn.__wrapped__(slots, width, device)
    return _drawn(slots, width, device)


_random._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does


@functools.lru_cache(maxsize=8)  # drawing it takes a copy from the host, which no CUDA graph may hold
def _drawn(slots: int, width: int, device: torch.device) -> Tensor:
    return 2 * stream(0, "initial memory", 0, device=device).uniform(slots, width) - 1


def _addresses(slots: int, width: int, device: torch.device) -> Tensor:
    """The number of each slot in binary, the lowest digit first, as +- 1, and zeros behind it; float64 [N, M].

    A slot whose number has more digits is all zeros, so that no two have the same address.
    """
    numbers, places = torch.arange(2**ADDRESS_DIGITS, device=device), torch.arange(ADDRESS_DIGITS, device=device)
    digits = 2.0 * ((numbers.unsqueeze(-1) >> places) & 1) - 1
    pattern = torch.zeros(slots, width, dtype=torch.float64, device=device)
    pattern[: len(digits), :ADDRESS_DIGITS] = digits[:slots]
    return pattern


def _weightings(
    config: NTMConfig,
    heads: int,
    rates: Tensor | None,
    shape: tuple[int, int],
    slots: Tensor | None,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """[S, B, heads, N], nothing on slots that a sequence may not use."""
    tape = config.memory_slots
    if config.initial_weightings == "zeros":
        return torch.zeros(*shape, heads, tape, device=device, dtype=dtype)
    positions = torch.arange(tape, device=device)
    used = torch.full(shape, tape, device=device) if slots is None else slots
    if config.initial_weightings in ("first", "spread"):
        at = torch.zeros(heads, dtype=torch.int64, device=device)
        if config.initial_weightings == "spread":
            at = torch.arange(heads, device=device)
        at = torch.remainder(at, used.unsqueeze(-1))  # [S, B, heads]
        return (positions == at.unsqueeze(-1)).to(dtype)
    inside = positions < used[..., None, None]  # [S, B, 1, N]
    slope = torch.zeros(1, heads, device=device, dtype=dtype) if rates is None else rates  # [S, heads]
    logits = -slope[:, None, :, None] * positions.to(dtype)
    return torch.softmax(torch.where(inside, logits, float("-inf")).expand(*shape, heads, tape), dim=-1)
