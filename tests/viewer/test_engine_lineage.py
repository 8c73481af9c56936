"""Lineage against the formula in numpy, and the program of a run."""

import numpy as np
import pytest
from engine_page import unpacked
from test_engine_parity import ASSEMBLE, plain_parameters, random_machine

LEFT_OUT = 12 * 1e-6  # slots of these machines times the weight that the map leaves out
RUN = (
    ASSEMBLE
    + """
const machine = machineOf(given), inputs = inputsOf(given);
const trace = api.run(machine, inputs, {interventions: given.interventions});
"""
)
PARTS = """
const parts = {reading: trace.read.weightings, written: trace.written, erase: trace.erase, add: trace.add,
  reads: trace.reads, before: trace.memoryBefore};
return {
  ...Object.fromEntries(Object.entries(parts).map(([name, {shape, data}]) => [name, {shape, data: packed(data)}])),
  initial: packed(trace.initial.memory),
  map: packed(api.lineage(machine, trace).map.data), rest: packed(api.lineage(machine, trace).rest),
    edited: packed(api.lineage(machine, trace).edited),
  first: packed(api.lineage(machine, trace, 0, 0).map.data),
  sums: Array.from({length: trace.steps}, (_, t) => {
    const sum = new Float64Array(machine.config.memory_width);
    for (const {vector} of api.origins(machine, trace, t, 0)) vector.forEach((value, j) => (sum[j] += value));
    return [...sum];
  }),
};
"""


def direct(parts, order):
    """L(t, u) for every read head, write head and column, and the same for the initial memory, from the formula."""
    w_r, w_w, erase = parts["reading"], parts["written"], parts["erase"]
    steps, slots, width = len(w_r), w_r.shape[2], erase.shape[2]
    kept = np.prod(1 - w_w[..., None] * erase[:, :, None, :], axis=1)  # [T, N, M], over the write heads
    shares = np.zeros((steps, steps, w_r.shape[1], w_w.shape[1], width))
    rest = np.zeros((steps, w_r.shape[1], width))
    for t in range(steps):
        end = t + 1 if order == "write_then_read" else t
        for u in range(end):
            left = np.prod(kept[u + 1 : end], axis=0)  # [N, M]; ones where nothing comes after
            shares[t, u] = np.einsum("ri,wi,im->rwm", w_r[t], w_w[u], left.reshape(slots, width))
        rest[t] = w_r[t] @ np.prod(kept[:end], axis=0).reshape(slots, width)
    return shares, rest


def run_parts(engine, seed, interventions=()):
    model, options, x = random_machine(seed)
    given = {"model": {"name": "ntm", **options}, "parameters": plain_parameters(model), "x": x.double().tolist()}
    found = engine(RUN + PARTS, given | {"interventions": list(interventions)})
    shaped = {
        name: unpacked(value["data"]).reshape(value["shape"])
        for name, value in found.items()
        if isinstance(value, dict)
    }
    return found, shaped, options


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 7, 11, 14])
def test_lineage_is_the_formula(engine, seed):
    found, parts, options = run_parts(engine, seed)
    shares, rest = direct(parts, options["order"])
    steps = len(rest)
    assert np.allclose(
        unpacked(found["map"]).reshape(steps, steps), shares.mean(axis=-1).sum(axis=(2, 3)), atol=LEFT_OUT
    )
    assert np.allclose(unpacked(found["first"]).reshape(steps, steps), shares[:, :, 0, 0].mean(axis=-1), atol=LEFT_OUT)
    assert np.allclose(unpacked(found["rest"]), rest.mean(axis=-1).sum(axis=1), atol=LEFT_OUT)
    assert not unpacked(found["edited"]).any()
    initial = unpacked(found["initial"]).reshape(parts["before"].shape[1:])
    if options["initial_memory"] in ("constant", "learned"):  # one row for all slots: the read follows from the shares
        read = np.einsum("turwm,uwm->trm", shares, parts["add"]) + rest * initial[0]
        assert np.allclose(read, parts["reads"], atol=1e-9)


@pytest.mark.parametrize("seed", range(0, 16, 3))
@pytest.mark.parametrize("edited", [False, True])
def test_origins_add_up_to_the_read(engine, seed, edited):
    """Also where interventions set, moved and muted."""
    changes = [
        {"type": "set", "at": 2, "slot": 0, "column": None, "value": 0.7},
        {"type": "scramble", "at": 3, "from": 0, "to": 11, "seed": 5},
        {"type": "set", "at": 4, "slot": 1, "column": 0, "value": -1.5},
        {"type": "mute", "from": 1, "to": 1, "head": {"kind": "write", "index": 0}},
    ]
    found, parts, _ = run_parts(engine, seed, changes if edited else ())
    assert np.allclose(np.array(found["sums"]), parts["reads"][:, 0], atol=1e-12)


def test_the_copy_machine_has_the_papers_program(engine):
    """Write, one slot further each time; back to the start; read, one slot further each time."""
    lines = engine(
        """const source = await api.openSource();
        const machine = await source.load("copy-ntm-lstm"), task = api.makeTask(machine.task);
        const sequence = task.encode(task.draw({seed: 0, name: "viewer", step: 0, row: 0}, {length: 20}));
        return api.program(machine, api.run(machine, sequence.inputs));"""
    )
    write = [line for line in lines if line["head"]["kind"] == "write"]
    read = [line for line in lines if line["head"]["kind"] == "read"]
    assert write[0]["text"].startswith("WRITE +1 x")
    assert write[0]["count"] >= 20
    assert read[-1]["text"].startswith("READ +1 x")
    assert read[-1]["count"] >= 20
    for head in (write, read):  # every step is in one line
        assert [line["from"] for line in head] == [0] + [line["to"] + 1 for line in head[:-1]]
        assert head[-1]["to"] == 40
        assert all(line["count"] == line["to"] - line["from"] + 1 for line in head)


def test_focus_goes_round_the_tape(engine):
    found = engine("return [[0, 0, 1, 0], [0.5, 0, 0, 0, 0, 0.5], [0.25, 0.25, 0.25, 0.25]].map((w) => api.focus(w))")
    assert found[0] == {"slot": 2, "weight": 1, "mean": 2, "spread": 0}
    assert found[1] == {"slot": 0, "weight": 0.5, "mean": 5.5, "spread": 0.5}
    assert found[2]["spread"] > 1
