"""What interventions do, how the URL holds them, and which are refused."""

import numpy as np
import pytest
from engine_page import unpacked

LOADED = """
const source = await api.openSource();
const machine = await source.load("copy-ntm-lstm"), task = api.makeTask(machine.task);
const sequence = task.encode(task.draw({seed: 0, name: "viewer", step: 0, row: 0}, {length: 8}));
const runWith = (interventions) => api.run(machine, sequence.inputs, {interventions});
const wrongWith = (interventions) => api.score(task, sequence, runWith(interventions).logits).wrong;
"""
WRITE, READ = {"kind": "write", "index": 0}, {"kind": "read", "index": 0}

EXAMPLES = [
    ({"type": "pin", "from": 3, "to": None, "head": WRITE, "what": "gate", "value": 1}, "pin.w0.gate.3-.1"),
    ({"type": "pin", "from": 3, "to": 9, "head": READ, "what": "shift", "value": -0.25}, "pin.r0.shift.3-9.-0_25"),
    ({"type": "pin", "from": 0, "to": 0, "head": READ, "what": "strength", "value": 1e-7}, "pin.r0.strength.0-0.1e-7"),
    (
        {"type": "pin", "from": 0, "to": None, "head": WRITE, "what": "sharpening", "value": 12.5},
        "pin.w0.sharpening.0-.12_5",
    ),
    ({"type": "mute", "from": 2, "to": None, "head": WRITE}, "mute.w0.2-"),
    ({"type": "mute", "from": 0, "to": 4, "head": READ}, "mute.r0.0-4"),
    ({"type": "set", "at": 5, "slot": 3, "column": None, "value": 0}, "set.5.3.*.0"),
    ({"type": "set", "at": 5, "slot": 3, "column": 7, "value": -2.5}, "set.5.3.7.-2_5"),
    ({"type": "move", "at": 14, "head": WRITE, "by": -1}, "move.w0.14.-1"),
    ({"type": "scramble", "at": 9, "from": 0, "to": 15, "seed": 7}, "scramble.9.0-15.7"),
]


def test_the_url_holds_them(engine):
    given = [one for one, _ in EXAMPLES]
    texts = engine("return given.map((one) => api.encodeInterventions([one]))", given)
    assert texts == [text for _, text in EXAMPLES]
    assert engine("return api.decodeInterventions(given)", "~".join(texts)) == given
    assert engine("return api.decodeInterventions('')") == []
    said = engine("return given.map(api.describeIntervention)", given)
    assert said[0] == "write head 1: gate held at 1 from step 3 on"
    assert len(set(said)) == len(said)


def test_held_values_are_held_and_others_are_not(engine):
    found = engine(
        LOADED
        + """
        const trace = runWith(given), free = runWith([]);
        return {gates: [...trace.write.gates.data], free: [...free.write.gates.data],
          shifts: packed(trace.read.shifts.data),
                strengths: [...trace.read.strengths.data], sharpenings: [...trace.write.sharpenings.data]};""",
        [
            {"type": "pin", "from": 3, "to": 5, "head": WRITE, "what": "gate", "value": 1},
            {"type": "pin", "from": 2, "to": None, "head": READ, "what": "shift", "value": 0.25},
            {"type": "pin", "from": 4, "to": 4, "head": READ, "what": "strength", "value": 7},
            {"type": "pin", "from": 16, "to": None, "head": WRITE, "what": "sharpening", "value": 3},
        ],
    )
    assert found["gates"][3:6] == [1, 1, 1]
    assert found["gates"][:2] == found["free"][:2]  # the read head is held from step 2 on
    assert all(gate != 1 for gate in found["gates"][6:])
    shifts = unpacked(found["shifts"]).reshape(17, 3)
    assert np.array_equal(shifts[2:], [[0, 0.75, 0.25]] * 15)
    assert found["strengths"][4] == 7 != found["strengths"][5]
    assert found["sharpenings"][-1] == 3 != found["sharpenings"][-2]


