"""The page's tasks draw, encode and score the same sequences as Python's."""

import numpy as np
import pytest
import torch
from engine_page import unpacked

from tapehead.registry import TASKS
from tapehead.streams import stream
from tapehead.tasks import make_task

CASES = [
    ("copy", {}, {}),
    ("copy", {}, {"length": 90}),
    ("copy", {"paper_channels": True, "width": 5}, {}),
    ("copy", {"density": [0.2, 0.9], "blanks": 0.25, "length": [3, 9]}, {}),
    ("repeat-copy", {}, {}),
    ("repeat-copy", {"width": 6}, {"length": 7, "repeats": 25}),
    ("repeat-copy", {"count": "pulses", "density": [0.1, 0.4]}, {}),
    ("repeat-copy", {"repeats": 4, "blanks": 0.5}, {}),
    ("associative-recall", {}, {}),
    ("associative-recall", {"item_length": 2, "width": 3, "density": [0.3, 0.3]}, {"items": 20}),
    ("ngrams", {}, {}),
    ("ngrams", {"order": 3, "scored": "after_context", "length": [3, 50]}, {}),
    ("ngrams", {"order": 1}, {"length": 20}),
    ("priority-sort", {}, {}),
    ("priority-sort", {"items": [2, 12], "outputs": [1, 9], "width": 3}, {}),
    ("reverse", {"symbols": 5}, {}),
    ("parity", {}, {}),
    ("addition", {}, {"length": 33}),
    ("addition", {}, {}),
]
ADDRESSES = [(0, "train", 0, 0), (3, "viewer", 17, 2), (2**40 + 5, "Länge", 2**33 + 1, 3)]
SAMPLE = """
return given.map(([name, options, sizes, [seed, stream, step, row]]) => {
  const task = api.makeTask({name, options});
  const content = task.draw({seed, name: stream, step, row}, sizes);
  const sequence = task.encode(content);
  const again = api.contentFromText(task, api.contentToText(task, content));
  return {inputs: packed(sequence.inputs.data), targets: packed(sequence.targets.data), mask: packed(sequence.mask),
    steps: sequence.steps,
          sizes: [task.inputSize, task.outputSize, task.inputChannels.length, task.outputChannels.length],
          same: JSON.stringify(again) === JSON.stringify(content), options: task.spec.options};
});
"""


def test_all_tasks_are_there(engine):
    tasks = set(TASKS) - {"text", "graph"}  # which no NTM of the zoo has learned; text is this Python's files
    assert set(engine("return api.TASK_NAMES")) == tasks == {name for name, _, _ in CASES}


def test_sequences_equal_pythons(engine):
    asked = [(*case, address) for case in CASES for address in ADDRESSES]
    for (name, options, sizes, address), found in zip(asked, engine(SAMPLE, asked), strict=True):
        seed, stream_name, step, row = address
        task = make_task(
            name, **{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        )
        batch = task.sample(stream(seed, stream_name, step), batch_size=4, **sizes)
        steps = int(batch.lengths[row])
        what = f"{name} {options} {sizes} at {address}"
        assert found["steps"] == steps, what
        for part in ("inputs", "targets", "mask"):
            assert np.array_equal(unpacked(found[part]), getattr(batch, part)[:steps, row].double().numpy().ravel()), (
                what
            )
        assert found["sizes"] == [task.input_size, task.output_size] * 2, what
        assert found["same"], what
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in task.to_plain().items()}
        assert found["options"] == fields, what


def test_streams_equal_pythons(engine):
    found = engine(
        """return given.map(([seed, name, step, row]) => {
          const draws = new random.Stream(seed, name, step, row);
          return [packed(draws.words(11)), packed(draws.bits(70)), packed(draws.uniform(9)), packed(draws.uniform(9,
            24)),
                  packed(draws.integers(9, 3, 2 ** 31))];
        });""",
        ADDRESSES,
    )
    for (seed, name, step, row), parts in zip(ADDRESSES, found, strict=True):
        draws = stream(seed, name, step)
        expected = [
            draws.words(4, 11),
            draws.bits(4, 70),
            draws.uniform(4, 9),
            draws.uniform(4, 9, precision=24),
            draws.integers(4, 9, 3, 2**31),
        ]
        for part, right in zip(parts, expected, strict=True):
            assert np.array_equal(unpacked(part), right[row].double().numpy())


@pytest.mark.parametrize("order", [1, 2, 6])
def test_bayes_predictor_equals_pythons(engine, order):
    task = make_task("ngrams", order=order)
    bits = task.sample(stream(1, "bayes", 0), batch_size=1).targets[:, 0, 0]
    found = engine(
        "return packed(api.makeTask({name: 'ngrams', options: {order: given[0]}}).bayes(given[1]))",
        [order, bits.tolist()],
    )
    assert np.array_equal(unpacked(found), task.bayes_predictions(bits.unsqueeze(1))[:, 0].numpy())


