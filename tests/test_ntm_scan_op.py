"""The scan as a torch operator: opcheck, gradcheck, torch.func, and what importing it costs."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ntm_scan_gate import SMALL, Problem, make_problem
from torch import Tensor

from tapehead.kernels.ntm_scan import op, reference
from tapehead.kernels.ntm_scan.contract import ScanSpec, ScanState

TINY = dataclasses.replace(SMALL, input_size=2, controller_size=3, memory_width=2)

MACHINES: dict[str, ScanSpec] = {
    "lstm": TINY,
    "two layers, heads (2, 2), read first": dataclasses.replace(
        TINY, controller_layers=2, read_heads=2, write_heads=2, order="read_then_write"
    ),
    "feedforward, scalar shift, write gate": dataclasses.replace(
        TINY,
        controller="feedforward",
        shift="scalar",
        write_gate=True,
        add_activation="sigmoid",
        key_activation="linear",
    ),
    "clip, output from hidden": dataclasses.replace(TINY, interface_clip=0.8, output_from="hidden", shift_range=2),
}


def variables(problem: Problem) -> list[Tensor]:
    return [x.clone().requires_grad_() for x in (problem.parameters, problem.inputs, *problem.state)]


@pytest.mark.parametrize("machine", MACHINES)
def test_gradcheck(machine: str) -> None:
    """The kernel's own gradients against finite differences of the kernel, in float64."""
    problem = make_problem(MACHINES[machine], seeds=1, steps=3, batch=2, tape=4, seed=3, scale=0.4)

    def run(parameters: Tensor, inputs: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        given = (problem.spec, parameters, inputs, problem.lengths, problem.slots, ScanState(*state))
        outputs, final = op.scan(*given)
        return (outputs, *final)

    assert torch.autograd.gradcheck(run, variables(problem), eps=1e-6, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("machine", ["lstm", "feedforward, scalar shift, write gate"])
def test_opcheck(machine: str) -> None:
    problem = make_problem(MACHINES[machine], seeds=2, steps=3, batch=2)
    parameters, inputs, *state = variables(problem)
    spec, counts = problem.spec.to_json(), (problem.lengths, problem.slots)
    torch.library.opcheck(op.ntm_scan, (spec, parameters, inputs, *counts, *state, True))
    plain = (spec, problem.parameters, problem.inputs, *counts, *problem.state)
    kept = op.ntm_scan(*plain, True)[-1]
    torch.library.opcheck(op.ntm_scan_backward, (*plain, kept, problem.d_outputs, *problem.d_final))


@pytest.mark.parametrize("machine", ["lstm", "feedforward, scalar shift, write gate"])
def test_vmap_and_grad(machine: str) -> None:
    """A vmapped scan is a scan of more machines; its gradients are those of each."""
    spec = MACHINES[machine]
    problem = make_problem(spec, seeds=3, steps=4)

    def cost(run: Any, parameters: Tensor, inputs: Tensor, state: ScanState) -> Tensor:
        one = ScanState(*(part.unsqueeze(0) for part in state))
        outputs = run(spec, parameters.unsqueeze(0), inputs.unsqueeze(0), problem.lengths[:1], problem.slots[:1], one)[
            0
        ]
        return outputs.square().sum()

    def fused(*given: Any) -> Tensor:
        return cost(op.scan, *given)

    given = (problem.parameters, problem.inputs, problem.state)
    truth = [
        torch.func.grad(lambda *x: cost(reference.scan, *x))(p, x, ScanState(*s))
        for p, x, *s in zip(problem.parameters, problem.inputs, *problem.state, strict=True)
    ]
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(fused))(*given), torch.stack(truth))
    summed = torch.func.grad(lambda p: torch.func.vmap(fused)(p, *given[1:]).sum())(problem.parameters)
    torch.testing.assert_close(summed, torch.stack(truth))
    shared = torch.func.vmap(fused, in_dims=(0, None, None))
    first = (problem.inputs[0], ScanState(*(part[0] for part in problem.state)))
    each = torch.stack([fused(p, *first) for p in problem.parameters])
    torch.testing.assert_close(shared(problem.parameters, *first), each)


def test_second_derivatives_are_refused() -> None:
    problem = make_problem(TINY)
    parameters, inputs, *state = variables(problem)
    outputs, _ = op.scan(problem.spec, parameters, inputs, problem.lengths, problem.slots, ScanState(*state))
    (gradient,) = torch.autograd.grad(outputs.sum(), parameters, create_graph=True)
    with pytest.raises(NotImplementedError, match="once"):
        gradient.sum().backward()


def test_other_types_are_refused() -> None:
    problem = make_problem(SMALL)
    spec, *given = problem.arguments(torch.bfloat16, torch.device("cpu"))
    with pytest.raises(ValueError, match="bfloat16"):
        op.scan(spec, *given)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )


def test_importing_the_operator_does_not_import_numba() -> None:
    code = "import sys, tapehead.kernels.ntm_scan.op; print('numba' in sys.modules)"
    assert run_python(code).stdout.strip() == "False"


def test_training_after_a_fork() -> None:
    """Threads do not survive a fork; the child makes its own."""
    code = (
        "import os, torch\n"
        "torch.set_num_threads(2)\n"
        "import test_ntm_scan_gate as gate\n"
        "from tapehead.kernels.ntm_scan import cpu\n"
        "problem = gate.make_problem(gate.SMALL, seeds=4)\n"
        "arguments = problem.arguments(torch.float32, torch.device('cpu'))\n"
        "before = cpu.forward(*arguments, keep=False)[0]\n"
        "if (child := os.fork()) == 0:\n"
        "    os._exit(0 if torch.equal(cpu.forward(*arguments, keep=False)[0], before) else 1)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    assert run_python(code, PYTHONPATH=path).stdout.strip() == "0"
