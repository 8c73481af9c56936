"""The contract of `NTM` and `NTMCell`, and the whole machine against loops written from the paper's equations."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import oracles
import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map

from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.models.cell import NTMCell
from tapehead.models.config import NTMConfig
from tapehead.models.machine import NTMState
from tapehead.models.ntm import NTM

SMALL = {"controller_size": 5, "memory_slots": 7, "memory_width": 3}
F64 = torch.float64
backends = pytest.mark.parametrize("backend", ["reference", "cpu"])

# One entry for every way to build a machine that changes its equations.
MACHINES = {
    "lstm": {},
    "feedforward": {"controller": "feedforward"},
    "read then write": {"order": "read_then_write"},
    "feedforward, read then write": {"controller": "feedforward", "order": "read_then_write"},
    "deep": {"controller_layers": 3},
    "deep feedforward": {"controller": "feedforward", "controller_layers": 2},
    "heads": {"read_heads": 3, "write_heads": 2},
    "heads, read then write": {"read_heads": 2, "write_heads": 3, "order": "read_then_write"},
    "long shifts": {"shift_range": 4},
    "scalar shift": {"shift": "scalar", "shift_range": 2},
    "no shift": {"shift_range": 0},
    "write gate": {"write_gate": True, "num_heads": 2},
    "squashed": {"key_activation": "tanh", "add_activation": "sigmoid"},
    "clipped": {"interface_clip": 0.5},
    "one slot": {"memory_slots": 1},
}
machines = pytest.mark.parametrize("options", MACHINES.values(), ids=MACHINES.keys())
FEW = ("lstm", "feedforward", "heads, read then write", "scalar shift")
few_machines = pytest.mark.parametrize("name", FEW)


def build(backend="reference", kind=NTM, seed=0, loud=3.0, **options):
    """A small float64 machine with parameters large enough that every part of it matters."""
    options = {**SMALL, "dtype": F64, **options}
    model = kind(4, 2, **({"backend": backend} if kind is NTM else {}), **options)
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            bound = loud * parameter.shape[-1] ** -0.5
            parameter.copy_(bound * (2 * torch.rand(parameter.shape, generator=source, dtype=F64) - 1))
    return model


def inputs(*shape, seed=1, dtype=F64):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def assert_same(ours, expected, tolerance=1e-12):
    """Nested tuples of tensors, equal to a tolerance relative to the largest number (at least 1)."""
    if not isinstance(ours, torch.Tensor):
        assert len(ours) == len(expected)
        for mine, theirs in zip(ours, expected, strict=True):
            assert_same(mine, theirs, tolerance)
        return
    assert ours.shape == expected.shape
    if ours.numel():
        scale = max(1.0, float(expected.detach().abs().max()))
        assert float((ours - expected).detach().abs().max()) <= tolerance * scale


def rows(state, chosen):
    return NTMState(*(part[chosen] for part in state))


def join(states):
    return NTMState(*(torch.cat(parts) for parts in zip(*states, strict=True)))


def gradients(model, output, *also):
    """Gradients of a fixed random functional of all outputs, by the parameters and by `also`."""
    source = torch.Generator().manual_seed(7)
    total = sum((part * torch.randn(part.shape, generator=source, dtype=F64)).sum() for part in output)
    return torch.autograd.grad(total, [*model.parameters(), *also], allow_unused=True, materialize_grads=True)


# --- the machine is the paper's --------------------------------------------------------------------------------------


@backends
@machines
def test_against_loops(backend, options):
    """Outputs and all of the state after every step; errors seen: 3e-13, from the epsilon in the cosine's norms."""
    ntm = build(backend, **options, initial_memory_value=0.5)
    config = ntm.config
    oracle = oracles.Machine(
        {name: value.detach().numpy() for name, value in ntm.state_dict().items()},
        controller=config.controller,
        layers=config.controller_layers,
        size=config.controller_size,
        reads=config.read_heads or config.num_heads,
        writes=config.write_heads or config.num_heads,
        slots=config.memory_slots,
        width=config.memory_width,
        shift=config.shift,
        shift_range=config.shift_range,
        order=config.order,
        start=0.5,
        write_gate=config.write_gate,
        key=config.key_activation,
        add=config.add_activation,
        clip=config.interface_clip,
    )
    x = inputs(6, 2)
    y, state = ntm(x)
    expected = torch.from_numpy(np.stack([oracle.step(one) for one in x[:, 1].numpy()]))
    assert_same(y[:, 1], expected, 1e-11)
    final = [oracle.memory, oracle.read_weightings, oracle.write_weightings, oracle.reads]
    if config.controller == "lstm":
        final += [oracle.hidden, oracle.cell]
    assert_same([part[1] for part in state[: len(final)]], [torch.from_numpy(np.stack(part)) for part in final], 1e-11)


def test_shift_moves_the_way_the_paper_says():
    """A machine whose gate keeps the old weighting and whose shift is all on +1 walks up the tape, slot by slot."""
    ntm = build(memory_slots=5)
    with torch.no_grad():
        for parameter in ntm.parameters():
            parameter.zero_()
        bias = ntm.get_parameter("interface.bias")
        for head in (0, 3 + 2 + 3 + 1):  # the read head, then the write head
            bias[head + 4] = -50  # gate
            bias[head + 5 : head + 8] = torch.tensor([-50.0, -50.0, 50.0])
            bias[head + 8] = 20  # sharpening
    _, _, trace = ntm(inputs(7, 1), return_trace=True)
    for t in range(7):
        for kind in (trace.read, trace.write):
            assert kind.weightings[t, 0, 0].argmax() == (t + 1) % 5
            assert kind.weightings[t, 0, 0].max() > 1 - 1e-12


