"""`NTM` in a loop of the user's own: the short way to the kernel gives the operator's numbers, in every setting."""

import copy
import io
import multiprocessing
import pickle
import shutil

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call

import tapehead
from tapehead.bench.measure import DropIn, drop_in_ntm
from tapehead.kernels.memory import in_one_piece
from tapehead.kernels.ntm_scan import direct
from tapehead.kernels.ntm_scan.cpu import buffers
from tapehead.models.cell import NTMCell
from tapehead.models.machine import NTMState
from tapehead.models.ntm import MOST_CALLS, MOST_STARTS, NTM

SMALL = {"controller_size": 5, "memory_slots": 7, "memory_width": 3}
MACHINES = {
    "lstm": {},
    "feedforward": {"controller": "feedforward"},
    "heads": {"read_heads": 2, "write_heads": 3, "order": "read_then_write", "controller_layers": 2},
    "learned start": {"initial_memory": "learned", "initial_weightings": "learned", "initial_reads": "learned"},
    "spread": {"initial_weightings": "spread", "num_heads": 2},
}
machines = pytest.mark.parametrize("options", MACHINES.values(), ids=MACHINES.keys())


def build(seed=0, outputs=2, backend="cpu", **options):
    ntm = NTM(4, outputs, backend=backend, **{**SMALL, **options})
    ntm.reset_parameters(torch.Generator().manual_seed(seed))
    return ntm


def draw(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def everything(ntm, x, state, **given):
    """Outputs, final state, and gradients by parameters, inputs and state."""
    x = x.clone().requires_grad_()
    parts = [] if state is None else [part.clone().requires_grad_() for part in state]
    y, final = ntm(x, NTMState(*parts) if parts else None, **given)
    total = sum((part * draw(*part.shape, seed=k)).sum() for k, part in enumerate((y, *final)))
    wanted = [*ntm.parameters(), x, *parts]
    return [y, *final, *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)]


def is_joined(ntm):
    return in_one_piece([ntm.get_parameter(name) for name in ntm.config.spec.parameter_shapes]) is not None


@pytest.fixture
def ways(monkeypatch):
    """How often the short way was taken."""
    taken = []
    short = direct.scan
    monkeypatch.setattr(direct, "scan", lambda *given: (taken.append(1), short(*given))[1])
    return taken


@machines
@pytest.mark.parametrize("moved", [False, True], ids=["in one piece", "gathered"])
@pytest.mark.parametrize("given", ["nothing", "lengths", "slots", "state"])
def test_the_short_way_is_the_operator(monkeypatch, ways, options, moved, given):
    """To the bit: outputs, state and all gradients."""
    ntm, x = build(**options), draw(6, 3, 4)
    if moved:
        ntm.output.bias.data = ntm.output.bias.data.clone()
        assert not is_joined(ntm)
    arguments = {
        "lengths": {"lengths": torch.tensor([6, 2, 4])},
        "slots": {"slots": torch.tensor([7, 3, 5])},
    }.get(given, {})
    state = NTMState(*(part.detach() for part in ntm(draw(2, 3, 4, seed=2))[1])) if given == "state" else None
    ways.clear()
    ours = everything(ntm, x, state, **arguments)
    assert len(ways) == 1
    monkeypatch.setattr(direct, "operator_needed", lambda: True)
    expected = everything(ntm, x, state, **arguments)
    assert len(ways) == 1
    for one, other in zip(ours, expected, strict=True):
        assert torch.equal(one, other)
    assert any(part.any() for part in ours[7:])


def test_gradients_of_the_outputs_alone():
    """No gradient comes in for the final state, none goes out for inputs and start: the kernel skips them."""
    ntm, x = build(), draw(5, 2, 4)
    ntm(x)[0].square().sum().backward()
    expected = NTM(4, 2, backend="reference", **SMALL)
    expected.load_state_dict(ntm.state_dict())
    expected(x)[0].square().sum().backward()
    for ours, truth in zip(ntm.parameters(), expected.parameters(), strict=True):
        error = (ours.grad - truth.grad).norm() / truth.grad.norm()
        assert error < 5e-7  # seen: 2e-7
    ntm.zero_grad()
    ntm(x)[1].memory.sum().backward()  # and of the state alone
    assert ntm.interface.weight.grad.any()


