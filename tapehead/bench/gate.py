"""The quick part of the gate, run before any speed is shown: a fused backend against the float64 reference.

The whole gate is tests/test_ntm_scan_gate.py; this part travels with the package.
"""

import torch
from torch import Tensor

from tapehead.kernels import dispatch
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.losses import BINARY, CATEGORICAL, Loss
from tapehead.models.config import NTMConfig

# Largest relative error (norm of the difference over norm of the truth) allowed in float32. Worst seen on the CPU over
# the machines below and six draws: 5.0e-6.
TOLERANCE = 2e-5

SHAPE = (2, 11, 3, 37)  # seeds, steps, sequences of each, slots
Answers = tuple[dict[Loss, Tensor], Tensor]  # targets of each loss, and the mask

SPECS = {
    "LSTM": NTMConfig(input_size=9, output_size=8).spec,
    "feedforward": NTMConfig(input_size=9, output_size=8, controller="feedforward").spec,
    "stacked LSTM, three heads, read first": ScanSpec(
        input_size=5,
        output_size=4,
        controller_size=33,
        controller_layers=2,
        read_heads=3,
        write_heads=2,
        memory_width=7,
        order="read_then_write",
        key_activation="linear",
        add_activation="linear",
    ),
    "scalar shift, write gate, clipped": ScanSpec(
        input_size=3,
        output_size=2,
        controller_size=17,
        shift="scalar",
        shift_range=2,
        write_gate=True,
        interface_clip=5.0,
    ),
}


def quick_gate(backend: str, device: torch.device) -> list[str]:
    """One sentence for everything that is wrong; none if the backend is right."""
    failures = []
    for name, spec in SPECS.items():
        reason = dispatch.fused(backend).refusal(spec, torch.float32, device)
        if reason is not None:
            failures.append(f"the {backend} backend refuses the machine '{name}': {reason}")
            continue
        for part, error in errors(backend, spec, device).items():
            if not error < TOLERANCE:
                failures.append(f"{name}: {part} is off by {error:.1e}, but {TOLERANCE:.0e} is allowed")
    return failures


def errors(backend: str, spec: ScanSpec, device: torch.device, seed: int = 0) -> dict[str, float]:
    """Relative errors of outputs, final state, costs and all gradients on random sequences of uneven lengths."""
    given, answers = _random_case(spec, seed), _random_answers(spec, seed)
    truth = _reference(spec, *given, answers)
    found = _fused(backend, spec, device, *given, answers)
    return {name: _relative(found[name], truth[name]) for name in truth}


def _random_case(spec: ScanSpec, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, ScanState]:
    """Parameters, inputs, lengths, slots and state in float64; two machines with three sequences each."""
    draw = torch.Generator().manual_seed(seed)
    seeds, steps, batch, tape = SHAPE

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    layers = (seeds, batch, spec.recurrent_layers, spec.controller_size)
    state = ScanState(
        normal(seeds, batch, tape, spec.memory_width),
        torch.softmax(3 * normal(seeds, batch, spec.read_heads, tape), dim=-1),
        torch.softmax(3 * normal(seeds, batch, spec.write_heads, tape), dim=-1),
        normal(seeds, batch, spec.read_heads, spec.memory_width),
        0.5 * normal(*layers),
        0.5 * normal(*layers),
    )
    lengths = torch.randint(1, steps + 1, (seeds, batch), generator=draw)
    slots = torch.randint(tape // 2, tape + 1, (seeds, batch), generator=draw)
    parameters = 0.3 * normal(seeds, spec.parameter_count)
    return parameters, normal(seeds, steps, batch, spec.input_size), lengths, slots, state


def _random_answers(spec: ScanSpec, seed: int) -> Answers:
    draw = torch.Generator().manual_seed(seed + 1)
    shape = SHAPE[:3]
    bits = torch.randint(0, 2, (*shape, spec.output_size), generator=draw).double()
    symbols = torch.randint(0, spec.output_size, shape, generator=draw)
    mask = torch.randint(0, 2, shape, generator=draw)
    return {BINARY: bits, CATEGORICAL: torch.nn.functional.one_hot(symbols, spec.output_size).double()}, mask


def _weights(like: Tensor) -> Tensor:
    """Fixed uneven weights, so that every entry of an output matters to the gradients."""
    return torch.cos(torch.arange(like.numel(), dtype=torch.float64)).view(like.shape)


def _names(prefix: str) -> list[str]:
    return [f"{prefix} {name}" for name in ScanState._fields]


def _reference(
    spec: ScanSpec,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    answers: Answers,
) -> dict[str, Tensor]:
    parameters, inputs = parameters.requires_grad_(), inputs.requires_grad_()
    state = ScanState(*(part.requires_grad_() for part in state))
    outputs, final, _ = reference.scan(spec, parameters, inputs, lengths, slots, state)
    loss = sum((part * _weights(part)).sum() for part in (outputs, *final))
    assert isinstance(loss, Tensor)
    wanted = [parameters, inputs, *state]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True, retain_graph=True)
    filled = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, gradients, strict=True)]
    names = ["outputs", *_names("final"), "gradient of parameters", "gradient of inputs", *_names("gradient of")]
    truth = dict(zip(names, (outputs, *final, *filled), strict=True))
    for kind, targets in answers[0].items():
        costs = kind.nats(outputs, targets, answers[1])
        truth[f"{kind.kernel} cost"] = costs
        (truth[f"gradient of the {kind.kernel} cost"],) = torch.autograd.grad(
            costs.mean(dim=-1).sum(), parameters, retain_graph=True
        )
    return truth


def _fused(
    backend: str,
    spec: ScanSpec,
    device: torch.device,
    parameters: Tensor,
    inputs: Tensor,
    lengths: Tensor,
    slots: Tensor,
    state: ScanState,
    answers: Answers,
) -> dict[str, Tensor]:
    kernel = dispatch.fused(backend)
    p, x, *parts = (part.detach().float().to(device) for part in (parameters, inputs, *state))
    start = ScanState(*parts)
    lengths, slots = lengths.to(device), slots.to(device)
    outputs, final, kept = kernel.forward(spec, p, x, lengths, slots, start, keep=True)
    d_outputs = _weights(outputs).float().to(device)
    d_final = ScanState(*(_weights(part).float().to(device) for part in final))
    d_p, d_x, d_start = kernel.backward(spec, p, x, lengths, slots, start, kept, d_outputs, d_final)
    assert d_x is not None
    assert d_start is not None
    names = ["outputs", *_names("final"), "gradient of parameters", "gradient of inputs", *_names("gradient of")]
    found = dict(zip(names, (outputs, *final, d_p, d_x, *d_start), strict=True))
    mask = answers[1].float().to(device)
    for kind, exact in answers[0].items():
        targets = exact.float().to(device)
        given = (p, x, targets, mask, lengths, slots, start)
        learned = dispatch.loss_and_gradient(backend, spec, *given, False, kind)
        found[f"{kind.kernel} cost"] = learned.costs
        found[f"gradient of the {kind.kernel} cost"] = learned.gradient
    return found


def _relative(found: Tensor, truth: Tensor) -> float:
    truth = truth.detach()
    size = float(truth.norm())
    difference = float((found.detach().cpu().double() - truth).norm())
    return difference / size if size else difference
