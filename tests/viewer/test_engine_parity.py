"""Every internal tensor of the page's machine equals PyTorch's, in a real Chromium.

The page computes in float64, so it is compared with the reference in float64: for every machine of the zoo, and for
random machines over all options. In float32 PyTorch differs from both by its own rounding, which a trained machine with
sharp weightings enlarges: up to 2e-4 in the zoo's sorter. Random machines with small weights stay within 1e-6.
"""

import dataclasses
import itertools
import random
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from engine_page import unpacked

from tapehead import zoo
from tapehead.experiment.config import Experiment
from tapehead.models.config import NTMConfig
from tapehead.models.lstm import PaperLSTM
from tapehead.models.ntm import NTM
from tapehead.streams import stream

FLOAT64 = 1e-11  # of max(1, |number|); seen: 3e-13, in other sequences 4e-12 (a weighting of the sorter)
FLOAT32 = 2e-6  # the same against float32; seen: 5e-7
MACHINES = 32

TRACE = """
const described = (trace) => {
  const found = {logits: trace.logits, reads: trace.reads, memory: trace.memory, erase: trace.erase, add: trace.add,
                 write_gates: trace.writeGates, hidden: trace.hidden};
  for (const kind of ["read", "write"]) {
    for (const name of ["keys", "strengths", "gates", "shifts", "sharpenings", "content", "interpolated", "shifted",
      "weightings"])
      found[`${kind}.${name}`] = trace[kind][name];
  }
  const final = trace.final;
  found.final = {data: [...final.memory, ...final.readWeightings, ...final.writeWeightings, ...final.reads,
    ...final.hidden, ...final.cell]};
  return Object.fromEntries(Object.entries(found).map(([name, {data}]) => [name, packed(data)]));
};
"""


def expected_trace(model, x, state=None):
    """PyTorch's trace of one sequence [T, I] by the names above."""
    with torch.no_grad():
        y, final, trace = model(x.to(next(model.parameters()).dtype).unsqueeze(1), state, return_trace=True)
    parts = {"logits": y} | {
        name: getattr(trace, name) for name in ("reads", "memory", "erase", "add", "write_gates", "hidden")
    }
    for kind in ("read", "write"):
        parts |= {f"{kind}.{name}": value for name, value in getattr(trace, kind)._asdict().items()}
    flat = {name: value.double().numpy().ravel() for name, value in parts.items()}
    return flat | {"final": np.concatenate([part.double().numpy().ravel() for part in final])}


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        numbers = unpacked(found[name])
        assert numbers.shape == right.shape, name
        if right.size:
            error = np.abs(numbers - right) / np.maximum(1, np.abs(right))
            assert error.max() < tolerance, f"{name}: {error.max()}"


# --- the zoo ---------------------------------------------------------------------------------------------------------

SIZES = {
    "copy": {"length": 20},
    "repeat-copy": {"length": 5, "repeats": 7},
    "associative-recall": {"items": 8},
    "ngrams": {"length": 60},
    "priority-sort": {"items": 20, "outputs": 16},
}


NTMS, LSTMS = ([name for name in zoo.names() if zoo.card(name).model["name"] == kind] for kind in ("ntm", "lstm"))


@pytest.mark.parametrize("name", LSTMS)
def test_lstms_of_the_zoo_equal_pytorch(engine, name):
    experiment = Experiment.from_plain(zoo.card(name).experiment)
    batch = experiment.task.sample(stream(7, "viewer", 5), batch_size=3, **SIZES[experiment.task.name])
    x = batch.inputs[: int(batch.lengths[2]), 2].double()
    found = engine(
        """const source = await api.openSource(), machine = await source.load(given.name);
        const {logits, hidden} = api.runLSTM(machine, {shape: [given.x.length, given.x[0].length],
          data: Float64Array.from(given.x.flat())});
        return {logits: packed(logits.data), hidden: packed(hidden.data)};""",
        {"name": name, "x": x.tolist()},
    )
    with torch.no_grad():
        logits, _, trace = zoo.load(name, backend="reference").double()(x.unsqueeze(1), return_trace=True)
    assert_close(found, {"logits": logits.numpy().ravel(), "hidden": trace.hidden.numpy().ravel()}, FLOAT64)