def test_outputs_and_state_can_be_changed_in_place():
    ntm, x = build(), draw(5, 2, 4)
    y, state = ntm(x)
    loss = y.mul_(2.0).sum() + state.memory.add_(1.0).sum()
    ours = torch.autograd.grad(loss, list(ntm.parameters()))
    y, state = ntm(x)
    expected = torch.autograd.grad((2 * y).sum() + state.memory.sum(), list(ntm.parameters()))
    for one, other in zip(ours, expected, strict=True):
        assert torch.equal(one, other)


def test_no_grad_and_inference_mode_leave_nothing_behind():
    """What a model keeps from call to call is made where it can be differentiated later."""
    expected = everything(build(), draw(5, 2, 4), None)
    ntm = build()
    with torch.inference_mode():
        assert torch.equal(ntm(draw(5, 2, 4))[0], expected[0])
    with torch.no_grad():
        y, _ = ntm(draw(5, 2, 4))
        assert torch.equal(y, expected[0])
        assert not y.requires_grad
    for one, other in zip(everything(ntm, draw(5, 2, 4), None), expected, strict=True):
        assert torch.equal(one, other)


def test_a_changed_parameter_is_noticed():
    ntm = build()
    y, _ = ntm(draw(5, 2, 4))
    with torch.no_grad():
        ntm.output.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_second_derivatives_are_refused():
    ntm = build()
    y, _ = ntm(draw(5, 2, 4))
    (gradient,) = torch.autograd.grad(y.sum(), [ntm.output.weight], create_graph=True)
    (plain,) = torch.autograd.grad(ntm(draw(5, 2, 4))[0].sum(), [ntm.output.weight])
    assert torch.equal(gradient, plain)
    with pytest.raises(NotImplementedError, match="once"):
        gradient.sum().backward()


# on its first use torch's forward mode compiles decompositions, with a deprecated function of its own
first_use = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def derivative(ntm, x, direction, how):
    """The directional derivative of the outputs, in forward mode."""
    if how == "jvp":
        return torch.func.jvp(lambda x: ntm(x)[0], (x,), (direction,))[1]
    with torch.set_grad_enabled(how == "grad"), forward_ad.dual_level():
        y = ntm(forward_ad.make_dual(x, direction), return_trace=how == "trace")[0]
        return forward_ad.unpack_dual(y).tangent


@first_use
@pytest.mark.parametrize("how", ["grad", "no grad", "trace", "jvp"])
def test_forward_mode_is_refused_in_one_sentence_that_names_the_reference(how):
    x, direction = draw(5, 2, 4), draw(5, 2, 4, seed=2)
    ntm = build()
    with pytest.raises(NotImplementedError, match="have no forward-mode derivatives: choose backend='reference'"):
        derivative(ntm, x, direction, how)
    assert torch.equal(ntm(x)[0], build()(x)[0])  # the refused call was its first, and left nothing behind
    backward = torch.func.vjp(lambda x: build()(x)[0], x)[1]
    tangent = derivative(build(backend="reference"), x, direction, how)
    weights = draw(*tangent.shape, seed=3)
    torch.testing.assert_close((tangent * weights).sum(), (backward(weights)[0] * direction).sum())


@first_use
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_backward_pass_in_forward_mode_is_refused(create_graph):
    x = draw(5, 2, 4).requires_grad_()
    y, _ = build()(x)
    with forward_ad.dual_level():
        given = forward_ad.make_dual(torch.ones_like(y), torch.ones_like(y))
        with pytest.raises(NotImplementedError, match="have no forward-mode derivatives"):
            torch.autograd.grad(y, x, given, create_graph=create_graph)


def test_checkpointing():
    ntm, x = build(), draw(5, 2, 4)
    ours = torch.utils.checkpoint.checkpoint(lambda x: ntm(x)[0], x, use_reentrant=False)
    for one, other in zip(
        torch.autograd.grad(ours.sum(), list(ntm.parameters())),
        torch.autograd.grad(ntm(x)[0].sum(), list(ntm.parameters())),
        strict=True,
    ):
        assert torch.equal(one, other)


# --- parameters in one piece -----------------------------------------------------------------------------------------


