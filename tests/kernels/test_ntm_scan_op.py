"""The scan as a torch operator: opcheck, gradcheck, torch.func, and what importing it costs."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from scan_problems import SMALL, Problem, make_problem
from torch import Tensor
from torch.autograd import forward_ad

from tapehead.kernels import dispatch
from tapehead.kernels.ntm_scan import op, reference
from tapehead.kernels.ntm_scan.contract import ScanState
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.losses import BINARY

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


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, on first use
@pytest.mark.parametrize("entry", ["scan", "operator", "dispatch"])
def test_forward_mode_is_refused_at_every_entry(entry: str) -> None:
    problem = make_problem(TINY)
    entries: dict[str, Any] = {
        "scan": lambda p: op.scan(problem.spec, p, problem.inputs, problem.lengths, problem.slots, problem.state),
        "operator": lambda p: torch.ops.tapehead.ntm_scan(
            problem.spec.to_json(), p, problem.inputs, problem.lengths, problem.slots, *problem.state, False
        ),
        "dispatch": lambda p: dispatch.scan(
            "cpu", problem.spec, p, problem.inputs, problem.lengths, problem.slots, problem.state
        ),
    }
    with torch.no_grad(), forward_ad.dual_level():
        parameters = forward_ad.make_dual(problem.parameters, torch.ones_like(problem.parameters))
        with pytest.raises(NotImplementedError, match="choose backend='reference'"):
            entries[entry](parameters)


def test_other_types_are_refused() -> None:
    problem = make_problem(SMALL)
    spec, *given = problem.arguments(torch.bfloat16, torch.device("cpu"))
    with pytest.raises(ValueError, match="bfloat16"):
        op.scan(spec, *given)


# What is wrong with one argument -> what it becomes, and what the refusal says about it.
DAMAGE: dict[str, tuple[Any, str]] = {
    "shape": (lambda x: x[..., :-1], "{name} has shape|no time steps|takes \\[S, "),
    "dimensions": (lambda x: x[0], "{name} has shape"),
    "type": (lambda x: x.double() if x.is_floating_point() else x.float(), "{name} is torch.float|float64"),
    "half": (lambda x: x.half(), "{name} is torch.float16|the parameters are torch.float16"),
    "device": (lambda x: x.to("meta"), "{name} is on meta|are on meta"),
    "layout": (lambda x: x.to_sparse(), "{name} has layout torch.sparse_coo"),
}
GIVEN = ("parameters", "inputs", "lengths", "slots", *(f"state.{name}" for name in ScanState._fields))
COMING_BACK = ("kept", "d_outputs", *(f"d_{name}" for name in ScanState._fields))


def tensors_of(problem: Problem) -> list[Tensor]:
    _, *given, state = problem.arguments(torch.float32, torch.device("cpu"))
    return [*given, *state]


def refusal(how: str, match: str) -> Any:
    """Of an operator; torch itself refuses sparse tensors, before the operator sees them."""
    if how == "layout":
        return pytest.raises(NotImplementedError, match="SparseCPU")
    return pytest.raises(ValueError, match=match)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("place", range(len(GIVEN)), ids=GIVEN)
def test_wrong_arguments_are_refused_at_every_entry(place: int, how: str) -> None:
    """The kernels go by addresses: a wrong size, type or device is a crash or another machine's numbers."""
    problem = make_problem(SMALL)
    damage, message = DAMAGE[how]
    tensors = tensors_of(problem)
    d_final = [d.float() for d in problem.d_final]
    spec = problem.spec.to_json()
    kept = op.ntm_scan(spec, *tensors, True)[-1]
    tensors[place] = damage(tensors[place])
    match = message.format(name=GIVEN[place])
    with refusal(how, match):
        torch.ops.tapehead.ntm_scan(spec, *tensors, True)
    with refusal(how, match):
        torch.ops.tapehead.ntm_scan_backward(spec, *tensors, kept, problem.d_outputs.float(), *d_final)
    given = (*tensors[:4], ScanState(*tensors[4:]))
    for backend in ("reference", "cpu"):
        for entry in (dispatch.scan, dispatch.trace):
            with pytest.raises(ValueError, match=match), torch.no_grad():
                entry(backend, problem.spec, *given)
        with pytest.raises(ValueError, match=match):
            dispatch.scan(backend, problem.spec, *given)
    with pytest.raises(ValueError, match=match):
        dispatch.loss_and_gradient(
            "cpu", problem.spec, *given[:2], problem.targets.float(), problem.mask.float(), *given[2:], True, BINARY
        )


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("place", range(len(COMING_BACK)), ids=COMING_BACK)
def test_wrong_gradients_and_records_are_refused(place: int, how: str) -> None:
    problem = make_problem(SMALL)
    damage, message = DAMAGE[how]
    spec, tensors = problem.spec.to_json(), tensors_of(problem)
    coming = [op.ntm_scan(spec, *tensors, True)[-1], problem.d_outputs.float(), *(d.float() for d in problem.d_final)]
    coming[place] = damage(coming[place])
    with refusal(how, message.format(name=COMING_BACK[place])):
        torch.ops.tapehead.ntm_scan_backward(spec, *tensors, *coming)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lengths", 4, "lengths holds 4, but must lie between 0 and 3"),
        ("lengths", -1, "lengths holds -1"),
        ("slots", 0, "slots holds 0, but must lie between 1 and 5"),
        ("slots", 6, "slots holds 6"),
    ],
)
def test_wrong_counts_are_refused_at_every_entry(name: str, value: int, message: str) -> None:
    problem = make_problem(SMALL)
    spec, tensors = problem.spec.to_json(), tensors_of(problem)
    coming = [op.ntm_scan(spec, *tensors, True)[-1], problem.d_outputs.float(), *(d.float() for d in problem.d_final)]
    tensors[GIVEN.index(name)][0, 1] = value
    given = (*tensors[:4], ScanState(*tensors[4:]))
    with pytest.raises(ValueError, match=message):
        torch.ops.tapehead.ntm_scan(spec, *tensors, False)
    with pytest.raises(ValueError, match=message):
        torch.ops.tapehead.ntm_scan_backward(spec, *tensors, *coming)
    for backend in ("reference", "cpu"):
        for entry in (dispatch.scan, dispatch.trace):
            with pytest.raises(ValueError, match=message):
                entry(backend, problem.spec, *given)