@pytest.mark.parametrize("name", NTMS)
def test_zoo_machines_equal_pytorch(engine, name):
    experiment = Experiment.from_plain(zoo.card(name).experiment)
    model = zoo.load(name, backend="reference")
    sizes = SIZES.get(experiment.task.name, {})
    batch = experiment.task.sample(stream(7, "viewer", 5), batch_size=3, **sizes)
    x = batch.inputs[: int(batch.lengths[2]), 2]
    found = engine(
        TRACE
        + """
        const source = await api.openSource();
        const machine = await source.load(given.name);
        const task = api.makeTask(machine.task);
        const sequence = task.encode(task.draw({seed: 7, name: "viewer", step: 5, row: 2}, given.sizes));
        const trace = api.run(machine, sequence.inputs);
        const {bits, wrong} = api.score(task, sequence, trace.logits);
        return {inputs: packed(sequence.inputs.data), trace: described(trace), bits, wrong,
          count: machine.parameterCount};
        """,
        {"name": name, "sizes": sizes},
    )
    assert np.array_equal(unpacked(found["inputs"]), x.double().numpy().ravel())
    assert found["count"] == zoo.card(name).parameters
    assert_close(found["trace"], expected_trace(model.double(), x), FLOAT64)
    with torch.no_grad():
        logits = model(x.double().unsqueeze(1))[0]
    scored = (logits, batch.targets[: len(x), 2:].double(), batch.mask[: len(x), 2:])
    assert found["bits"] == pytest.approx(float(experiment.task.loss.bits(*scored)), rel=1e-9, abs=1e-12)
    assert found["wrong"] == int(experiment.task.loss.wrong(*scored))


# --- random machines over the whole option space ---------------------------------------------------------------------

HINTS = get_type_hints(NTMConfig)
CHOICES = {name: get_args(hint) for name, hint in HINTS.items() if get_origin(hint) is Literal} | {
    "controller": ("lstm", "feedforward"),
    "write_gate": (False, True),
    "interface_clip": (None, 0.7),
    "controller_layers": (1, 2, 3),
    "read_heads": (1, 2, 3),
    "write_heads": (1, 2),
    "shift_range": (0, 1, 2, 3),
    "memory_slots": (1, 2, 5, 12),
}


def random_options(seed):
    """Options of a machine: every value of every choice comes within the first few seeds, and combinations vary."""
    draw = random.Random(seed)
    options = {name: values[(seed + draw.randrange(2) * len(values)) % len(values)] for name, values in CHOICES.items()}
    for name in draw.sample(sorted(CHOICES), 6):
        options[name] = draw.choice(CHOICES[name])
    options |= {"memory_width": draw.randint(7, 9) if options["initial_memory"] == "addresses" else draw.randint(1, 9)}
    options |= {"controller_size": draw.randint(1, 9), "initial_memory_value": 0.05, "initial_memory_scale": 0.3}
    if options["shift"] == "scalar":
        options["shift_range"] = max(1, options["shift_range"])
    return options


def is_mild(seed):
    """Whether a random machine has small weights, so that the rounding of float32 is not enlarged."""
    return seed % 3 == 0


def random_machine(seed):
    options = random_options(seed)
    draw = random.Random(seed + 1000)
    model = NTM(draw.randint(1, 4), draw.randint(1, 4), backend="reference", **options)
    generator = torch.Generator().manual_seed(seed)
    scale = 0.5 if is_mild(seed) else 2.0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    x = torch.randn(draw.randint(1, 9), model.input_size, generator=generator)
    return model.eval(), options, x


def plain_parameters(model):
    return {
        name: {"shape": list(value.shape), "data": value.detach().double().ravel().tolist()}
        for name, value in model.named_parameters()
    }


ASSEMBLE = """
const machineOf = ({model, parameters}) => load.assemble(
  {id: "random", title: "random", task: {name: "outside:Task"}, model, card: null},
  Object.fromEntries(Object.entries(parameters).map(([name, {shape, data}]) => [name, {shape,
    data: Float64Array.from(data)}])));
const inputsOf = ({x}) => ({shape: [x.length, x[0].length], data: Float64Array.from(x.flat())});
"""