# --- shapes and layouts ----------------------------------------------------------------------------------------------


@backends
def test_layouts(backend):
    """[T, B, I], [B, T, I] and [T, I] are the same sequences."""
    ntm = build(backend)
    x = inputs(5, 3)
    y, state = ntm(x)
    assert y.shape == (5, 3, 2)
    first = build(backend, batch_first=True)
    y_first, state_first = first(x.transpose(0, 1))
    assert torch.equal(y_first.transpose(0, 1), y)
    assert_same(state_first, state, 0)
    for b in range(3):
        for model in (ntm, first):
            y_one, state_one = model(x[:, b])
            assert_same(y_one, y[:, b])
            assert_same(state_one, rows(state, b))
            y_next, _ = model(x[:, b], state_one)  # an unbatched state goes in as it came out
            assert_same(y_next, ntm(x, state)[0][:, b])


def test_state_has_the_documented_shapes():
    ntm = build(controller_layers=2, read_heads=3, write_heads=2)
    for state, lead in ((ntm.initial_state(6), (6,)), (ntm(inputs(2, 6))[1], (6,)), (ntm(inputs(2))[1], ())):
        shapes = ((7, 3), (3, 7), (2, 7), (3, 3), (2, 5), (2, 5))
        assert tuple(part.shape for part in state) == tuple(lead + shape for shape in shapes)
    assert build(controller="feedforward").initial_state(6).hidden.shape == (6, 0, 5)


@backends
@few_machines
def test_lengths(backend, name):
    """Padded rows are single rows: outputs, zeros beyond them, the state after the last step."""
    ntm = build(backend, **MACHINES[name])
    x, lengths = inputs(5, 4), torch.tensor([5, 1, 4, 3])
    y, state = ntm(x, lengths=lengths)
    for b, length in enumerate(lengths.tolist()):
        y_one, state_one = ntm(x[:length, b])
        assert_same(y[:length, b], y_one)
        assert not y[length:, b].any()
        assert_same(rows(state, b), state_one)


@backends
@pytest.mark.parametrize(
    ("name", "garbage"),
    [("lstm", float("inf")), ("lstm", 1e30), *((name, float("nan")) for name in FEW)],
)
def test_padding_changes_nothing(backend, name, garbage):
    """To the bit, forward and backward; and no gradient flows into the padding."""
    ntm = build(backend, **MACHINES[name])
    x, lengths = inputs(4, 3), torch.tensor([2, 4, 3])
    padding = torch.arange(4).unsqueeze(-1) >= lengths
    clean = torch.where(padding.unsqueeze(-1), 0.0, x).requires_grad_()
    dirty = torch.where(padding.unsqueeze(-1), garbage, x).requires_grad_()
    results = []
    for given in (clean, dirty):
        y, state = ntm(given, lengths=lengths)
        results.append([y, *state, *gradients(ntm, (y, *state), given)])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    assert not results[1][-1][padding].any()
    assert results[1][-1][~padding].any()


# --- state is a value ------------------------------------------------------------------------------------------------


@backends
@few_machines
def test_split_run_is_the_whole_run(backend, name):
    """With lengths, so that one row ends in the first part and one at its very end; gradients too."""
    ntm = build(backend, **MACHINES[name])
    x, lengths = inputs(5, 4).requires_grad_(), torch.tensor([5, 2, 4, 3])
    y, state = ntm(x, lengths=lengths)
    y_1, middle = ntm(x[:2], lengths=lengths.clamp(max=2))
    y_2, final = ntm(x[2:, [0, 2, 3]], rows(middle, [0, 2, 3]), (lengths - 2)[[0, 2, 3]])
    assert_same(y[:2], y_1)
    assert_same(y[2:, [0, 2, 3]], y_2)
    assert_same(rows(state, [0, 2, 3]), final)
    assert_same(rows(state, [1]), rows(middle, [1]))
    whole = gradients(ntm, (y[:, [0, 2, 3]], *rows(state, [0, 2, 3])), x)
    parts = gradients(ntm, (torch.cat([y_1[:, [0, 2, 3]], y_2]), *final), x)
    assert any(part.any() for part in whole)
    assert_same(parts, whole, 1e-11)


@backends
def test_interleaved_sequences(backend):
    """Two sequences through one module, turn by turn, are two separate runs; states that went in stay as they were."""
    ntm = build(backend)
    x, z = inputs(4, 2), inputs(4, 2, seed=8)
    (y_x, end_x), (y_z, end_z) = ntm(x), ntm(z)
    state_x = state_z = None
    for t in range(4):
        before = None if state_x is None else NTMState(*(part.clone() for part in state_x))
        given = state_x
        one, state_x = ntm(x[t : t + 1], given)
        other, state_z = ntm(z[t : t + 1], state_z)
        if before is not None:
            assert_same(given, before, 0)
        assert_same(one[0], y_x[t])
        assert_same(other[0], y_z[t])
    assert_same(state_x, end_x)
    assert_same(state_z, end_z)