def saved_and_loaded(ntm):
    file = io.BytesIO()
    torch.save(ntm.state_dict(), file)
    file.seek(0)
    twin = build(seed=1)
    twin.load_state_dict(torch.load(file, weights_only=True))
    return twin


MOVES = {
    "made": lambda ntm: ntm,
    "deepcopy": copy.deepcopy,
    "pickle": lambda ntm: pickle.loads(pickle.dumps(ntm)),
    "saved and loaded": saved_and_loaded,
    "there and back": lambda ntm: ntm.double().float(),
    "with_memory": lambda ntm: ntm.with_memory(7),
    "to_empty": lambda ntm: NTM(4, 2, device="meta", **SMALL).to_empty(device="cpu"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_parameters_and_gradients_are_in_one_piece(move):
    """After all that makes new tensors; and the parameters still are parameters, each with its own gradient."""
    ntm = move(build())
    ntm.load_state_dict(build().state_dict())
    assert is_joined(ntm)
    twin = build()
    for machine in (ntm, twin):
        machine(draw(5, 2, 4))[0].square().sum().backward()
    for ours, expected in zip(ntm.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, expected)
        assert torch.equal(ours.grad, expected.grad)
        assert ours.is_leaf
    assert in_one_piece([parameter.grad for parameter in ntm.parameters()]) is not None
    assert list(ntm.state_dict()) == list(twin.state_dict())


def test_a_cell_has_them_so_too():
    assert is_joined(NTMCell(4, 2, **SMALL))


@pytest.mark.parametrize("whole", [True, False])
def test_other_parameters(whole):
    """`functional_call` and an assigned `.data` are computed with, not what stood there before."""
    ntm, other = build(), build(seed=1)
    values = {name: value.detach() for name, value in other.named_parameters() if whole or name == "output.bias"}
    expected = build()
    expected.load_state_dict({**expected.state_dict(), **values})
    assert torch.equal(functional_call(ntm, values, (draw(5, 2, 4),))[0], expected(draw(5, 2, 4))[0])
    for name, value in values.items():
        ntm.get_parameter(name).data = value.clone()
    assert torch.equal(ntm(draw(5, 2, 4))[0], expected(draw(5, 2, 4))[0])


def turned(ntm):
    ntm.controller.weight_0.data = ntm.controller.weight_0.data.flip(0)


def transposed(ntm):
    """Square, so that neither its shape nor its address tells."""
    ntm.output.weight.data = ntm.output.weight.data.t()


CHANGES = {
    "other memory": turned,
    "the same memory in another order": transposed,
    "another parameter": lambda ntm: ntm.output.register_parameter("bias", nn.Parameter(torch.ones(8))),
    "another module": lambda ntm: setattr(ntm, "output", build(1, **SQUARE).output),
    "another type": lambda ntm: ntm.double(),
    "another backend": lambda ntm: ntm.choose_backend("reference"),
}
SQUARE = {"outputs": 8}  # as many as the hidden values and reads of SMALL


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_changes_after_a_call_counts_in_the_next(change):
    """A call keeps what it found out, for the next with inputs like these."""
    ntm, x = build(**SQUARE), draw(5, 2, 4)
    ntm(x)
    change(ntm)
    x = x.to(ntm.output.weight.dtype)
    expected = build(backend="reference", **SQUARE).to(x.dtype)
    expected.load_state_dict(ntm.state_dict())
    y = ntm(x)[0]
    torch.testing.assert_close(y, expected(x)[0], rtol=1e-5, atol=1e-6)
    if ntm.backend == "reference":
        assert torch.equal(y, expected(x)[0])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ntm: pickle.loads(pickle.dumps(ntm))])
def test_copies_made_after_a_call(copied):
    ntm, x = build(), draw(5, 2, 4)
    y = ntm(x)[0].detach().clone()
    twin = copied(ntm)
    with torch.no_grad():
        ntm.output.bias.add_(1.0)
    assert torch.equal(twin(x)[0], y)


def test_more_shapes_and_batches_than_are_kept():
    ntm = build()
    for batch in range(1, MOST_STARTS + 3):
        for steps in range(1, 14):
            y = ntm(draw(steps, batch, 4))[0]
            assert len(ntm._calls) <= MOST_CALLS
    assert torch.equal(y, build()(draw(steps, batch, 4))[0])