def test_muted_heads_do_nothing(engine):
    found = engine(
        LOADED
        + """
        const written = runWith([given.write]), read = runWith([given.read]);
        return {same: [2, 5].map((t) => api.row(written.memory, t).every((value,
          i) => value === api.row(written.memoryBefore, t)[i])),
                reads: [...api.row(read.reads, 3), ...api.row(read.reads, 4)], later: api.row(read.reads,
                  16).some((value) => value !== 0),
                wrong: [wrongWith([]), wrongWith([given.write]), wrongWith([{...given.read, from: 9, to: null}])]};""",
        {
            "write": {"type": "mute", "from": 2, "to": 5, "head": WRITE},
            "read": {"type": "mute", "from": 3, "to": 4, "head": READ},
        },
    )
    assert found["same"] == [True, True]
    assert found["reads"] == [0] * 40
    assert found["later"]
    right, without_write, without_read = found["wrong"]
    assert right == 0
    assert without_write > 5
    assert without_read > 10


def test_edited_memory_is_what_the_step_finds(engine):
    """Set cells have their value, a scrambled tape has the same rows, and the answers that need them are wrong."""
    found = engine(
        LOADED
        + """
        const set = runWith([{type: "set", at: 9, slot: 3, column: 7, value: -2.5}]);
        const scramble = {type: "scramble", at: 9, from: 0, to: 9, seed: 3};
        const [mixed, again] = [runWith([scramble]), runWith([scramble])],
          rows = (memory) => Array.from({length: 10}, (_, i) => memory.slice(i * 20, i * 20 + 20).join());
        const before = rows(api.row(mixed.memory, 8)), after = rows(api.row(mixed.memoryBefore, 9));
        return {cell: api.row(set.memoryBefore, 9)[3 * 20 + 7], neighbour: api.row(set.memoryBefore,
          9)[3 * 20 + 6] === api.row(set.memory, 8)[3 * 20 + 6],
                moved: before.join() !== after.join(), same: before.sort().join() === after.sort().join(),
                repeats: mixed.logits.data.every((value, i) => value === again.logits.data[i]),
                  wrong: wrongWith([scramble]),
                outside: wrongWith([{type: "set", at: 3, slot: 4000, column: null, value: 9}])};"""
    )
    wrong = found.pop("wrong")
    assert found == {"cell": -2.5, "neighbour": True, "moved": True, "same": True, "repeats": True, "outside": 0}
    assert wrong > 5


def test_a_moved_head_comes_from_elsewhere(engine):
    """The answers after the move are those of the neighbour, one step later; round the end of the tape, too."""
    found = engine(
        LOADED
        + """
        const move = (by) => runWith([{type: "move", at: 10, head: {kind: "read", index: 0}, by}]);
        const [free, moved, round] = [runWith([]), move(1), move(-128 * 3 + 1)];
        const before = [...api.row(moved.read.previous, 10)], was = [...api.row(free.read.weightings, 9)];
        return {rolled: before.every((value, i) => value === was[(i + 127) % 128]),
                kept: [...api.row(moved.read.weightings, 9)].join() === was.join(),
                same: [...round.logits.data].join() === [...moved.logits.data].join(),
                wrong: api.score(task, sequence, moved.logits).wrong};"""
    )
    assert found.pop("wrong") > 3
    assert found == {"rolled": True, "kept": True, "same": True}


def test_a_run_goes_on_from_an_earlier_one(engine):
    """The same numbers as a run from the start, for another input, another intervention, and a longer sequence."""
    found = engine(
        LOADED
        + """
        const equal = (a, b) => ["logits", "memory", "memoryBefore", "reads", "hidden", "written"].every((name) =>
            a[name].data.every((value, i) => value === b[name].data[i])) && ["read", "write"].every((kind) =>
            Object.keys(a[kind]).every((name) => a[kind][name].data.join() === b[kind][name].data.join()));
        const inputs = api.tensor(sequence.inputs.shape, sequence.inputs.data.slice());
        inputs.data[5 * 9 + 2] = 1 - inputs.data[5 * 9 + 2];
        const trace = runWith([]), cases = [
          [inputs, [], 5], [sequence.inputs, given, 7], [sequence.inputs, [], 17], [sequence.inputs, [], 0],
          [api.tensor([30, 9], Float64Array.from({length: 270}, (_, i) => sequence.inputs.data[i] ?? 0)), [], 17]];
        return cases.map(([x, interventions, step]) => equal(
          api.run(machine, x, {interventions, since: {trace, step}}), api.run(machine, x, {interventions})));""",
        [
            {"type": "set", "at": 7, "slot": 2, "column": None, "value": 1},
            {"type": "move", "at": 9, "head": READ, "by": 2},
        ],
    )
    assert found == [True] * 5