@backends
def test_state_carries_gradients(backend):
    ntm = build(backend)
    state = NTMState(*(part.clone().requires_grad_() for part in ntm(inputs(2, 3))[1]))
    given = [part.detach().requires_grad_() for part in state]
    y, final = ntm(inputs(3, 3, seed=2), NTMState(*given))
    for part in gradients(ntm, (y, *final), *given)[-6:]:
        assert torch.isfinite(part).all()
        assert part.any()


@backends
@few_machines
def test_gradients_are_slopes(backend, name):
    """Against central differences along random directions, for parameters and inputs."""
    ntm = build(backend, **MACHINES[name], initial_memory_value=0.3, loud=1.5)
    x = inputs(4, 2).requires_grad_()
    names, values = zip(*ntm.named_parameters(), strict=True)
    source = torch.Generator().manual_seed(11)
    towards = [torch.randn(value.shape, generator=source, dtype=F64) for value in (*values, x)]

    def total(by):
        moved = [value.detach() + by * along for value, along in zip((*values, x), towards, strict=True)]
        y, state = functional_call(ntm, dict(zip(names, moved, strict=False)), (moved[-1],))
        return sum((part * weight).sum() for part, weight in zip((y, *state), weights, strict=True))

    y, state = ntm(x)
    weights = [torch.randn(part.shape, generator=source, dtype=F64) for part in (y, *state)]
    loss = sum((part * weight).sum() for part, weight in zip((y, *state), weights, strict=True))
    slope = sum((g * along).sum() for g, along in zip(torch.autograd.grad(loss, [*values, x]), towards, strict=True))
    h = 1e-5
    difference = (8 * (total(h) - total(-h)) - (total(2 * h) - total(-2 * h))) / (12 * h)
    assert float(slope.detach()) == pytest.approx(float(difference.detach()), rel=1e-7)


def test_second_derivatives():
    """The reference and the cell differentiate twice."""
    cell = build(kind=NTMCell, memory_slots=3, controller_size=2, memory_width=2, initial_memory_value=0.3, loud=1.0)
    x = inputs(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: cell(x, cell(x)[1])[0], (x,))
    assert torch.autograd.gradgradcheck(lambda x: cell(x, cell(x)[1])[0], (x,))


# --- tapes -----------------------------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize(
    ("start", "memory"),
    [("first", "learned"), ("spread", "random"), ("uniform", "addresses"), ("learned", "constant")],
)
def test_slots_per_row(backend, start, memory):
    """A row with n slots is the machine with a tape of n; the rest of the tape stays as it was."""
    options = {"memory_width": 7} if memory == "addresses" else {}
    ntm = build(backend, num_heads=3, shift_range=2, initial_weightings=start, initial_memory=memory, **options)
    x, lengths, slots = inputs(4, 4), torch.tensor([4, 2, 3, 4]), torch.tensor([7, 1, 4, 2])
    y, state, trace = ntm(x, lengths=lengths, slots=slots, return_trace=True)
    y_again, state_again = ntm(x, lengths=lengths, slots=slots)
    assert_same([y_again, *state_again], [y, *state], 1e-13)
    untouched = ntm.initial_state(4).memory
    for b, n in enumerate(slots.tolist()):
        y_one, one = ntm.with_memory(n)(x[: lengths[b], b])
        assert_same(y[: lengths[b], b], y_one)
        assert_same(state.memory[b, :n], one.memory)
        assert torch.equal(state.memory[b, n:], untouched[b, n:])
        for part in ("read_weightings", "write_weightings"):
            assert_same(getattr(state, part)[b, :, :n], getattr(one, part))
            assert not getattr(state, part)[b, :, n:].any()
        assert not trace.read.weightings[:, b, :, n:].any()


@backends
def test_slots_gradients(backend):
    ntm = build(backend, num_heads=2, initial_memory="learned")
    x, slots = inputs(4, 3), torch.tensor([7, 3, 5])
    together = gradients(ntm, [ntm(x, slots=slots)[0][:, b] for b in range(3)])
    own = dict(ntm.named_parameters())
    cut = [ntm.with_memory(n) for n in slots.tolist()]
    alone = gradients(ntm, [functional_call(cut[b], own, (x[:, b],))[0] for b in range(3)])
    assert_same(together, alone, 1e-11)


@backends
def test_with_memory(backend):
    ntm = build(backend, batch_first=True, num_heads=2).eval()
    twin = ntm.with_memory(31)
    assert (twin.config.memory_slots, ntm.config.memory_slots) == (31, 7)
    assert twin.config == dataclasses.replace(ntm.config, memory_slots=31)
    assert (twin.batch_first, twin.backend, twin.training) == (True, backend, False)
    assert twin.state_dict().keys() == ntm.state_dict().keys()
    for name, value in ntm.state_dict().items():
        assert torch.equal(twin.state_dict()[name], value)
        assert twin.state_dict()[name].data_ptr() != value.data_ptr()
    y, state = twin(inputs(2, 5))
    assert y.shape == (2, 5, 2)
    assert state.memory.shape == (2, 31, 3)
    assert_same(ntm.with_memory(7)(inputs(2, 5))[0], ntm(inputs(2, 5))[0], 0)


def test_parameters_do_not_grow_with_the_tape():
    starts = {"initial_memory": ["learned", "random", "addresses"], "initial_weightings": ["learned", "spread"]}
    for name, values in starts.items():
        for value in values:
            options = {name: value, "memory_width": 7}
            counts = {sum(p.numel() for p in build(memory_slots=n, **options).parameters()) for n in (2, 50)}
            assert len(counts) == 1


