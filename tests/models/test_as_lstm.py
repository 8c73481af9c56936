"""`NTM` where `nn.LSTM` was: packed sequences, resets, states, compilation, `torch.func`, and what an editor shows."""

import dataclasses
import inspect

import pytest
import torch
from test_ntm import MACHINES, assert_same, build, gradients, inputs
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import tapehead
from tapehead.models.cell import NTMCell
from tapehead.models.config import NTMConfig
from tapehead.models.dnc.config import DNCConfig
from tapehead.models.lstm import PaperLSTM
from tapehead.models.machine import NTMState
from tapehead.models.ntm import NTM

F64 = torch.float64
backends = pytest.mark.parametrize("backend", ["reference", "cpu"])
LENGTHS = torch.tensor([3, 6, 1, 6])

# --- packed sequences ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "enforce_sorted"), [("cpu", False), ("cpu", True), ("reference", False)])
def test_packed_is_padded(backend, enforce_sorted):
    """To the bit, state and all, whether or not the rows had to be sorted."""
    ntm = build(backend)
    lengths = LENGTHS.sort(descending=True).values if enforce_sorted else LENGTHS
    x, state = inputs(6, 4), ntm(inputs(2, 4, seed=3))[1]
    expected, final = ntm(x, state, lengths)
    given = pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    y, after, trace = ntm(given, state, return_trace=True)
    assert isinstance(y, PackedSequence)
    assert torch.equal(y.data, pack_padded_sequence(expected, lengths, enforce_sorted=enforce_sorted).data)
    assert [y.batch_sizes is given.batch_sizes, y.sorted_indices is given.sorted_indices] == [True, True]
    assert_same(after, final, 0)
    assert trace.reads.shape[:2] == (6, 4)


def test_packed_as_lstm_has_it():
    """The same calls, the same shapes, the same order of rows as `nn.LSTM`, `batch_first` or not."""
    rows = [inputs(n, 1)[:, 0] for n in (2, 5, 3)]
    packed = pack_sequence(rows, enforce_sorted=False)
    for batch_first in (False, True):
        theirs, (hidden, _) = torch.nn.LSTM(4, 2, batch_first=batch_first, dtype=F64)(packed)
        y, state = build(batch_first=batch_first)(packed)
        assert y.data.shape == theirs.data.shape
        assert torch.equal(y.sorted_indices, theirs.sorted_indices)
        assert len(state.memory) == hidden.shape[1] == 3
        assert_same(state.memory[1:2], build()(rows[1].unsqueeze(1))[1].memory)


def test_packed_gradients():
    ntm = build("cpu")
    x = inputs(6, 4).requires_grad_()
    y, _ = ntm(pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
    expected, _ = ntm(x, lengths=LENGTHS)
    assert_same(
        torch.autograd.grad(y.data.square().sum(), [x, *ntm.parameters()]),
        torch.autograd.grad(expected.square().sum(), [x, *ntm.parameters()]),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lengths": LENGTHS}, "lengths is given with a PackedSequence"),
        ({"reset": torch.zeros(6, 4)}, "reset is given with a PackedSequence"),
        ({"state": build().initial_state(3)}, r"state\.memory has shape \(3, 7, 3\).*\(4, 7, 3\)"),
    ],
)
def test_packed_refusals(given, message):
    with pytest.raises(ValueError, match=message):
        build()(pack_padded_sequence(inputs(6, 4), LENGTHS, enforce_sorted=False), **given)
    with pytest.raises(ValueError, match=r"packs steps of shape \(5,\).*\(4,\)"):
        build()(pack_padded_sequence(torch.zeros(6, 4, 5), LENGTHS, enforce_sorted=False))


# --- resets ----------------------------------------------------------------------------------------------------------


def stepped(cell, x, state, lengths, reset):
    """The meaning of a mask, step by step: the start where it is true, nothing beyond a row's length."""
    start, outputs = cell.initial_state(x.shape[1]), []
    state = start if state is None else state
    for t in range(len(x)):
        inside = t < lengths
        state = NTMState(*(pick(reset[t] & inside, new, old) for new, old in zip(start, state, strict=True)))
        y, after = cell(x[t], state)
        outputs.append(pick(inside, y, torch.zeros_like(y)))
        state = NTMState(*(pick(inside, new, old) for new, old in zip(after, state, strict=True)))
    return torch.stack(outputs), state


def pick(chosen, yes, no):
    return torch.where(chosen.reshape(-1, *(1,) * (yes.ndim - 1)), yes, no)