def test_a_run_takes_the_memory_of_another(engine):
    """The same numbers as in memory of its own, whatever was there. With another layout it gets memory of its own."""
    found = engine(
        LOADED
        + """
        const same = (a, b) => ["logits", "memory", "memoryBefore", "reads", "hidden", "written"].every((name) =>
            a[name].data.join() === b[name].data.join()) && ["read", "write"].every((kind) =>
            Object.keys(a[kind]).every((name) => a[kind][name].data.join() === b[kind][name].data.join()));
        const inputs = api.tensor(sequence.inputs.shape, sequence.inputs.data.slice());
        inputs.data[5 * 9 + 2] = 1 - inputs.data[5 * 9 + 2];
        const run = (x, options) => api.run(machine, x, options), takes = (x, options, into) => {
          const one = run(x, {...options, into});
          return [one.memory.data === into.memory.data, one !== into, same(one, run(x, options))];
        };
        let trace = run(inputs, {});
        const painted = takes(sequence.inputs, {since: {trace, step: 5}}, trace);
        return [painted, takes(sequence.inputs, {interventions: given.mute}, run(inputs, {})),
          takes(sequence.inputs, {interventions: given.set}, run(inputs, {})),
          takes(sequence.inputs, {slots: 40}, run(inputs, {})),
          takes(sequence.inputs, {interventions: given.set}, run(inputs, {interventions: given.set}))];""",
        {
            "mute": [{"type": "mute", "from": 3, "to": None, "head": head} for head in (READ, WRITE)],
            "set": [{"type": "set", "at": 7, "slot": 2, "column": None, "value": 1}],
        },
    )
    assert found == [[True, True, True], [True, True, True], [False, True, True], [False, True, True], [True] * 3]


REFUSED = [
    {"type": "melt"},
    {"type": "pin", "from": 3, "to": None, "head": WRITE, "what": "gate", "value": 2},
    {"type": "pin", "from": 3, "to": 1, "head": WRITE, "what": "gate", "value": 1},
    {"type": "pin", "from": -1, "to": None, "head": WRITE, "what": "gate", "value": 1},
    {"type": "pin", "from": 0, "to": None, "head": {"kind": "write", "index": 1}, "what": "gate", "value": 1},
    {"type": "pin", "from": 0, "to": None, "head": {"kind": "erase", "index": 0}, "what": "gate", "value": 1},
    {"type": "pin", "from": 0, "to": None, "head": WRITE, "what": "toString", "value": 1},
    {"type": "pin", "from": 0, "to": None, "head": WRITE, "what": "shift", "value": 2},
    {"type": "pin", "from": 0, "to": None, "head": WRITE, "what": "sharpening", "value": 0.5},
    {"type": "pin", "from": 0, "to": None, "head": WRITE, "what": "gate", "value": "1"},
    {"type": "move", "at": 0, "head": WRITE, "by": 0.5},
    {"type": "move", "at": 0, "head": None, "by": 1},
    {"type": "set", "at": 0.5, "slot": 0, "column": None, "value": 1},
    {"type": "set", "at": 0, "slot": 0, "column": 20, "value": 1},
    {"type": "set", "at": 0, "slot": 0, "column": 0, "value": None},
    {"type": "scramble", "at": 0, "from": 5, "to": 2, "seed": 0},
]
TEXTS = [
    "pin",
    "pin.w0.gate.3-.",
    "pin.x0.gate.3-.1",
    "mute.w0.3",
    "set.1.2.3",
    "set.1.2.3.4.5",
    "~",
    "pin.w0.gate.3-.1~",
    "<b>",
    "mute.w0.9-3",
]


def test_others_are_refused_in_a_sentence(engine):
    said = engine(
        LOADED
        + """
        return [...given.refused.map((one) => sentence(() => runWith([one]))),
          ...given.texts.map((text) => sentence(() => api.decodeInterventions(text)))];""",
        {"refused": REFUSED, "texts": TEXTS},
    )
    for what, sentence in zip([*REFUSED, *TEXTS], said, strict=True):
        assert sentence.endswith("."), (what, sentence)
        assert "bug" not in sentence, (what, sentence)


@pytest.mark.parametrize("slots", [0, -3, 1.5, 5000, "8"])
def test_tapes_that_cannot_be_are_refused(engine, slots):
    code = LOADED + "try { api.initialState(machine, given); } catch (error) { return error.message; }"
    assert "slots, but it needs 1 to 4096" in engine(code, slots)