# --- cell and sequence -----------------------------------------------------------------------------------------------


@backends
@machines
def test_cell_looped_is_the_machine(backend, options):
    ntm, cell = build(backend, **options), build(kind=NTMCell, **options)
    x = inputs(4, 2)
    y, final = ntm(x)
    state = None
    for t in range(4):
        one, state = cell(x[t], state)
        assert_same(one, y[t])
    assert_same(state, final)
    single, single_state = cell(x[0, 1])
    assert_same(single, y[0, 1])
    assert_same(cell(x[1, 1], single_state)[0], y[1, 1])


@machines
def test_state_dict_is_strict_both_ways(options):
    ntm = build(**options)
    cell = build(kind=NTMCell, seed=5, **options)
    other = build(seed=6, **options)
    cell.load_state_dict(ntm.state_dict(), strict=True)
    other.load_state_dict(cell.state_dict(), strict=True)
    assert torch.equal(other(inputs(3, 2))[0], ntm(inputs(3, 2))[0])
    assert list(ntm.state_dict()) == [name for name, _ in ntm.named_parameters()]


def test_state_dict_of_another_machine_is_refused():
    with pytest.raises(RuntimeError, match=r"initial\.memory"):
        build().load_state_dict(build(initial_memory="learned").state_dict())
    with pytest.raises(RuntimeError, match="size mismatch"):
        build().load_state_dict(build(controller_size=6).state_dict())


# --- trace -----------------------------------------------------------------------------------------------------------


@backends
@machines
def test_trace_is_what_happened(backend, options):
    """Everything is recomputed from the trace with the equations; nothing may be left unexplained."""
    ntm = build(backend, **options, initial_memory_value=0.4)
    config, x, lengths = ntm.config, inputs(4, 2), torch.tensor([2, 4])
    y, state = ntm(x, lengths=lengths)
    y_traced, state_traced, trace = ntm(x, lengths=lengths, return_trace=True)
    assert_same([y_traced, *state_traced], [y, *state], 1e-13)
    assert y_traced.requires_grad  # a trace beside it does not cost y its gradient
    assert not any(part.requires_grad for part in (trace.memory, trace.read.keys))
    p = {name: value.numpy() for name, value in ntm.state_dict().items()}
    for b, length in enumerate(lengths.tolist()):
        t = length - 1
        assert_same(state.memory[b], trace.memory[t, b])
        assert_same(state.reads[b], trace.reads[t, b])
        assert_same(state.read_weightings[b], trace.read.weightings[t, b])
        assert_same(state.write_weightings[b], trace.write.weightings[t, b])
        before = ntm.initial_state(1)
        memory, previous = before.memory[0], {"read": before.read_weightings[0], "write": before.write_weightings[0]}
        for t in range(length):
            strokes = trace.write_gates[t, b].unsqueeze(-1) * trace.write.weightings[t, b]
            wiped = oracles.erase(memory.numpy(), strokes.numpy(), trace.erase[t, b].numpy())
            written = torch.from_numpy(oracles.add(wiped, strokes.numpy(), trace.add[t, b].numpy()))
            assert_same(trace.memory[t, b], written)
            seen = {"write": memory, "read": written if config.order == "write_then_read" else memory}
            for kind, ask in (("read", trace.read), ("write", trace.write)):
                for h in range(ask.gates.shape[-1]):
                    check_addressing(tree_map(lambda part: part[t, b, h], ask), seen[kind], previous[kind][h])
            hidden = trace.hidden[t, b].numpy()
            reads = [oracles.read(seen["read"].numpy(), w.numpy()) for w in trace.read.weightings[t, b]]
            assert_same(trace.reads[t, b], torch.from_numpy(np.stack(reads)))
            logits = p["output.weight"] @ np.concatenate([hidden, *reads]) + p["output.bias"]
            assert_same(y[t, b], torch.from_numpy(logits))
            memory, previous = written, {"read": trace.read.weightings[t, b], "write": trace.write.weightings[t, b]}
        beyond = tree_map(lambda part: part[length:, b], trace)
        for part in (*beyond.read, *beyond.write, *beyond[2:]):
            assert not part.any()


def check_addressing(ask, memory, previous):
    """One head at one step: each stage from the one before."""
    stages = [oracles.content(ask.keys.numpy(), float(ask.strengths), memory.numpy())]
    stages.append(oracles.interpolate(float(ask.gates), ask.content.numpy(), previous.numpy()))
    stages.append(oracles.shift(ask.interpolated.numpy(), ask.shifts.numpy()))
    stages.append(oracles.sharpen(ask.shifted.numpy(), float(ask.sharpenings)))
    for ours, expected in zip((ask.content, ask.interpolated, ask.shifted, ask.weightings), stages, strict=True):
        assert_same(ours, torch.from_numpy(expected), 1e-10)  # seen: 1e-11, strength times the epsilon in the norms
        assert float(ours.sum()) == pytest.approx(1, abs=1e-12)


