"""An initial memory of one's own: on every backend, on other tapes, trained or not, alone and in a population."""

import pytest
import torch
from test_ntm import F64, assert_same, build, inputs

from tapehead.models.cell import NTMCell
from tapehead.models.machine import NTMState

ROWS = torch.arange(21.0).reshape(7, 3).to(F64) / 10
backends = pytest.mark.parametrize("backend", ["reference", "cpu"])


@backends
def test_sequences_begin_there(backend):
    ntm, plain = build(backend, initial_memory="given"), build(backend)
    ntm.set_initial_memory(ROWS)
    plain.load_state_dict({name: value for name, value in ntm.state_dict().items() if name != "initial.memory"})
    x, start = inputs(4, 2), plain.initial_state(2)
    given = start._replace(memory=ROWS.expand(2, 7, 3))
    assert_same(ntm.initial_state(2), given, 0)
    assert_same(ntm(x), plain(x, given), 0)
    cell = build(kind=NTMCell, initial_memory="given")
    cell.load_state_dict(ntm.state_dict())
    assert_same(cell.initial_state(2), given, 0)


def test_it_is_trained_when_asked():
    ntm, x = build("cpu", initial_memory="given"), inputs(4, 2)
    ntm.set_initial_memory(ROWS)
    ntm(x)[0].sum().backward()
    assert ntm.get_parameter("initial.memory").grad is None
    ntm.set_initial_memory(ROWS, trained=True)
    y, _ = ntm(x)
    start = NTMState(*(part.detach().requires_grad_() for part in ntm.initial_state(2)))
    (expected,) = torch.autograd.grad(ntm(x, start)[0].sum(), start.memory)
    (slope,) = torch.autograd.grad(y.sum(), ntm.get_parameter("initial.memory"))
    assert_same(slope, expected.sum(0))


def test_populations_have_one_each():
    """Two machines with other rows, side by side, with gradients of them."""
    ntm, x = build("cpu", initial_memory="given"), inputs(4, 2)
    machines, alone = [], []
    for seed in range(2):
        ntm.set_initial_memory(ROWS * (seed + 1), trained=True)
        machines.append(ntm.flat_parameters())
        alone.append(ntm(x)[0].detach())
    together = ntm.population(torch.stack(machines), x.expand(2, 4, 2, 4), torch.full((2, 2), 4))
    assert_same(together, torch.stack(alone), 1e-14)
    flat, targets = torch.stack(machines), torch.zeros(2, 4, 2, 2, dtype=F64)
    given = (flat, x.expand(2, 4, 2, 4).contiguous(), targets, torch.ones(2, 4, 2), torch.full((2, 2), 4))
    ours, reference = build("cpu", initial_memory="given"), build(initial_memory="given")
    assert_same(ours.loss_and_gradient(*given)[:2], reference.loss_and_gradient(*given)[:2], 1e-11)


def test_other_tapes():
    """A shorter one has the first rows, a longer one the constant behind them."""
    ntm = build(initial_memory="given", initial_memory_value=0.25)
    ntm.set_initial_memory(ROWS)
    assert_same(ntm.with_memory(4).initial_state(1).memory[0], ROWS[:4], 0)
    longer = ntm.with_memory(9).initial_state(1).memory[0]
    assert_same(longer, torch.cat([ROWS, torch.full((2, 3), 0.25, dtype=F64)]), 0)


@backends
def test_weightings_that_start_at_zero(backend):
    """The gate lets content through, and nothing else is there to be shifted: weightings sum to one after a step."""
    ntm = build(backend, initial_weightings="zeros", initial_memory="random")
    assert not ntm.initial_state(2).read_weightings.any()
    _, _, trace = ntm(inputs(3, 2), return_trace=True)
    assert_same(trace.read.interpolated[0], trace.read.gates[0].unsqueeze(-1) * trace.read.content[0])
    assert_same(trace.read.weightings.sum(-1), torch.ones(3, 2, 1, dtype=F64))


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({}, ROWS, "initial_memory is 'constant', but only 'given' takes rows"),
        ({"initial_memory": "given"}, ROWS.T, r"rows has shape \(3, 7\).*\(7, 3\)"),
        ({"initial_memory": "given"}, ROWS.tolist(), "rows is of type list"),
    ],
)
def test_refusals(options, rows, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(**options).set_initial_memory(rows)
