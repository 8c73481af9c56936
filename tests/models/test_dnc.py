"""The Differentiable Neural Computer against loops, fractions by hand, and itself run in other ways."""

import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles_dnc
import pytest
import torch
from tiny import outcome, tiny, train_some_blocks
from torch.func import functional_call, stack_module_state, vmap

import tapehead
from tapehead import DNC, DNCCell, DNCConfig, DNCState
from tapehead.experiment.config import Experiment, read_toml
from tapehead.figures.dnc_trace import links_after
from tapehead.kernels.dnc_scan.spec import MODES, DNCSpec
from tapehead.models.dnc import model

F64 = torch.float64
EXAMPLES = Path(__file__).parents[2] / "examples" / "dnc"
SMALL = {"controller_size": 5, "memory_slots": 6, "memory_width": 3, "read_heads": 2}
MACHINES = {
    "lstm": {},
    "feedforward, softplus": {"controller": "feedforward", "strength": "softplus", "controller_layers": 2},
    "all options": {"masked_content": True, "deallocation": True, "link_sharpness": True, "controller_layers": 2},
    "one slot, one head": {"memory_slots": 1, "read_heads": 1, "memory_width": 1},
}
machines = pytest.mark.parametrize("options", MACHINES.values(), ids=MACHINES.keys())
few_machines = pytest.mark.parametrize("name", ["lstm", "all options"])