def test_what_a_graph_needs_is_not_given_away(monkeypatch):
    """The memory of a large record is used again after its backward pass, and not before."""
    ntm, taken, take = build(), [], buffers._take_spare
    weights = list(ntm.parameters())
    xs = [draw(6, 3, 4, seed=k) for k in range(3)]
    expected = [torch.autograd.grad(ntm(x)[0].square().sum(), weights) for x in xs]
    monkeypatch.setattr(buffers, "LARGE", 0)
    monkeypatch.setattr(buffers, "_take_spare", lambda size: (taken.append(take(size)), taken[-1])[1])
    costs = [ntm(x)[0].square().sum() for x in xs[:2]]
    found = [torch.autograd.grad(cost, weights, retain_graph=cost is costs[0]) for cost in costs]
    costs.append(ntm(xs[2])[0].square().sum())
    found += [torch.autograd.grad(cost, weights) for cost in (costs[2], costs[0])]
    for ours, truth in zip(found, [*expected, expected[0]], strict=True):
        for one, other in zip(ours, truth, strict=True):
            assert torch.equal(one, other)
    assert taken[0] is not taken[1]
    assert taken[2] is taken[1]


def test_a_parametrised_machine():
    ntm, x = build(), draw(5, 2, 4)
    nn.utils.parametrize.register_parametrization(ntm.output, "weight", nn.Identity())
    y, _ = ntm(x)
    assert torch.equal(y, build()(x)[0])
    y.sum().backward()
    assert ntm.output.parametrizations.weight.original.grad.any()


def _add_one(ntm):
    with torch.no_grad():
        ntm.get_parameter("output.bias").add_(1.0)


def test_shared_memory_stays_shared():
    """What another process does to the parameters is seen here."""
    ntm = build().share_memory()
    before = ntm(draw(5, 2, 4))[0].detach().clone()
    process = multiprocessing.get_context("spawn").Process(target=_add_one, args=(ntm,))
    process.start()
    process.join()
    assert process.exitcode == 0
    torch.testing.assert_close(ntm(draw(5, 2, 4))[0], before + 1)


def test_neighbours():
    whole = torch.arange(10.0)
    a, b, c = whole[:4].view(2, 2), whole[4:9], whole[9:]
    assert torch.equal(in_one_piece([a, b, c]), whole.unsqueeze(0))
    assert torch.equal(in_one_piece([b, c]), whole[4:].unsqueeze(0))
    for wrong in ([a, c], [b, a], [a.t(), b], [a, b.clone()], [a.clone(), b], [a, b, c.double()]):
        assert in_one_piece(wrong) is None
    shorter = torch.frombuffer(bytearray(16), dtype=torch.float32)
    assert in_one_piece([shorter[:2], shorter[2:]]) is not None
    assert (
        in_one_piece(
            [
                torch.frombuffer(memory := bytearray(16), dtype=torch.float32, count=2),
                torch.frombuffer(memory, dtype=torch.float32, count=2, offset=8),
            ]
        )
        is None
    )  # two storages


# --- torch.compile, and the benchmark --------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_is_eager():
    """The scan is one operator of the graph, and what is around it is compiled."""
    ntm, x = build(), draw(5, 2, 4)

    def model(x):
        return torch.sigmoid(ntm(2 * x)[0])

    compiled = torch.compile(model)
    expected = torch.autograd.grad(model(x).sum(), list(ntm.parameters()))
    torch.testing.assert_close(compiled(x), model(x))
    for one, other in zip(torch.autograd.grad(compiled(x).sum(), list(ntm.parameters())), expected, strict=True):
        torch.testing.assert_close(one, other)
    explained = torch._dynamo.explain(model)(x)
    assert explained.graph_break_count == 0


def test_the_benchmark_does_whole_updates():
    torch.manual_seed(0)
    subject, marks = drop_in_ntm("cpu", "lstm", 2), []
    before = subject.model.flat_parameters()
    loss = subject.update(lambda: marks.append(1))
    assert len(marks) == 1 + len(DropIn.PARTS)
    assert float(loss.detach()) == pytest.approx(160 * 0.693, rel=0.1)  # coins
    assert not torch.equal(subject.model.flat_parameters(), before)
    assert isinstance(subject.optimiser, tapehead.RMSpropGraves)
