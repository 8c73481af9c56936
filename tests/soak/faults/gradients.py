"""7: gradients and second gradients against finite differences in float64, and torch's checks of an operator."""

import random
from typing import Any

import torch
from scan_problems import make_problem
from torch import Tensor

from soak.fault import Case, Fault
from tapehead.kernels.ntm_scan import op, reference
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec


def random_spec(source: random.Random) -> ScanSpec:
    return ScanSpec(
        input_size=source.randint(1, 2),
        output_size=source.randint(1, 2),
        controller=source.choice(("lstm", "feedforward")),
        controller_size=source.randint(1, 3),
        controller_layers=source.choice((1, 1, 2)),
        read_heads=source.choice((1, 1, 2)),
        write_heads=source.choice((1, 1, 2)),
        memory_width=source.randint(2, 3),
        shift=source.choice(("softmax", "scalar")),
        shift_range=source.randint(0, 2),
        order=source.choice(("write_then_read", "read_then_write")),
        key_activation=source.choice(("linear", "tanh")),
        add_activation=source.choice(("linear", "tanh", "sigmoid")),
        output_from=source.choice(("hidden_and_reads", "hidden")),
        write_gate=source.random() < 0.5,
        interface_clip=source.choice((None, None, 3.0)),
    )


def check(case: Case) -> None:
    source = case.random
    spec = random_spec(source)
    shape = dict(steps=source.randint(1, 3), batch=source.randint(1, 2), tape=source.randint(2, 4))
    problem = make_problem(spec, seeds=1, seed=case.number, scale=0.4, **shape)
    given = [part.clone().requires_grad_() for part in (problem.parameters, problem.inputs, *problem.state)]

    def run(parameters: Tensor, inputs: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        arguments = (spec, parameters, inputs, problem.lengths, problem.slots, ScanState(*state))
        outputs, final = op.scan(*arguments)
        return (outputs, *final)

    def by_reference(parameters: Tensor, inputs: Tensor) -> Tensor:
        arguments = (spec, parameters, inputs, problem.lengths, problem.slots, problem.state)
        return reference.scan(*arguments)[0]

    assert torch.autograd.gradcheck(run, given, eps=1e-6, atol=1e-6, rtol=1e-4)
    assert torch.autograd.gradgradcheck(by_reference, given[:2], fast_mode=True)
    check_operator(problem, given)


def check_operator(problem: Any, given: list[Tensor]) -> None:
    spec, counts = problem.spec.to_json(), (problem.lengths, problem.slots)
    parameters, inputs, *state = given
    torch.library.opcheck(op.ntm_scan, (spec, parameters, inputs, *counts, *state, True))
    plain = (spec, problem.parameters, problem.inputs, *counts, *problem.state)
    kept = op.ntm_scan(*plain, True)[-1]
    torch.library.opcheck(op.ntm_scan_backward, (*plain, kept, problem.d_outputs, *problem.d_final))


FAULT = Fault(
    number=7,
    title="gradients against finite differences in float64: gradcheck, gradgradcheck, opcheck",
    promise="every machine passes all three",
    counted="machines",
    full=60,
    quick=3,
    chunk=15,
    check=check,
    needs=("numba",),
)