# --- torch's transformations -----------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("options", [{}, {"controller": "feedforward", "num_heads": 2, "initial_memory": "learned"}])
def test_vmap_over_machines(backend, options):
    """`functional_call` and `vmap` over stacked parameters: the same as each machine by itself, gradients too."""
    models = [build(backend, seed=seed, **options) for seed in range(3)]
    stacked, _ = stack_module_state(models)
    x = inputs(4, 2)
    y, state = vmap(lambda parameters: functional_call(models[0], parameters, (x,)))(stacked)
    slopes = torch.autograd.grad(y.square().sum() + state.memory.sum(), list(stacked.values()))
    for k, model in enumerate(models):
        y_one, state_one = model(x)
        assert_same(y[k], y_one)
        assert_same(rows(state, k), state_one)
        expected = torch.autograd.grad(y_one.square().sum() + state_one.memory.sum(), list(model.parameters()))
        assert_same([slope[k] for slope in slopes], expected, 1e-11)


@backends
def test_gradients_of_each_sequence(backend):
    """`vmap` of `grad`: the slopes of every sequence's own loss."""
    ntm, x = build(backend), inputs(3, 2)
    own = {name: value.detach() for name, value in ntm.named_parameters()}

    def loss(parameters, x):
        return functional_call(ntm, parameters, (x,))[0].square().sum()

    slopes = vmap(torch.func.grad(loss), in_dims=(None, 1))(own, x)
    for b in range(2):
        expected = torch.autograd.grad(ntm(x[:, b])[0].square().sum(), list(ntm.parameters()))
        assert_same([slope[b] for slope in slopes.values()], expected, 1e-11)


@backends
def test_vmap_over_batches(backend):
    """Another batch dimension in front; and with the lengths of each."""
    ntm = build(backend)
    x, lengths = inputs(3, 4, 2), torch.tensor([[4, 1], [2, 3], [4, 4]])
    y, state = vmap(ntm)(x)
    y_short, _ = vmap(lambda x, n: ntm(x, None, n))(x, lengths)
    for k in range(3):
        y_one, state_one = ntm(x[k])
        assert_same(y[k], y_one)
        assert_same(rows(state, k), state_one)
        assert_same(y_short[k], ntm(x[k], lengths=lengths[k])[0])


@pytest.mark.parametrize("name", ["lstm", "deep feedforward", "scalar shift", "heads, read then write"])
def test_export_of_the_cell(name):
    cell = build(kind=NTMCell, **MACHINES[name])
    state = NTMState(*(part.detach() for part in cell(inputs(3))[1]))
    exported = torch.export.export(cell, (inputs(3), state)).module()
    for seed in range(2):
        x = inputs(3, seed=seed)
        y, new = exported(x, state)
        expected_y, expected = cell(x, state)
        assert torch.equal(y, expected_y)
        assert_same(tuple(new), tuple(expected), 0)


@backends
def test_extreme_parameters_stay_finite(backend):
    """Saturated gates and shifts, strengths and sharpenings of 1e4, in float32.

    Two steps at 1e4, more at 100: with strengths of 1e4 and rows erased to zero each step multiplies a slope by up to
    1e10, so that true gradients leave float32 after a few.
    """
    chosen = ("lstm", "feedforward", "heads", "scalar shift", "one slot")
    for seed, name, (size, steps) in itertools.product(range(2), chosen, ((1e4, 2), (100.0, 5))):
        ntm = build(backend, seed=seed, dtype=torch.float32, **MACHINES[name])
        with torch.no_grad():
            signs = ntm.get_parameter("interface.bias").sign()
            ntm.get_parameter("interface.bias").copy_(size * signs)
        x = 1e4 * inputs(steps, 2, dtype=torch.float32)
        y, state = ntm(x)
        slopes = torch.autograd.grad(y.sum() + sum(part.sum() for part in state), list(ntm.parameters()))
        for part in (y, *state, *slopes):
            assert torch.isfinite(part).all()
        for weighting in (state.read_weightings, state.write_weightings):
            assert (weighting.sum(-1) - 1).abs().max() < 1e-5


# --- as a module -----------------------------------------------------------------------------------------------------


@backends
def test_deepcopy_is_another_machine(backend):
    ntm = build(backend)
    twin = copy.deepcopy(ntm)
    before = ntm(inputs(3, 2))[0]
    assert torch.equal(twin(inputs(3, 2))[0], before)
    with torch.no_grad():
        twin.get_parameter("output.bias").add_(1.0)
    assert torch.equal(ntm(inputs(3, 2))[0], before)
    assert_same(twin(inputs(3, 2))[0], before + 1)


@backends
def test_to_float64(backend):
    ntm = build(backend, dtype=torch.float32, initial_memory="random", initial_weightings="learned")
    y, _ = ntm(inputs(5, 2, dtype=torch.float32))
    assert y.dtype == torch.float32
    y_double, state = ntm.to(F64)(inputs(5, 2, dtype=torch.float32))  # the input follows the parameters
    assert y_double.dtype == F64
    assert all(part.dtype == F64 for part in state)
    assert 0 < (y_double - y).abs().max() < 1e-5


def test_backend_in_use():
    ntm = build("reference")
    assert ntm.backend_in_use() == "reference"
    with pytest.raises(ValueError, match=r"backend is 'cuda'.*auto, reference, cpu, gpu"):
        ntm.choose_backend("cuda")
    assert ntm.backend == "reference"


def test_auto_takes_the_kernel_of_the_device():
    ntm = build("auto", dtype=torch.float32)
    assert ntm.backend_in_use() == "cpu"
    x = inputs(4, 2, dtype=torch.float32)
    assert torch.equal(ntm(x)[0], build("cpu", dtype=torch.float32)(x)[0])