def build(kind=DNC, seed=0, loud=2.0, dtype=F64, **options):
    """A machine whose interface weights are `loud` times as large as at the start of training, so that heads move."""
    machine = kind(4, 2, dtype=dtype, **{**SMALL, **options})
    machine.reset_parameters(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        machine.get_parameter("interface.weight").mul_(loud)
        bias = machine.get_parameter("interface.bias")
        bias.add_(torch.randn(bias.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=dtype))
    return machine


def inputs(*shape, seed=3, dtype=F64):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def rows(state, b):
    return DNCState(*(part[b] for part in state))


def assert_same(ours, expected, tolerance=1e-13):
    """Tensors, or sequences of them; errors seen are a few units of the last place where nothing else is said."""
    ours, expected = ([one] if isinstance(one, torch.Tensor) else list(one) for one in (ours, expected))
    for one, other in zip(ours, expected, strict=True):
        assert one.shape == other.shape
        if one.numel():
            assert float((one - other).detach().abs().max()) <= tolerance * max(1.0, float(other.detach().abs().max()))


def gradients(dnc, outputs, *others):
    """Of a weighted sum of tensors, by parameters and other tensors."""
    total = sum((part * inputs(part.numel(), seed=k).flatten()[: part.numel()].view(part.shape)).sum()
                for k, part in enumerate(outputs))  # fmt: skip
    return torch.autograd.grad(total, [*dnc.parameters(), *others], allow_unused=True, materialize_grads=True)


# --- truth ------------------------------------------------------------------------------------------------------------


@machines
def test_against_loops(options):
    """Outputs and all of the state after several steps; errors seen: 2e-16."""
    dnc = build(**options)
    known = {**SMALL, **options}
    oracle = oracles_dnc.Machine({name: value.detach().numpy() for name, value in dnc.state_dict().items()}, **known)
    x = inputs(7, 2)
    y, state = dnc(x)
    expected = torch.from_numpy(np.stack([oracle.step(one) for one in x[:, 1].numpy()]))
    assert_same(y[:, 1], expected, 1e-15)
    final = [oracle.memory, oracle.usage, oracle.links, oracle.precedence, np.stack(oracle.read_weightings)]
    final += [oracle.written, np.stack(oracle.reads)]
    if known.get("controller") != "feedforward":
        final += [np.stack(oracle.hidden), np.stack(oracle.cell)]
    ours = rows(state, 1)[: len(final)]
    assert_same(ours, [torch.from_numpy(part) for part in final], 1e-15)


def test_two_steps_by_hand():
    """A machine of two slots of width 1 with one read head, all of whose parameters are zero but for the write vector.

    Then in every step: all gates and the erase vector are sigmoid(0) = 1/2, the write vector is 1, the read modes are
    softmax(0, 0, 0) = 1/3 each; keys are zero, so that content weightings are uniform, (1/2, 1/2).

    Step 1. Nothing was read or written: usage u = (0, 0), allocation a = (1, 0).
        write     w = 1/2 (1/2 (1, 0) + 1/2 (1/2, 1/2)) = 1/2 (3/4, 1/4) = (3/8, 1/8)
        memory    M = 0 + w 1 = (3/8, 1/8)
        link      L = w p = 0, since the precedence was zero; then p = (3/8, 1/8)
        read      f = b = 0; w_r = 1/3 (1/2, 1/2) = (1/6, 1/6); r = 1/6 3/8 + 1/6 1/8 = 1/12
    Step 2.
        retention 1 - 1/2 1/6 = 11/12 in both slots
        usage     u = (0 + w) 11/12 = (11/32, 11/96)
        allocation: slot 1 is less used, a(1) = 1 - 11/96 = 85/96; then a(0) = (1 - 11/32) 11/96 = 77/1024
        write     w = 1/4 a + 1/8 = (77/4096 + 512/4096, 85/384 + 48/384) = (589/4096, 133/384)
        memory    M(0) = 3/8 (1 - 589/8192) + 589/4096, M(1) = 1/8 (1 - 133/768) + 133/384
        link      L(0, 1) = w(0) p(1) = 589/32768, L(1, 0) = w(1) p(0) = 133/1024
        precedence p = (1 - w(0) - w(1)) (3/8, 1/8) + w
        read      f = L w_r = (L(0, 1), L(1, 0)) / 6, b = L^T w_r = (L(1, 0), L(0, 1)) / 6
                  w_r(i) = 1/3 (b(i) + 1/2 + f(i)), and f(0) + b(0) = f(1) + b(1) = (589/32768 + 133/1024) / 6
    """
    sizes = {"controller_size": 1, "memory_slots": 2, "memory_width": 1, "read_heads": 1}
    dnc = DNC(1, 1, controller="feedforward", dtype=F64, **sizes)
    with torch.no_grad():
        for parameter in dnc.parameters():
            parameter.zero_()
        _, writing = dnc.config.spec.interface.heads(dnc.get_parameter("interface.bias"))
        writing[:, dnc.config.spec.interface.write["add"]] = 1.0
    part = Fraction
    w = (part(589, 4096), part(133, 384))
    kept = 1 - w[0] - w[1]
    links = (part(589, 32768), part(133, 1024))
    read = (part(1, 2) + (links[0] + links[1]) / 6) / 3
    memory = (part(3, 8) * (1 - part(589, 8192)) + w[0], part(1, 8) * (1 - part(133, 768)) + w[1])
    steps = [
        {
            "memory": [[part(3, 8)], [part(1, 8)]],
            "usage": [0, 0],
            "link": [[0, 0], [0, 0]],
            "precedence": [part(3, 8), part(1, 8)],
            "read_weightings": [[part(1, 6), part(1, 6)]],
            "write_weighting": [part(3, 8), part(1, 8)],
            "reads": [[part(1, 12)]],
        },
        {
            "memory": [[memory[0]], [memory[1]]],
            "usage": [part(11, 32), part(11, 96)],
            "link": [[0, links[0]], [links[1], 0]],
            "precedence": [kept * part(3, 8) + w[0], kept * part(1, 8) + w[1]],
            "read_weightings": [[read, read]],
            "write_weighting": list(w),
            "reads": [[read * (memory[0] + memory[1])]],
        },
    ]
    state = None
    for expected in steps:
        _, state = dnc(torch.zeros(1, 1, dtype=F64), state)
        for name, numbers in expected.items():
            assert_same(getattr(state, name), torch.from_numpy(np.array(numbers, dtype=np.float64)), 2e-16)


@few_machines
def test_gradients_are_slopes(name):
    """Away from ties: usages of the steps differ, so no order of slots changes between the two sides."""
    dnc = build(**MACHINES[name], memory_slots=4, controller_size=3)
    state = [part.detach().requires_grad_() for part in dnc(inputs(3, 1))[1]]
    x = inputs(2, 1, seed=5).requires_grad_()
    names, values = zip(*dnc.named_parameters(), strict=True)

    def run(x, *parts):
        own = dict(zip(names, parts[9:], strict=True))
        y, final = functional_call(dnc, own, (x, DNCState(*parts[:9])))
        return (y, *final)

    assert torch.autograd.gradcheck(run, (x, *state, *values), fast_mode=True)


def test_detached_usage_changes_gradients_alone():
    x = inputs(5, 2)
    results = []
    for detached in (False, True):
        dnc = build(detached_usage=detached)
        y, state = dnc(x)
        results.append(([y, *state], gradients(dnc, (y,))))
    assert_same(results[0][0], results[1][0], 0)
    assert any(float((one - other).abs().max()) > 1e-4 for one, other in zip(results[0][1], results[1][1], strict=True))


# --- the contract of sequences ----------------------------------------------------------------------------------------


@few_machines
def test_whole_is_split_is_step_by_step(name):
    """Outputs, final state and gradients; the reads of a step reach the controller in the next, wherever it is cut."""
    dnc, x = build(**MACHINES[name]), inputs(6, 3).requires_grad_()
    y, state = dnc(x)
    whole = [y, *state]
    y_1, middle = dnc(x[:2])
    y_2, end = dnc(x[2:], middle)
    split = [torch.cat([y_1, y_2]), *end]
    cell = DNCCell(4, 2, dtype=F64, **{**SMALL, **MACHINES[name]})
    cell.load_state_dict(dnc.state_dict())
    answers, now, now_cell = [], None, None
    for t in range(6):
        one, now = dnc(x[t : t + 1], now)
        other, now_cell = cell(x[t], now_cell)
        assert_same(other, one[0])
        answers.append(one)
    steps = [torch.cat(answers), *now]
    assert_same(now_cell, now)
    assert_same(split, whole)
    assert_same(steps, whole)
    expected = gradients(dnc, whole, x)
    assert all(bool(part.any()) for part in expected)
    assert_same(gradients(dnc, split, x), expected, 1e-11)
    assert_same(gradients(dnc, steps, x), expected, 1e-11)


def test_reads_are_fed_back_within_a_sequence():
    """The controller of a later step sees what was read before it: without its weights on reads, it does not."""
    dnc, x = build(), inputs(4, 2)
    deaf = build()
    with torch.no_grad():
        deaf.get_parameter("controller.weight_0")[:, 4 : 4 + 6] = 0.0
    hidden, unheard = (machine(x, return_trace=True)[2].hidden for machine in (dnc, deaf))
    assert_same(hidden[0], unheard[0])
    assert float((hidden[1] - unheard[1]).abs().max()) > 1e-3


@few_machines
def test_lengths_and_padding(name):
    """Padded rows are single rows: outputs, zeros beyond them, the state after the last step; whatever the padding."""
    dnc = build(**MACHINES[name])
    x, lengths = inputs(5, 4), torch.tensor([5, 1, 4, 3])
    padding = torch.arange(5).unsqueeze(-1) >= lengths
    x = torch.where(padding.unsqueeze(-1), float("nan"), x).requires_grad_()
    y, state, trace = dnc(x, lengths=lengths, return_trace=True)
    for b, length in enumerate(lengths.tolist()):
        y_one, state_one = dnc(x[:length, b])
        assert_same(y[:length, b], y_one)
        assert not y[length:, b].any()
        assert not trace.usage[length:, b].any()
        assert_same(rows(state, b), state_one)
    *_, d_x = gradients(dnc, (y, *state), x)
    assert not d_x[padding].any()
    assert d_x[~padding].any()


def test_layouts():
    dnc, x = build(), inputs(5, 3)
    y, state = dnc(x)
    y_first, state_first = build(batch_first=True)(x.transpose(0, 1))
    assert torch.equal(y_first.transpose(0, 1), y)
    assert_same(state_first, state, 0)
    y_one, state_one = dnc(x[:, 1])
    assert_same(y_one, y[:, 1])
    assert_same(state_one, rows(state, 1))
    y_next, _ = dnc(x[:, 1], list(state_one))  # an unbatched state goes in as it came out, as any tuple or list
    assert_same(y_next, dnc(x, state)[0][:, 1])
    cell = build(kind=DNCCell)
    assert_same(cell(x[0, 1])[0], cell(x[0])[0][1])


def test_interleaved_sequences():
    dnc, x, z = build(), inputs(4, 2), inputs(4, 2, seed=8)
    (y_x, end_x), (y_z, end_z) = dnc(x), dnc(z)
    state_x = state_z = None
    for t in range(4):
        one, state_x = dnc(x[t : t + 1], state_x)
        other, state_z = dnc(z[t : t + 1], state_z)
        assert_same(one[0], y_x[t])
        assert_same(other[0], y_z[t])
    assert_same(state_x, end_x)
    assert_same(state_z, end_z)


@few_machines
def test_slots_per_row(name):
    """A row with n slots is the machine with a memory of n, gradients too; the rest of the memory stays as it was."""
    dnc = build(**MACHINES[name])
    x, slots = inputs(5, 3), torch.tensor([6, 1, 4])
    start = DNCState(*(part.detach() for part in dnc(inputs(3, 3, seed=9))[1]))
    y, state, trace = dnc(x, slots=slots, return_trace=True)
    cut = [dnc.with_memory(n) for n in slots.tolist()]
    own = dict(dnc.named_parameters())
    alone = [functional_call(cut[b], own, (x[:, b],)) for b in range(3)]
    for b, n in enumerate(slots.tolist()):
        assert_same(y[:, b], alone[b][0])
        assert_same(state.memory[b, :n], alone[b][1].memory)
        assert_same(state.link[b, :n, :n], alone[b][1].link)
        assert not trace.read.weightings[:, b, :, n:].any()
    together = gradients(dnc, [y[:, b] for b in range(3)])
    assert_same(together, gradients(dnc, [one for one, _ in alone]), 1e-11)
    _, after = dnc(x, start, slots=slots)
    for b, n in enumerate(slots.tolist()):
        for part, before in zip(after[:1] + after[3:4], start[:1] + start[3:4], strict=True):
            assert torch.equal(part[b, n:], before[b, n:])
        assert torch.equal(after.link[b, n:], start.link[b, n:])


def test_with_memory():
    dnc = build(batch_first=True).eval()
    twin = dnc.with_memory(31)
    assert twin.config == dataclasses.replace(dnc.config, memory_slots=31)
    assert (twin.batch_first, twin.training, twin.memory_slots) == (True, False, 31)
    assert twin.state_dict().keys() == dnc.state_dict().keys()
    assert twin(inputs(2, 3))[1].link.shape == (2, 31, 31)


@machines
def test_trace_is_what_happened(options):
    """The state of every step again, and the weightings that they were made of."""
    dnc, x = build(**options), inputs(4, 2)
    y, state, trace = dnc(x, return_trace=True)
    assert_same(y, dnc(x)[0])
    now = None
    for t in range(4):
        _, now = dnc(x[t : t + 1], now)
        for ours, there in (
            (trace.memory[t], now.memory),
            (trace.usage[t], now.usage),
            (trace.precedence[t], now.precedence),
            (trace.read.weightings[t], now.read_weightings),
            (trace.write.weightings[t].squeeze(-2), now.write_weighting),
            (trace.reads[t], now.reads),
        ):
            assert_same(ours, there)
    read, write = trace.read, trace.write
    mixed = read.modes.unsqueeze(-2) * torch.stack([read.backward, read.content, read.forward], dim=-1)
    assert_same(mixed.sum(dim=-1), read.weightings)
    g_a = write.allocation_gates.unsqueeze(-1)
    wanted = write.write_gates.unsqueeze(-1) * (g_a * write.allocation + (1 - g_a) * write.content)
    assert_same(wanted, write.weightings)
    assert_same(trace.hidden[-1], state.hidden[:, -1] if dnc.config.controller == "lstm" else trace.hidden[-1])
    assert not any(part.requires_grad for part in (trace.memory, *read, *write))


def test_a_trace_and_the_state_are_of_one_run():
    """Where rounding decides between equally used slots, a kernel and the reference write into different ones."""
    torch.manual_seed(0)
    dnc, x = DNC(5, 3, memory_slots=24, controller_size=20), torch.rand(60, 2, 5)
    assert dnc.backend_in_use() == "cpu"
    with torch.no_grad():
        _, state, trace = dnc(x, return_trace=True)
        _, half, first = dnc(x[:23], return_trace=True)
        _, end, second = dnc(x[23:], half, return_trace=True)
    assert torch.equal(trace.memory[-1], state.memory)
    assert torch.equal(trace.usage[-1], state.usage)
    for row in range(2):
        assert_same(links_after(trace.write.weightings[:, row, 0]), state.link[row], 1e-6)
    assert torch.equal(torch.cat([first.memory, second.memory]), trace.memory)
    assert torch.equal(end.link, state.link)


# --- populations ------------------------------------------------------------------------------------------------------


def test_a_seed_alone_and_among_others():
    """Costs and gradients, to the bit."""
    dnc = build(dtype=torch.float32)
    flat = dnc.initial_population([3, 7, 9])
    x, lengths = inputs(3, 4, 2, dtype=torch.float32), torch.tensor([[4, 2], [3, 3], [1, 2]])
    targets = (inputs(3, 4, 2, seed=4, dtype=torch.float32)[..., :2] > 0).float()
    mask = (torch.arange(4).unsqueeze(-1) < lengths.unsqueeze(-2)).float()
    together = dnc.loss_and_gradient(flat, x, targets, mask, lengths)
    for s in range(3):
        one = slice(s, s + 1)
        alone = dnc.loss_and_gradient(flat[one], x[one], targets[one], mask[one], lengths[one])
        assert torch.equal(alone[0], together[0][one])
        assert torch.equal(alone[1], together[1][one])
    assert bool((together[1] != 0).any())


def test_groups_of_seeds_compute_the_same(monkeypatch):
    """As a GPU computes them: 33 seeds are two groups, the second of one seed and copies of it."""
    dnc = build(controller_size=3, memory_slots=4)
    flat = dnc.initial_population(list(range(33)))
    x, lengths, slots = inputs(33, 3, 2), 1 + torch.arange(66).view(33, 2) % 3, 1 + torch.arange(66).view(33, 2) % 4
    targets = (inputs(33, 3, 2, seed=4)[..., :2] > 0).double()
    mask = (torch.arange(3).unsqueeze(-1) < lengths.unsqueeze(-2)).double()
    given = (flat, x, targets, mask, lengths)
    for used in (None, slots):
        dnc.choose_backend("reference")
        one_by_one = dnc.loss_and_gradient(*given, slots=used)[:2]
        logits = dnc.population(flat, x, lengths, used)
        with monkeypatch.context() as patch:
            patch.setattr(model, "_side_by_side", lambda flat: True)
            assert_same(dnc.loss_and_gradient(*given, slots=used)[:2], one_by_one)
            assert_same(dnc.population(flat, x, lengths, used), logits)


def test_vmap_over_machines():
    models = [build(seed=seed) for seed in range(2)]
    stacked, _ = stack_module_state(models)
    x = inputs(3, 2)
    y, state = vmap(lambda parameters: functional_call(models[0], parameters, (x,)))(stacked)
    for k, one in enumerate(models):
        y_one, state_one = one(x)
        assert_same(y[k], y_one)
        assert_same(rows(state, k), state_one)


# --- the module -------------------------------------------------------------------------------------------------------


def test_the_interface_has_the_size_of_the_paper():
    """W R + 3 W + 5 R + 3, for word size W and R read heads."""
    for width, heads in ((64, 4), (20, 1), (1, 3)):
        spec = DNCSpec(input_size=1, output_size=1, memory_width=width, read_heads=heads)
        assert spec.interface.size == width * heads + 3 * width + 5 * heads + 3
        assert DNCSpec.from_json(spec.to_json()) == spec


def test_export_of_the_cell():
    cell = build(kind=DNCCell)
    state = DNCState(*(part.detach() for part in cell(inputs(3))[1]))
    exported = torch.export.export(cell, (inputs(3), state)).module()
    y, new = exported(inputs(3, seed=1), state)
    expected_y, expected = cell(inputs(3, seed=1), state)
    assert torch.equal(y, expected_y)
    assert_same(tuple(new), tuple(expected), 0)


def test_extreme_parameters_stay_finite():
    """Saturated gates and strengths of 1e4 in float32, long enough that memory is full and freed."""
    for seed, options in enumerate(MACHINES.values()):
        dnc = build(seed=seed, dtype=torch.float32, **options)
        with torch.no_grad():
            dnc.get_parameter("interface.bias").sign_().mul_(1e4)
        y, state = dnc(1e4 * inputs(5, 2, dtype=torch.float32))
        slopes = torch.autograd.grad(y.sum() + sum(part.sum() for part in state), list(dnc.parameters()))
        for part in (y, *state, *slopes):
            assert torch.isfinite(part).all()


def test_autocast():
    """bfloat16 where autocast wants it: finite, and near the float32 result."""
    dnc, x = build(dtype=torch.float32, loud=1.0), inputs(10, 3, dtype=torch.float32)
    y, _ = dnc(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_cast, state = dnc(x)
    assert state.usage.dtype == torch.float32
    assert float((y_cast.float() - y).detach().abs().max()) < 0.003  # seen: 0.001


CHANGES = {
    "controller": "feedforward",
    "controller_size": 4,
    "controller_layers": 2,
    "read_heads": 1,
    "memory_slots": 5,
    "memory_width": 2,
    "strength": "softplus",
    "detached_usage": True,
    "masked_content": True,
    "deallocation": True,
    "link_sharpness": True,
    "forget_bias": -2.0,
    "strength_bias": 3.0,
    "free_gate_bias": -3.0,
    "content_mode_bias": 3.0,
    "allocation_gate_bias": 3.0,
    "write_gate_bias": 3.0,
}


def test_every_option_matters():
    """Of outputs, state and gradients at the very start of training something changes."""
    assert CHANGES.keys() == {field.name for field in dataclasses.fields(DNCConfig)} - {"input_size", "output_size"}

    def everything(**options):
        torch.manual_seed(0)
        dnc = DNC(4, 2, dtype=F64, **{**SMALL, **options})
        y, state = dnc(inputs(5, 2))
        return [y, *state, *torch.autograd.grad(y.sum(), list(dnc.parameters()))]

    usual = everything()
    for name, value in CHANGES.items():
        other = everything(**{name: value})
        shapes = [part.shape for part in usual] != [part.shape for part in other]
        assert shapes or any(not torch.equal(a, b) for a, b in zip(usual, other, strict=True)), name


def test_options_are_canonical():
    assert DNC.canonical_options({"forget_bias": 1}) == DNC.canonical_options({})
    assert DNC.canonical_options({})["controller"] == "lstm"
    assert DNC.options().keys() == DNC.canonical_options({}).keys()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"memory_slot": 8}, TypeError, "unknown option 'memory_slot'.*'memory_slots'"),
        ({"num_heads": 2}, TypeError, "unknown option 'num_heads'"),
        ({"strength": "exp"}, ValueError, "strength is 'exp'.*oneplus or softplus"),
        ({"read_heads": 0}, ValueError, "read_heads is 0.*at least 1"),
        ({"memory_slots": 2**16}, ValueError, r"make \d+ entries of a memory and its links"),
        ({"forget_bias": math.nan}, ValueError, "forget_bias is nan.*finite number"),
        ({"deallocation": 1}, ValueError, "deallocation is 1.*true or false"),
        ({"backend": "cuda"}, ValueError, "backend is 'cuda'"),
        ({"dtype": torch.float16}, ValueError, "dtype is torch.float16"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        DNC(4, 2, **options)


def test_bad_state_and_input():
    dnc, cell = build(), build(kind=DNCCell)
    with pytest.raises(ValueError, match=r"state\.memory has shape \(3, 6, 3\).*\(2, 6, 3\)"):
        dnc(inputs(3, 2), dnc.initial_state(3))
    with pytest.raises(ValueError, match=r"state\.link has shape \(2, 6, 5\)"):
        dnc(inputs(3, 2), dnc.initial_state(2)._replace(link=torch.zeros(2, 6, 5, dtype=F64)))
    with pytest.raises(TypeError, match=r"state is a tuple of 5.*memory, usage, link"):
        dnc(inputs(3, 2), tuple(dnc.initial_state(2))[:5])
    with pytest.raises(ValueError, match=r"slots run from 3 to 8.*between 1 and the tape's 6"):
        dnc(inputs(3, 2), slots=torch.tensor([8, 3]))
    with pytest.raises(ValueError, match=r"shape \(2, 5\).*\[batch, 4\]"):
        cell(torch.zeros(2, 5))
    for machine, x in ((dnc, torch.zeros(3, 2, 4)), (cell, torch.zeros(2, 4))):
        with pytest.raises(ValueError, match=r"the parameters are torch\.bfloat16.*torch\.autocast"):
            machine.to(torch.bfloat16)(x)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["gpu", "reference"])