def test_random_options_cover_every_value():
    drawn = [random_options(seed) for seed in range(MACHINES)]
    for name, values in CHOICES.items():
        missing = set(values) - {options[name] for options in drawn}
        assert not missing or (name == "shift_range" and missing == {0}), name
    pairs = itertools.combinations(["controller", "order", "shift", "add_activation", "write_gate", "output_from"], 2)
    for one, other in pairs:
        assert len({(options[one], options[other]) for options in drawn}) == len(CHOICES[one]) * len(CHOICES[other])


def test_random_machines_equal_pytorch(engine):
    """On their own tape and on a longer one; whole, in two calls and step by step, with the state passed on."""
    machines = [random_machine(seed) for seed in range(MACHINES)]
    given = [
        {
            "model": {"name": "ntm", **options},
            "parameters": plain_parameters(model),
            "x": x.double().tolist(),
            "slots": slots,
        }
        for model, options, x in machines
        for slots in (options["memory_slots"], options["memory_slots"] + 6)
    ]
    found = engine(
        TRACE
        + ASSEMBLE
        + """
        return given.map((one) => {
          const machine = machineOf(one), inputs = inputsOf(one), trace = api.run(machine, inputs, {slots: one.slots});
          const half = Math.ceil(inputs.shape[0] / 2), columns = inputs.shape[1];
          const cut = (from, to) => api.tensor([to - from, columns], inputs.data.slice(from * columns, to * columns));
          const first = api.run(machine, cut(0, half), {slots: one.slots});
          const second = api.run(machine, cut(half, inputs.shape[0]), {state: first.final});
          const single = [];
          for (let t = 0, state = api.initialState(machine, one.slots); t < inputs.shape[0]; t++) {
            const done = api.step(machine, state, api.row(inputs, t));
            single.push(...done.logits);
            state = done.state;
          }
          const split = [...first.logits.data, ...second.logits.data];
          return {trace: described(trace), split: packed(split), single: packed(single)};
        });
        """,
        given,
    )
    for seed, (model, options, x) in enumerate(machines):
        own, longer = found[2 * seed : 2 * seed + 2]
        if is_mild(seed):
            assert_close(own["trace"], expected_trace(model, x), FLOAT32)
        wide = NTM(model.input_size, model.output_size, backend="reference", dtype=torch.float64, **options)
        wide.load_state_dict(model.state_dict())
        assert_close(own["trace"], expected_trace(wide, x), FLOAT64)
        for parts in ("split", "single"):
            assert np.array_equal(unpacked(own[parts]), unpacked(own["trace"]["logits"]))
        assert_close(longer["trace"], expected_trace(wide.with_memory(options["memory_slots"] + 6), x), FLOAT64)


def test_lstms_equal_pytorch(engine):
    draws = [(1, 1, 1, 1), (3, 2, 5, 2), (9, 8, 7, 3), (2, 4, 6, 4)]
    models = [PaperLSTM(i, o, hidden_size=h, num_layers=layers, dtype=torch.float64) for i, o, h, layers in draws]
    given, expected = [], []
    for seed, model in enumerate(models):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            x = torch.randn(6, model.input_size, generator=generator, dtype=torch.float64)
            y, _, trace = model(x.unsqueeze(1), return_trace=True)
        options = {"name": "lstm", "hidden_size": model.hidden_size, "num_layers": model.num_layers}
        given.append({"model": options, "parameters": plain_parameters(model), "x": x.tolist()})
        expected.append({"logits": y.numpy().ravel(), "hidden": trace.hidden.numpy().ravel()})
    found = engine(
        ASSEMBLE
        + """return given.map((one) => {
          const {logits, hidden} = api.runLSTM(machineOf(one), inputsOf(one));
          return {logits: packed(logits.data), hidden: packed(hidden.data)};
        });""",
        given,
    )
    for one, right in zip(found, expected, strict=True):
        assert_close(one, right, FLOAT64)


def test_defaults_are_those_of_python(engine):
    """A card names the options that differ from the defaults, so the page must have the same ones."""
    fields = {field.name: field.default for field in dataclasses.fields(NTMConfig)}
    ours = {name: value for name, value in fields.items() if name not in ("input_size", "output_size")}
    assert engine("return config.NTM_DEFAULTS") == ours
    assert engine("return config.LSTM_DEFAULTS") == {"hidden_size": 256, "num_layers": 3, "forget_bias": 1}
    assert set(engine("return config.LSTM_DEFAULTS")) == set(PaperLSTM.options()) & {
        "hidden_size",
        "num_layers",
        "forget_bias",
    }
