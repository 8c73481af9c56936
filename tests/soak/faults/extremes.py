"""10: inputs of zeros and 1e4, strengths of 1e4, sharpenings of 100, memories of 1e19, one slot."""

import torch
from scan_problems import make_problem

from soak.fault import Case, Fault
from soak.faults.parity import CPU, random_spec
from tapehead.kernels import dispatch
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import ScanState

INTERFACES = (None, None, 1e2, 1e4)
MEMORIES = (0.0, 1e-6, 1.0, 1e4, 1e19)
INPUTS = (0.0, 1.0, 1e4, -1e4)
SCALES = (0.0, 0.25, 3.0)


def check(case: Case) -> None:
    source = case.random
    spec = random_spec(source)
    problem = make_problem(
        spec, steps=source.choice((1, 4)), batch=2, tape=source.choice((1, 2, 13)), seed=case.number,
        scale=source.choice(SCALES), memory_scale=source.choice(MEMORIES), ragged=source.random() < 0.5,
    )  # fmt: skip
    problem.inputs.mul_(source.choice(INPUTS))
    inside = torch.arange(problem.state.memory.shape[-2]) < problem.slots.unsqueeze(-1)  # [S, B, N]
    for weightings in (problem.state.read_weightings, problem.state.write_weightings):
        weightings.mul_(inside.unsqueeze(-2)).div_(weightings.sum(-1, keepdim=True))
    size = source.choice(INTERFACES)
    if size is not None:
        bias = spec.split_parameters(problem.parameters)["interface.bias"]
        bias.copy_(size * torch.sign(torch.randn(bias.shape, generator=torch.Generator().manual_seed(case.number))))
    given = problem.arguments(torch.float32, CPU)
    d_outputs, d_final = problem.d_outputs.float(), ScanState(*(d.float() for d in problem.d_final))
    kernel = dispatch.fused("cpu")
    outputs, final, kept = kernel.forward(*given, keep=True)
    gradients = kernel.backward(*given, kept, d_outputs, d_final)
    assert_sound(outputs, final, [gradients[0], gradients[1], *gradients[2]])
    variables = [part.clone().requires_grad_() for part in (given[1], given[2], *given[5])]
    outputs, final, _ = reference.scan(spec, *variables[:2], *given[3:5], ScanState(*variables[2:]))
    total = (outputs * d_outputs).sum() + sum((one * d).sum() for one, d in zip(final, d_final, strict=True))
    found = torch.autograd.grad(total, variables, allow_unused=True)
    assert_sound(outputs.detach(), final, [part for part in found if part is not None])


def assert_sound(outputs: torch.Tensor, final: ScanState, gradients: list[torch.Tensor]) -> None:
    assert all(bool(torch.isfinite(part).all()) for part in (outputs, *final)), "outputs or state are not finite"
    assert all(bool(torch.isfinite(part).all()) for part in gradients), "gradients are not finite"
    for weightings in (final.read_weightings, final.write_weightings):
        off = float((weightings.detach().sum(-1) - 1).abs().max())
        assert off < 2e-6, f"a weighting's sum is {off:.1e} from 1"


FAULT = Fault(
    number=10,
    title="extreme inputs: zeros, 1e4, strengths of 1e4, sharpenings of 100, memories of 1e19, one slot",
    promise="weightings sum to 1, and everything is finite, gradients too, on the CPU kernel and the reference",
    counted="machines",
    full=2000,
    quick=40,
    chunk=500,
    check=check,
    needs=("numba",),
)