@pytest.mark.parametrize(("name", "options"), [("copy", {}), ("ngrams", {"scored": "after_context"}), ("reverse", {})])
def test_scores_equal_pythons(engine, name, options):
    task = make_task(name, **options)
    batch = task.sample(stream(2, "scores", 0), batch_size=1)
    logits = 3 * torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[0, 0, 0] = 0.0
    found = engine(
        """const task = api.makeTask({name: given.name, options: given.options});
        const sequence = task.encode(task.draw({seed: 2, name: "scores", step: 0, row: 0}, {}));
        const {errors, probabilities, bitsByStep, ...rest} = api.score(task, sequence, api.tensor([sequence.steps,
          task.outputSize], Float64Array.from(given.logits)));
        return {...rest, errors: [...errors], probabilities: packed(probabilities.data), sum: bitsByStep.reduce((a,
          b) => a + b, 0)};""",
        {"name": name, "options": options, "logits": logits.ravel().tolist()},
    )
    targets, loss = batch.targets.double(), task.loss
    assert found["bits"] == pytest.approx(float(loss.bits(logits, targets, batch.mask)), rel=1e-12)
    assert found["sum"] == pytest.approx(found["bits"], rel=1e-12)
    assert found["wrong"] == int(loss.wrong(logits, targets, batch.mask)) == sum(found["errors"])
    assert found["answers"] == loss.answers(targets, batch.mask)
    assert found["optimalBits"] == pytest.approx(float(task.optimal_bits(batch)), rel=1e-12)
    assert np.allclose(unpacked(found["probabilities"]), loss.probabilities(logits).numpy().ravel(), rtol=0, atol=1e-14)


PAINT = """
const task = api.makeTask({name: given.name, options: {}});
const address = {seed: 1, name: "paint", step: 0, row: 0};
const before = task.draw(address, given.sizes);
const shown = task.encode(before).inputs;
let painted = 0, wrong = [];
for (let t = 0; t < shown.shape[0]; t++) {
  for (let channel = 0; channel < task.inputSize; channel++) {
    const place = task.place(before, t, channel);
    if (!place || place.field === "query") continue;
    const value = place.kind === "number" ? 0.5 : 1 - place.value;
    if (place.kind === "symbol" && !value) continue;
    const after = task.encode(task.paint(before, place, value)).inputs;
    painted += 1;
    if (after.data[t * task.inputSize + channel] !== value) wrong.push([t, channel]);
  }
}
const longer = task.resize(before, given.longer, address);
const kept = [...before.values].every((value, i) => longer.values[i] === value);
return {painted, wrong, kept, back: JSON.stringify(task.resize(longer, given.sizes,
  address)) === JSON.stringify(before)};
"""


@pytest.mark.parametrize(
    ("name", "sizes", "longer", "cells"),
    [
        ("copy", {"length": 4}, {"length": 60}, 32),
        ("repeat-copy", {"length": 3, "repeats": 2}, {"length": 9}, 24),
        ("associative-recall", {"items": 3}, {"items": 12}, 54),
        ("ngrams", {"length": 12}, {"length": 90}, 11),
        ("priority-sort", {"items": 5, "outputs": 3}, {"items": 9}, 45),
        ("reverse", {"length": 4}, {"length": 9}, 28),
        ("parity", {"length": 4}, {"length": 9}, 4),
        ("addition", {"length": 4}, {"length": 9}, 8),
    ],
)
def test_painting_changes_the_cell_that_is_painted(engine, name, sizes, longer, cells):
    """Every bit, symbol and number of the input can be painted, and a longer sequence keeps what is there."""
    found = engine(PAINT, {"name": name, "sizes": sizes, "longer": longer})
    assert found == {"painted": cells, "wrong": [], "kept": True, "back": True}


def test_query_of_recall_can_be_chosen(engine):
    """Another query shows another item, and asks for the one behind it."""
    found = engine(
        """const task = api.makeTask({name: "associative-recall", options: {}});
        const before = task.draw({seed: 4, name: "paint", step: 0, row: 0}, {items: 5});
        const place = task.place(before, 5 * 4 + 1, 0);
        return [0, 1, 2, 3].map((query) => {
          const {content, inputs, targets} = task.encode(task.paint(before, place, query));
          const shown = api.row(inputs, 21).slice(0, 6), asked = api.row(targets, 25);
          const item = (k) => [...content.values.slice(k * 18, k * 18 + 6)].join();
          return [...shown].join() === item(query) && [...asked].join() === item(query + 1);
        });"""
    )
    assert found == [True] * 4


REFUSED = [
    ("makeTask", [{"name": "copi", "options": {}}], "the task is"),
    ("makeTask", [{"name": "copy", "options": {"lenght": 3}}], "has an option"),
    ("makeTask", [{"name": "copy", "options": {"length": [5, 2]}}], "length is"),
    ("makeTask", [{"name": "copy", "options": {"width": 0}}], "width is 0"),
    ("makeTask", [{"name": "copy", "options": {"density": "x"}}], "density is"),
    ("makeTask", [{"name": "ngrams", "options": {"order": 40}}], "order is 40"),
    ("makeTask", [{"name": "repeat-copy", "options": {"count": "words"}}], "count is"),
    ("makeTask", [{"name": "constructor", "options": {}}], "the task is"),
]
TEXTS = ["", "4", "4.", "4.AAAA.5", "9999999.AA", "-1.AA", "4.!!!!", "4.AAAAAAAA", "x.AAAAAA", "4.AAAAAA.1.2"]


def test_what_is_no_task_or_content_is_refused(engine):
    """In one sentence, of the class whose messages are for users."""
    code = """
    const copy = api.makeTask({name: "copy", options: {}});
    return [given.refused.map(([name, options]) => sentence(() => api[name](...options))),
            given.texts.map((text) => sentence(() => api.contentFromText(copy, text)))];
    """
    calls, texts = engine(code, {"refused": [[name, options] for name, options, _ in REFUSED], "texts": TEXTS})
    for (_, _, begins), said in zip(REFUSED, calls, strict=True):
        assert begins in said
        assert said.endswith(".")
    for text, said in zip(TEXTS, texts, strict=True):
        assert said.endswith("."), (text, said)