def test_same_seed_same_parameters():
    one, other = NTM(4, 2, **SMALL), NTM(4, 2, **SMALL)
    one.reset_parameters(torch.Generator().manual_seed(3))
    other.reset_parameters(torch.Generator().manual_seed(3))
    assert torch.equal(one.flat_parameters(), other.flat_parameters())
    other.reset_parameters(torch.Generator().manual_seed(4))
    assert not torch.equal(one.flat_parameters(), other.flat_parameters())


# --- options ---------------------------------------------------------------------------------------------------------

CHANGES = {
    "controller": "feedforward",
    "controller_size": 6,
    "controller_layers": 2,
    "num_heads": 2,
    "memory_slots": 5,
    "memory_width": 4,
    "shift": "scalar",
    "shift_range": 2,
    "read_heads": 2,
    "write_heads": 2,
    "initial_memory": "random",
    "initial_memory_value": 0.3,
    "initial_memory_scale": 0.7,
    "initial_weightings": "uniform",
    "initial_reads": "memory",
    "initial_controller": "learned",
    "order": "read_then_write",
    "key_activation": "tanh",
    "add_activation": "tanh",
    "output_from": "hidden",
    "forget_bias": 3.0,
    "read_gate_bias": 2.0,
    "write_gate_bias": -2.0,
    "strength_bias": 2.0,
    "sharpen_bias": 2.0,
    "interface_clip": 0.05,
    "write_gate": True,
}


def test_every_option_is_tried():
    assert CHANGES.keys() == {f.name for f in dataclasses.fields(NTMConfig)} - {"input_size", "output_size"}


def drawn(backend, **options):
    """A machine as it starts in training, with its initial memory large enough to be read."""
    ntm = NTM(4, 2, backend=backend, dtype=F64, **{**SMALL, "initial_memory_value": 0.2, **options})
    ntm.reset_parameters(torch.Generator().manual_seed(0))
    return ntm


@backends
@pytest.mark.parametrize("name", CHANGES)
def test_every_option_matters(backend, name):
    with_it = {"initial_memory": "random"} if name == "initial_memory_scale" else {}
    changed = drawn(backend, **{name: CHANGES[name]}, **with_it)
    if name == "initial_controller":
        with torch.no_grad():
            changed.get_parameter("initial.cell").fill_(0.5)
    y, _ = changed(inputs(5, 2))
    assert y.shape == (5, 2, 2)
    assert torch.isfinite(y).all()
    assert not torch.allclose(y, drawn(backend, **with_it)(inputs(5, 2))[0], rtol=0, atol=1e-9)


@backends
@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("initial_memory", ["initial.memory"]),
        ("initial_weightings", ["initial.read_rates", "initial.write_rates"]),
        ("initial_reads", ["initial.reads"]),
        ("initial_controller", ["initial.hidden", "initial.cell"]),
    ],
)
def test_learned_starts_learn(backend, option, names):
    """They get the gradients of their finite differences, and are where the sequence starts."""
    ntm = build(backend, initial_memory_value=0.2, loud=1.0, **{option: "learned"})
    x = inputs(3, 2)
    assert set(names) == {name for name, _ in ntm.named_parameters() if name.startswith("initial.")}
    for name in names:
        parameter = ntm.get_parameter(name)
        y, state = ntm(x)
        (slope,) = torch.autograd.grad(y.square().sum() + state.memory.sum(), parameter)
        along = torch.ones_like(parameter)
        totals = []
        for by in (1e-5, -1e-5):
            y, state = functional_call(ntm, {name: parameter.detach() + by * along}, (x,))
            totals.append(float((y.square().sum() + state.memory.sum()).detach()))
        assert slope.any()
        assert float(slope.sum()) == pytest.approx((totals[0] - totals[1]) / 2e-5, rel=1e-6)


def test_starts_are_as_documented():
    state = drawn("reference").initial_state(2)
    assert (state.memory == 0.2).all()
    assert torch.equal(state.read_weightings[0, 0], torch.eye(7, dtype=F64)[0])
    assert not state.reads.any()
    assert not state.hidden.any()
    spread = drawn("reference", num_heads=9, initial_weightings="spread").initial_state(1)
    assert spread.read_weightings[0].argmax(-1).tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    uniform = drawn("reference", initial_weightings="uniform").initial_state(1)
    assert_same(uniform.write_weightings, torch.full((1, 1, 7), 1 / 7, dtype=F64), 1e-16)
    learned = drawn("reference", initial_weightings="learned").initial_state(1).read_weightings[0, 0]
    assert_same(learned, torch.softmax(-torch.arange(7, dtype=F64), -1), 1e-15)
    read = drawn("reference", initial_reads="memory", initial_memory="random").initial_state(1)
    assert_same(read.reads[0, 0], read.memory[0, 0], 0)
    long = drawn("reference", initial_memory="random", memory_slots=11).initial_state(1)
    assert torch.equal(long.memory[0, :7], read.memory[0])  # a longer tape begins like a shorter one
    assert 0.05 < read.memory.abs().max() <= 0.1
    large = drawn("reference", initial_memory="random", initial_memory_scale=1.0).initial_state(1)
    assert_same(large.memory, read.memory * 10, 1e-15)
    numbered = {"initial_memory": "addresses", "initial_memory_scale": 0.5, "memory_width": 9}
    short, long = (drawn("reference", **numbered, memory_slots=n).initial_state(1).memory[0] for n in (7, 300))
    assert short[5].tolist() == [0.5, -0.5, 0.5, -0.5, -0.5, -0.5, -0.5, 0.0, 0.0]  # five is 101
    assert torch.equal(long[:7], short)
    assert len(long[:128].unique(dim=0)) == 128
    assert not long[128:].any()  # where the digits end