def test_a_seed_alone_and_among_others_on_a_gpu(backend):
    """Costs, gradients and logits, to the bit, with other lengths, other numbers of seeds, and limited slots."""
    dnc = DNC(4, 2, memory_slots=19, memory_width=7, read_heads=3, controller_size=33, backend=backend).cuda()
    flat = dnc.initial_population(list(range(35))).cuda()
    lengths = 1 + torch.arange(70, device="cuda").view(35, 2) % 9
    slots = 1 + torch.arange(70, device="cuda").view(35, 2) % 19
    x = inputs(35, 9, 2, dtype=torch.float32).cuda()
    targets = (inputs(35, 9, 2, seed=4)[..., :2] > 0).float().cuda()
    mask = (torch.arange(9, device="cuda").unsqueeze(-1) < lengths.unsqueeze(-2)).float()
    for used in (None, slots):
        costs, gradient, _ = dnc.loss_and_gradient(flat, x, targets, mask, lengths, slots=used)
        logits = dnc.population(flat, x, lengths, used)
        for some in (slice(0, 1), slice(7, 8), slice(30, 35), slice(34, 35)):
            given = (flat[some], x[some], targets[some], mask[some], lengths[some])
            alone = dnc.loss_and_gradient(*given, slots=None if used is None else used[some])
            assert torch.equal(alone[0], costs[some])
            assert torch.equal(alone[1], gradient[some])
            few = None if used is None else used[some]
            assert torch.equal(dnc.population(flat[some], x[some], lengths[some], few), logits[some])