LEARNED = {name: "learned" for name in ("initial_memory", "initial_weightings", "initial_reads", "initial_controller")}
MASKS = {
    "some": lambda t, b: torch.rand(t, b, generator=torch.Generator().manual_seed(3)) < 0.3,
    "all at once": lambda t, b: (torch.arange(t) == 2).unsqueeze(1).expand(t, b),
    "every step of all rows but one": lambda t, b: (torch.arange(b) > 0).expand(t, b),
    "none": lambda t, b: torch.zeros(t, b, dtype=torch.bool),
}


@backends
@pytest.mark.parametrize(
    ("mask", "carried", "options"),
    [
        ("some", True, {}),
        ("some", False, {"controller": "feedforward", **LEARNED}),
        ("all at once", True, LEARNED),
        ("every step of all rows but one", True, {}),
        ("every step of all rows but one", False, LEARNED),
    ],
)
def test_reset_is_the_start_where_the_mask_says(backend, mask, carried, options):
    """Outputs, state and every gradient, those of the start and of the state given included; errors seen: 2e-14."""
    ntm, cell = build(backend, **options), build(kind=NTMCell, **options)
    x, lengths, reset = inputs(5, 4).requires_grad_(), torch.tensor([5, 4, 1, 5]), MASKS[mask](5, 4)
    state = NTMState(*(part.detach().requires_grad_() for part in ntm(inputs(2, 4, seed=5))[1])) if carried else None
    y, final = ntm(x, state, lengths, reset=reset)
    expected_y, expected = stepped(cell, x, state, lengths, reset)
    assert_same((y, final), (expected_y, expected))
    also = [x, *(state or ())]
    assert_same(gradients(ntm, (y, *final), *also), gradients(cell, (expected_y, *expected), *also))


@backends
def test_reset_in_every_layout(backend):
    reset, x = MASKS["some"](9, 4), inputs(9, 4)
    y, state, trace = build(backend)(x, reset=reset, return_trace=True)
    first, same, _ = build(backend, batch_first=True)(x.transpose(0, 1), reset=reset.T.int(), return_trace=True)
    assert_same((first.transpose(0, 1), same), (y, state), 0)
    alone, one, its_trace = build(backend)(x[:, 2], reset=reset[:, 2], return_trace=True)
    assert_same((alone, one), (y[:, 2], NTMState(*(part[2] for part in state))))
    assert_same(its_trace, tapehead.Trace(*cut_trace(trace, 2)))
    assert_same(trace.memory[-1], state.memory, 0)


def cut_trace(trace, row):
    return [part[:, row] if isinstance(part, torch.Tensor) else type(part)(*cut_trace(part, row)) for part in trace]


def test_reset_with_slots():
    ntm, reset = build("cpu", initial_weightings="uniform"), MASKS["some"](9, 4)
    slots, x = torch.tensor([7, 3, 5, 7]), inputs(9, 4)
    y, _ = ntm(x, slots=slots, reset=reset)
    for b, count in enumerate(slots.tolist()):
        small = build("cpu", initial_weightings="uniform", memory_slots=count)
        assert_same(y[:, b], small(x[:, b], reset=reset[:, b])[0])


def test_other_models_reset_too():
    lstm = PaperLSTM(4, 2, hidden_size=3, num_layers=2).double()
    x, reset = inputs(6, 3), MASKS["all at once"](6, 3)
    y, state = lstm(x, reset=reset)
    parts = lstm(x[:2]), lstm(x[2:])
    assert_same(y, torch.cat([part[0] for part in parts]))
    assert_same(state, parts[1][1])


def test_a_mask_without_resets_is_the_plain_call():
    ntm, x = build("cpu"), inputs(6, 3)
    assert_same(ntm(x, reset=MASKS["none"](6, 3)), ntm(x), 0)


def test_reset_pads_little(monkeypatch):
    """One long row beside rows that reset at every step: calls by length, and not one of the longest length for all."""
    from tapehead.models import resets

    ntm, seen = build("cpu"), []
    monkeypatch.setattr(ntm, "_run", lambda x, *rest: seen.append(x.shape[:2]) or NTM._run(ntm, x, *rest))
    ntm(inputs(64, 4), reset=MASKS["every step of all rows but one"](64, 4))
    assert sum(steps * rows for steps, rows in seen) <= resets.MOST_PADDING * 64 * 4
    assert seen == [(1, 192), (64, 1)]