def test_biases_start_where_the_options_say():
    options = {
        "forget_bias": 1.5,
        "read_gate_bias": 2.0,
        "write_gate_bias": -3.0,
        "strength_bias": 0.5,
        "sharpen_bias": -0.25,
    }
    ntm = drawn("reference", read_heads=2, write_heads=1, **options)
    expected = torch.zeros(20)
    expected[5:10] = 1.5
    assert_same(ntm.get_parameter("controller.bias_0"), expected.to(F64), 0)
    head = [0.0, 0.0, 0.0, 0.5, 2.0, 0.0, 0.0, 0.0, -0.25]
    writing = [0.0, 0.0, 0.0, 0.5, -3.0, 0.0, 0.0, 0.0, -0.25] + [0.0] * 6
    assert_same(ntm.get_parameter("interface.bias"), torch.tensor(head + head + writing, dtype=F64), 0)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"memory_slot": 8}, TypeError, "unknown option 'memory_slot'.*'memory_slots'"),
        ({"contoller": "lstm"}, TypeError, "unknown option 'contoller'.*'controller'"),
        ({"controller": "lstn"}, ValueError, "unknown controller 'lstn'.*'lstm'"),
        ({"order": "write_first"}, ValueError, "order is 'write_first'.*write_then_read or read_then_write"),
        ({"initial_memory": "const"}, ValueError, "initial_memory is 'const'.*constant, random"),
        ({"initial_memory": "addresses", "memory_width": 6}, ValueError, "'addresses'.*7 digits.*width is 6"),
        ({"memory_slots": 0}, ValueError, "memory_slots is 0.*at least 1"),
        ({"memory_width": 2.5}, ValueError, "memory_width is 2.5.*whole number"),
        ({"num_heads": True}, ValueError, "num_heads is True.*whole number"),
        ({"write_heads": 0}, ValueError, "write_heads is 0.*at least 1"),
        ({"controller_layers": -1}, ValueError, "controller_layers is -1.*at least 1"),
        ({"shift_range": -1}, ValueError, "shift_range is -1.*at least 0"),
        ({"shift": "scalar", "shift_range": 0}, ValueError, "shift_range is 0.*at least 1"),
        ({"interface_clip": 0.0}, ValueError, "interface_clip is 0.0.*positive"),
        ({"interface_clip": True}, ValueError, "interface_clip is True.*finite number"),
        ({"interface_clip": np.array([20.0])}, ValueError, "interface_clip is array.*finite number"),
        ({"forget_bias": math.nan}, ValueError, "forget_bias is nan.*finite number"),
        ({"forget_bias": 10**400}, ValueError, "forget_bias is 1000.*finite number"),
        ({"initial_memory_value": 1e308}, ValueError, "initial_memory_value is 1e[+]308.*float32 ends at 3.40e[+]38"),
        ({"write_gate": 1}, ValueError, "write_gate is 1.*true or false"),
        ({"controller": ["lstm"]}, ValueError, "controller is \\['lstm'\\], but it must be a word"),
        ({"memory_slots": 10**12}, ValueError, "memory_slots is 1000000000000.*at most 16777216"),
        ({"controller_layers": 10**6}, ValueError, "controller_layers is 1000000.*at most 1024"),
        ({"controller_size": 2**24}, ValueError, r"make \d+ parameters.*at most 2147483648"),
        ({"memory_slots": 2**24, "memory_width": 200}, ValueError, r"make \d+ entries of a tape"),
        ({"batch_first": "yes"}, ValueError, "batch_first is 'yes'.*True or False"),
        ({"dtype": torch.int64}, ValueError, "dtype is torch.int64.*torch.float32, torch.float64"),
        ({"device": "gpu"}, ValueError, "device is 'gpu'"),
        ({"backend": "fast"}, ValueError, "backend is 'fast'.*auto, reference, cpu, gpu"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        NTM(4, 2, **options)


def test_numbers_are_canonical():
    """1 and 1.0, and numpy's numbers, make one config; otherwise one machine would have two hashes."""
    plain = NTM(4, 2, interface_clip=20.0, forget_bias=1.0, memory_slots=7).config
    given = NTM(np.int64(4), 2, interface_clip=20, forget_bias=np.float32(1), memory_slots=np.int32(7)).config
    assert given == plain
    assert [type(value) for value in (given.interface_clip, given.forget_bias, given.memory_slots)] == [
        float,
        float,
        int,
    ]
    assert given.spec.to_json() == plain.spec.to_json()
    assert ScanSpec(input_size=1, output_size=1, interface_clip=2) == ScanSpec(
        input_size=1, output_size=1, interface_clip=2.0
    )
    assert ScanSpec(input_size=1, output_size=1, interface_clip=2).to_json().count('"interface_clip": 2.0') == 1


def test_bad_sizes():
    for given, name in (((0, 2), "input_size"), ((4, -1), "output_size")):
        with pytest.raises(ValueError, match=f"{name} is .*at least 1"):
            NTM(*given)


@backends
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": torch.zeros(3, 2, 5)}, r"shape \(3, 2, 5\).*\[time, batch, 4\]"),
        ({"x": torch.zeros(4)}, r"shape \(4,\)"),
        ({"x": torch.zeros(0, 2, 4)}, "no time steps"),
        ({"x": torch.zeros(3, 2, 4), "lengths": torch.tensor([3])}, r"lengths has shape \(1,\).*2 sequences"),
        ({"x": torch.zeros(3, 2, 4), "lengths": torch.tensor([3, 4])}, "lengths run from 3 to 4.*between 1 and the 3"),
        ({"x": torch.zeros(3, 2, 4), "lengths": torch.tensor([0, 3])}, "lengths run from 0 to 3"),
        (
            {"x": torch.zeros(3, 2, 4), "slots": torch.tensor([8, 3])},
            "slots run from 3 to 8.*between 1 and the tape's 7",
        ),
        ({"x": torch.zeros(3, 2, 4), "slots": torch.tensor([0, 3])}, "slots run from 0 to 3"),
        ({"x": torch.zeros(3, 2, 4), "slots": torch.tensor([3])}, r"slots has shape \(1,\)"),
        ({"x": torch.zeros(3, 2, 4), "slots": torch.tensor([3.0, 2.0])}, "slots is torch.float32.*whole numbers"),
        ({"x": torch.zeros(3, 2, 4), "lengths": "33"}, "lengths is of type str"),
        ({"x": torch.zeros(3, 2, 4), "lengths": torch.ones(2, dtype=torch.int64, device="meta")}, "lengths is on meta"),
        ({"x": [[1.0] * 4]}, "input is of type list.*torch.Tensor"),
        ({"x": None}, "input is of type NoneType"),
        ({"x": torch.zeros(3, 2, 4).to_sparse()}, "input is torch.sparse_coo.*dense"),
        ({"x": torch.zeros(3, 2, 4, device="meta")}, "input is on meta"),
        ({"x": torch.zeros(3, 2, 4, dtype=torch.complex64)}, "input is torch.complex64.*real"),
    ],
)
def test_bad_input(backend, given, message):
    given = dict(given)
    with pytest.raises((ValueError, TypeError), match=message):
        build(backend)(given.pop("x"), **given)