@pytest.mark.gpu
def test_a_gpu_computes_the_numbers_of_a_cpu():
    dnc = build(dtype=F64)
    flat = dnc.initial_population([1, 2])
    x, lengths = inputs(2, 4, 3), torch.tensor([[4, 2, 1], [3, 3, 2]])
    targets = (inputs(2, 4, 3, seed=4)[..., :2] > 0).double()
    mask = (torch.arange(4).unsqueeze(-1) < lengths.unsqueeze(-2)).double()
    here = dnc.loss_and_gradient(flat, x, targets, mask, lengths)
    there = dnc.cuda().loss_and_gradient(*(part.cuda() for part in (flat, x, targets, mask, lengths)))
    assert_same([part.cpu() for part in there[:2]], here[:2], 1e-12)


# --- in the laboratory ------------------------------------------------------------------------------------------------


def test_training_resumes(tmp_path):
    """A run that was stopped and goes on ends with the same bytes."""
    small = {"model.controller_size": 4, "model.memory_slots": 3, "model.memory_width": 2, "model.read_heads": 1}
    small |= {"task.length": 1, "evaluation.sizes": ({"length": 1},), "seeds": (7,)}
    experiment = tiny(model="dnc", episodes=200, slots=(2, 3), clip="norm", limit=1.0, **small)
    tapehead.train(experiment, tmp_path / "whole")
    train_some_blocks(experiment, tmp_path / "parts", 1)
    tapehead.train(experiment, tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    machine = tapehead.load(tmp_path / "whole", seed=7)
    assert (type(machine), machine.memory_slots) == (DNC, 3)


def test_the_commands_know_it():
    experiment = tapehead.general_experiment("graph", "dnc", {"model.controller": "feedforward"})
    assert experiment.model.options["controller"] == "feedforward"
    assert (experiment.optimiser.learning_rate, experiment.training.batch_size) == (3e-3, 16)
    with pytest.raises(ValueError, match=r"unknown option of dnc 'num_heads'"):
        tapehead.Model(name="dnc", options={"num_heads": 2})
    for file in sorted(EXAMPLES.glob("*.toml")):
        made = Experiment.from_plain(read_toml(file), str(file))
        assert made.recipe == file.stem
        made.build()


def test_a_bias_leaves_the_links_out():
    """At 30 the modes of the links get neither a weight nor a gradient that matters; the others do."""
    torch.manual_seed(0)
    dnc = DNC(4, 2, dtype=F64, **{**SMALL, "content_mode_bias": 30.0})
    y, _, trace = dnc(inputs(5, 2), return_trace=True)
    assert float(trace.read.modes[..., MODES.index("content")].min()) > 1 - 1e-11
    y.square().sum().backward()
    interface = dnc.config.spec.interface
    reading, _ = interface.heads(dnc.interface.bias.grad)
    assert float(reading[:, interface.read["modes"]].abs().max()) < 1e-11
    assert float(reading[:, interface.read["key"]].abs().max()) > 1e-6


def test_without_allocation_all_slots_stay_equal():
    """Writes by content alone treat the equal slots of an empty memory alike."""
    torch.manual_seed(0)
    dnc = DNC(4, 2, dtype=F64, **{**SMALL, "allocation_gate_bias": -1e4})
    memory = dnc(inputs(5, 2))[1].memory.detach()
    assert float(memory.abs().max()) > 1e-3
    assert torch.equal(memory, memory[:, :1].expand_as(memory))