def test_wrong_targets_are_refused() -> None:
    problem = make_problem(SMALL)
    tensors = tensors_of(problem)
    targets, mask = problem.targets.float(), problem.mask.float()
    for wrong, message in (
        ((targets[..., :-1], mask), "targets has shape"),
        ((targets, mask[..., :-1]), "mask has shape"),
        ((targets.to("meta"), mask), "targets is on meta"),
    ):
        with pytest.raises(ValueError, match=message):
            dispatch.loss_and_gradient(
                "cpu", problem.spec, *tensors[:2], *wrong, *tensors[2:4], ScanState(*tensors[4:]), False, BINARY
            )


@pytest.mark.parametrize("entry", [dispatch.scan, dispatch.trace])
def test_lazy_tensors_are_read_right(entry: Any) -> None:
    """Lazily negated or zero tensors hold in memory something else than their numbers, or nothing."""
    problem = make_problem(SMALL)
    spec, *given, state = problem.arguments(torch.float32, torch.device("cpu"))
    lazy = state._replace(memory=torch._neg_view(state.memory), reads=torch._efficientzerotensor(state.reads.shape))
    plain = state._replace(memory=-state.memory, reads=torch.zeros_like(state.reads))
    with torch.no_grad():
        outputs, final, *_ = entry("cpu", spec, *given, lazy)
        expected, expected_final, *_ = entry("cpu", spec, *given, plain)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(final, expected_final)


def test_sparse_gradients_are_taken() -> None:
    """Some operations of torch hand back sparse gradients, and autograd lets them through."""
    problem = make_problem(SMALL)
    parameters, inputs, *state = variables(problem)
    outputs, _ = op.scan(problem.spec, parameters, inputs, problem.lengths, problem.slots, ScanState(*state))
    place = torch.zeros_like(outputs[:, :1], dtype=torch.int64)
    found = [
        torch.autograd.grad(outputs.gather(1, place, sparse_grad=sparse).sum(), parameters, retain_graph=True)[0]
        for sparse in (True, False)
    ]
    assert torch.equal(found[0], found[1])


def test_the_operator_runs_without_a_record() -> None:
    """A forward pass that kept nothing is run again by the backward pass."""
    problem = make_problem(SMALL)
    spec, tensors = problem.spec.to_json(), tensors_of(problem)
    coming = (problem.d_outputs.float(), *(d.float() for d in problem.d_final))
    with_record, without = (
        torch.ops.tapehead.ntm_scan_backward(spec, *tensors, op.ntm_scan(spec, *tensors, keep)[-1], *coming)
        for keep in (True, False)
    )
    for value, expected in zip(without, with_record, strict=True):
        assert torch.equal(value, expected)


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
        "import scan_problems as gate\n"
        "from tapehead.kernels.ntm_scan import cpu\n"
        "problem = gate.make_problem(gate.SMALL, seeds=4)\n"
        "arguments = problem.arguments(torch.float32, torch.device('cpu'))\n"
        "before = cpu.forward(*arguments, keep=False)[0]\n"
        "if (child := os.fork()) == 0:\n"
        "    os._exit(0 if torch.equal(cpu.forward(*arguments, keep=False)[0], before) else 1)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    assert run_python(code, PYTHONPATH=path).stdout.strip() == "0"