def test_bad_state():
    ntm = build()
    with pytest.raises(ValueError, match=r"state\.memory has shape \(3, 7, 3\).*\(2, 7, 3\)"):
        ntm(inputs(3, 2), ntm.initial_state(3))
    with pytest.raises(ValueError, match=r"state\.memory is torch\.float32.*float64"):
        ntm(inputs(3, 2), build(dtype=torch.float32).initial_state(2))
    with pytest.raises(ValueError, match=r"shape \(2, 5\).*\[batch, 4\]"):
        build(kind=NTMCell)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"state\.memory has shape \(3, 7, 3\).*\(2, 7, 3\)"):
        build(kind=NTMCell)(inputs(1, 2)[0], ntm.initial_state(3))
    for wrong, message in (
        (ntm.initial_state(2)._asdict(), "state is a dict.*memory, read_weightings, .*, cell"),
        (tuple(ntm.initial_state(2))[:5], "state is a tuple of 5"),
        ([None] * 6, "state.memory is of type NoneType"),
        (ntm.initial_state(2).memory, "state is a Tensor"),
    ):
        for model, x in ((ntm, inputs(3, 2)), (build(kind=NTMCell), inputs(1, 2)[0])):
            with pytest.raises(TypeError, match=message):
                model(x, wrong)


@backends
def test_a_state_may_be_any_tuple(backend):
    """As in `nn.LSTM`; also unbatched."""
    ntm, cell = build(backend), build(kind=NTMCell)
    for x, state in (
        (inputs(3, 2), ntm.initial_state(2)),
        (inputs(3, 2)[:, 0], NTMState(*map(first, ntm.initial_state(1)))),
    ):
        expected = ntm(x, state)
        for given in (tuple(state), list(state)):
            y, after = ntm(x, given)
            assert torch.equal(y, expected[0])
            assert isinstance(after, NTMState)
            torch.testing.assert_close(cell(x[0], given), cell(x[0], state))


def first(part):
    return part[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_half_precision_parameters_are_refused(backend, dtype):
    """The epsilons vanish in them, so a machine would compute NaN."""
    message = f"the parameters are {dtype}.*float32 or float64: call .float\\(\\)"
    with pytest.raises(ValueError, match=message):
        NTM(4, 2, backend=backend).to(dtype)(torch.zeros(3, 2, 4))
    with pytest.raises(ValueError, match=message):
        NTMCell(4, 2).to(dtype)(torch.zeros(2, 4))


@backends
def test_an_empty_batch(backend):
    """Nothing in, nothing out, of the right shapes; with a trace and gradients, too."""
    ntm = build(backend)
    y, state, trace = ntm(inputs(3, 0), lengths=torch.zeros(0, dtype=torch.int64), return_trace=True)
    one = ntm(inputs(3, 1), return_trace=True)
    assert y.shape == (3, 0, 2)
    assert [part.shape for part in state] == [(0, *part.shape[1:]) for part in one[1]]
    for part, like in zip(flat_leaves(trace), flat_leaves(one[2]), strict=True):
        assert part.shape == (3, 0, *like.shape[2:])
    y.sum().backward()
    assert not any(parameter.grad.any() for parameter in ntm.parameters())


def flat_leaves(tree):
    return [tree] if isinstance(tree, torch.Tensor) else [leaf for part in tree for leaf in flat_leaves(part)]