@pytest.mark.parametrize(
    ("options", "reset", "message"),
    [
        ({}, torch.zeros(4, 6, dtype=torch.bool), r"reset has shape \(4, 6\).*\[time, batch\], \(6, 4\)"),
        ({"batch_first": True}, torch.zeros(4, 6, dtype=torch.bool), r"reset has shape \(4, 6\).*\[batch, time\]"),
        ({}, torch.zeros(6, 4), "reset is torch.float32.*bools"),
        ({}, [[True]], "reset is of type list"),
    ],
)
def test_reset_refusals(options, reset, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(**options)(inputs(6, 4), reset=reset)
    ntm, x, short = build("cpu"), inputs(6, 3), build(memory_slots=5).initial_state(3)
    with pytest.raises(ValueError, match=r"state of this model's own sizes"):
        ntm(x, short, reset=MASKS["all at once"](6, 3))
    with pytest.raises(ValueError, match="reset is inside vmap"):
        torch.func.vmap(lambda mask: ntm(x, reset=mask)[0])(torch.ones(2, 6, 3, dtype=torch.bool))


# --- states ----------------------------------------------------------------------------------------------------------


def test_a_state_is_detached_and_moved():
    """Truncated backpropagation through time: the same outputs, and no gradient across the cut."""
    ntm, x = build("cpu"), inputs(6, 2).requires_grad_()
    y, state = ntm(x[:3])
    cut = state.detach()
    assert isinstance(cut, NTMState)
    assert not any(part.requires_grad for part in cut)
    after, _ = ntm(x[3:], cut)
    assert_same(torch.cat([y, after]), ntm(x)[0], 0)
    (d_x,) = torch.autograd.grad(after.sum(), x)
    assert not d_x[:3].any()
    assert d_x[3:].all()
    assert {part.dtype for part in state.to(torch.float32)} == {torch.float32}
    assert {part.device.type for part in state.to("meta")} == {"meta"}


@pytest.mark.parametrize("model", [tapehead.DNC(4, 2, memory_slots=5), tapehead.PaperLSTM(4, 2, hidden_size=3)])
def test_states_of_other_models_too(model):
    y, state = model(torch.ones(3, 2, 4))
    cut = state.detach()
    assert type(cut) is type(state)
    assert not any(part.requires_grad for part in cut)
    assert {part.device.type for part in state.to("meta")} == {"meta"}
    assert model(torch.ones(3, 2, 4), cut)[0].shape == y.shape


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build(batch_first=True)(torch.zeros(3, 6, 5)), r"\[batch, time, 4\], or \[time, 4\]"),
        (lambda: build()(torch.zeros(3, 6, 5)), r"\[time, batch, 4\], or \[time, 4\]"),
        (lambda: build()(torch.zeros(3, 4), build().initial_state(2)), r"\(2, 7, 3\).*needs \(slots, 3\)"),
        (lambda: build()(torch.zeros(3, 4), [p[0, :1] for p in build().initial_state(1)]), r"\(1, 7\).*\(1, 1\)"),
        (lambda: build(kind=NTMCell)(torch.zeros(4), build().initial_state(2)), r"needs \(slots, 3\)"),
        (lambda: build()(torch.zeros(3, 4), lengths=torch.tensor([1, 2])), "there is one sequence"),
        (lambda: NTM(4, 2, hidden_size=3), "unknown option 'hidden_size': here it is controller_size"),
        (lambda: NTMCell(4, 2, num_layers=3), "unknown option 'num_layers': here it is controller_layers"),
        (lambda: tapehead.DNC(4, 2, hidden_size=3), "unknown option 'hidden_size': here it is controller_size"),
        (lambda: NTM(4, 2, N=3), "unknown option 'N': here it is memory_slots"),
        (lambda: NTM(4, 2, dropout=0.1), "unknown option 'dropout': a machine has none"),
        (lambda: NTM(4, 2, memory_slot=3), "Did you mean 'memory_slots'"),
    ],
)
def test_mistakes_are_answered_in_the_words_of_the_call(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@backends
def test_one_sequence_has_one_length(backend):
    ntm, x = build(backend), inputs(5, 1)[:, 0]
    assert_same(ntm(x, lengths=torch.tensor(3)), ntm(x, lengths=torch.tensor([3])), 0)
    assert_same(ntm(x, lengths=3)[1], ntm(x[:3])[1])


# --- half precision --------------------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("reads", ["zeros", "memory"])
def test_autocast_has_no_effect(backend, reads):
    """Addressing needs the parameters' precision, so a machine computes in it, backward too, as without autocast."""
    ntm, cell = (build(backend, kind=kind, dtype=torch.float32, initial_reads=reads) for kind in (NTM, NTMCell))
    x = inputs(8, 3, dtype=torch.float32)
    expected, step = ntm(x), cell(x[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ntm(x)
        assert_same(cell(x[0]), step, 0)
    assert_same(found, expected, 0)
    grads = [torch.autograd.grad(y.square().sum(), list(ntm.parameters())) for y, _ in (found, expected)]
    assert_same(*grads, 0)


# --- torch.compile and torch.func ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, LEARNED, {"initial_memory": "random", "initial_weightings": "uniform"}])
def test_compiled_in_one_graph(options):
    """Also with a state and lengths, and the gradients; wrong lengths are refused when the graph runs."""
    torch._dynamo.reset()
    ntm = build("cpu", **options)
    compiled = torch.compile(ntm, backend="aot_eager", fullgraph=True)
    x = inputs(4, 3)
    y, state = compiled(x)
    assert_same((y, state), ntm(x), 0)
    given = (x, NTMState(*(part.detach() for part in state)), torch.tensor([4, 1, 2]))
    assert_same(compiled(*given), ntm(*given), 0)
    assert_same(gradients(ntm, compiled(*given)[:1]), gradients(ntm, ntm(*given)[:1]))
    with pytest.raises(ValueError, match="lengths holds 5"):
        compiled(*given[:2], torch.tensor([4, 5, 2]))
    slots = torch.tensor([7, 2, 4])
    assert_same(compiled(x, slots=slots), ntm(x, slots=slots), 0)


@torch.no_grad()
def test_compiled_with_a_graph_break():
    """Traces, resets and the reference are run as they are."""
    torch._dynamo.reset()
    ntm, x, reset = build("cpu"), inputs(4, 3), MASKS["all at once"](4, 3)
    compiled = torch.compile(ntm, backend="eager")
    assert_same(compiled(x, return_trace=True), ntm(x, return_trace=True), 0)
    assert_same(compiled(x, reset=reset), ntm(x, reset=reset), 0)
    ntm.choose_backend("reference")
    assert_same(compiled(x), ntm(x), 0)


def test_what_cannot_be_exported():
    ntm, x = build("reference"), inputs(2, 2)
    for given, message in (({"return_trace": True}, "a trace"), ({"slots": torch.tensor([1, 2])}, "slots on the")):
        with pytest.raises(Exception, match=f"{message}.* cannot be exported"):
            torch.export.export(ntm, (x,), given)


@backends
def test_gradients_of_each_sample_with_its_own_length(backend):
    ntm, lengths = build(backend), torch.tensor([[3, 2], [1, 3]])
    parameters, x = dict(ntm.named_parameters()), inputs(2, 3, 2)

    def cost(parameters, x, lengths):
        return torch.func.functional_call(ntm, parameters, (x, None, lengths))[0].square().sum()

    each = torch.func.vmap(torch.func.grad(cost), (None, 0, 0))(parameters, x, lengths)
    for k in range(2):
        alone = torch.func.grad(cost)(parameters, x[k], lengths[k])
        assert_same([each[name][k] for name in parameters], [alone[name] for name in parameters])


# --- what an editor shows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "config"),
    [(NTM, NTMConfig), (NTMCell, NTMConfig), (tapehead.DNC, DNCConfig), (tapehead.DNCCell, DNCConfig)],
)
def test_every_option_is_a_named_parameter_with_its_default(kind, config):
    shown = inspect.signature(kind).parameters
    for field in dataclasses.fields(config):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        assert shown[field.name].default == default, field.name
    rest = {"batch_first", "backend", "device", "dtype", "unknown"}
    assert set(shown) - {field.name for field in dataclasses.fields(config)} <= rest


def test_help_has_the_text_of_every_field():
    words = inspect.getdoc(tapehead.NTMConfig)
    for field in dataclasses.fields(NTMConfig):
        assert f"    {field.name}: " in words
    assert "order: Order = 'write_then_read'\n        write_then_read: reads see what this step wrote;" in words


def test_a_printed_machine_has_its_sizes():
    shown = repr(NTM(9, 8, forget_bias=-2.0))
    for words in ("input_size=9, output_size=8", "controller_size=100", "memory_slots=128, memory_width=20"):
        assert words in " ".join(shown.split())
    assert "weight_0=[400, 129]" in shown
    assert "read_heads=1, write_heads=1, forget_bias=-2.0" in " ".join(shown.split())
    assert f"{sum(p.numel() for p in NTM(9, 8).parameters()):,} parameters" in shown


def test_a_printed_lstm_has_its_sizes():
    shown = repr(tapehead.PaperLSTM(9, 8, hidden_size=5))
    assert shown == "PaperLSTM(input_size=9, output_size=8, hidden_size=5, num_layers=3)"


def test_every_machine_is_printed():
    for options in MACHINES.values():
        assert "parameters" in repr(build(**options))
