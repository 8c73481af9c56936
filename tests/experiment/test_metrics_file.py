"""metrics.jsonl: every line has the whole schema; damaged lines are refused; TensorBoard shows the same numbers."""

import itertools
import json
import math
import random
import struct
import time

import pytest
from damage import HARMS
from tiny import EXPERIMENTS, lines_of, refuse_constant, tiny, trained

from tapehead.experiment import events, metrics
from tapehead.experiment.metrics import Line
from tapehead.typed import hints

pytestmark = pytest.mark.usefixtures("one_thread", "quickly_solved")

TYPES = {"updates": int, "episodes": int}
LISTS = {
    "seeds": {int},
    "bits": {float, type(None)},
    "skipped": {int},
    "rate": {float},
    "attempt": {int},
    "curriculum": {bool},
    "validation": {float, type(None)},
}
RUNS = {
    "plain": {},
    "a curriculum that ends": {"curriculum": {"blanks": 0.2}, "share": 0.5, "seeds": (1, 2)},
    "validation": {"episodes": 1100, "validation": {"length": 4}, "attempts": 2, "validation.sequences": 5},
    "restarts": {"episodes": 1200, "attempts": 2, "after": 1100, "seeds": (1, 2)},
    "overflow": {"learning_rate": 1e38, "clip": "none"},
}


@pytest.mark.parametrize("name", RUNS)
def test_every_line_has_the_whole_schema_and_one_type_in_each_field(name, monkeypatch):
    monkeypatch.setattr("tapehead.tasks.copy.Copy.solved_bits", 100.0)
    trainer = trained(tiny(**RUNS[name]))
    assert len(trainer.metrics) >= 6
    assert set(TYPES) | set(LISTS) == set(hints(Line))
    for text in trainer.metrics:
        line = json.loads(text, parse_constant=refuse_constant)
        assert list(line) == list(hints(Line))
        assert all(type(line[field]) is kind for field, kind in TYPES.items())
        for field, kinds in LISTS.items():
            assert type(line[field]) is list
            assert len(line[field]) == len(line["seeds"]) > 0
            assert {type(value) for value in line[field]} <= kinds, field
        assert all(
            math.isfinite(value) for values in line.values() if type(values) is list for value in values if value
        )
        assert Line.from_json(text).to_json() == text


def test_lines_are_in_order_and_of_the_seeds_that_took_part(finished):
    lines = metrics.read((finished["rich"] / "metrics.jsonl").read_bytes().splitlines())
    assert [line.updates for line in lines] == [100 * (i + 1) for i in range(len(lines))]
    assert [line.episodes for line in lines] == [8 * line.updates for line in lines]
    assert lines[0].seeds == EXPERIMENTS["rich"].seeds
    assert all(set(after.seeds) <= set(before.seeds) for before, after in itertools.pairwise(lines))
    assert len(lines[-1].seeds) < 3


GOOD = {
    "updates": 100, "episodes": 200, "seeds": [1, 2], "bits": [0.5, None], "skipped": [0, 3], "rate": [0.1, 0.1],
    "attempt": [1, 1], "curriculum": [False, True], "validation": [None, 2.5],
}  # fmt: skip


def test_a_line_comes_back():
    line = Line.from_json(json.dumps(GOOD))
    assert json.loads(line.to_json()) == GOOD
    assert metrics.read([line.to_json(), line.to_json().encode()]) == [line, line]


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "value", [None, "x", {}, [], [1], ["x", "x"], 1.5, [float("nan")] * 2, [float("inf")] * 2, -1e99]
)
def test_a_line_with_a_field_of_another_type_is_refused(name, value):
    with pytest.raises(ValueError, match=r"metrics.jsonl") as refusal:
        Line.from_json(json.dumps(GOOD | {name: value}))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_line_without_a_field_or_with_another_is_refused(name):
    with pytest.raises(ValueError, match="other fields"):
        Line.from_json(json.dumps({field: value for field, value in GOOD.items() if field != name}))
    with pytest.raises(ValueError, match="other fields"):
        Line.from_json(json.dumps(GOOD | {"more": 1}))


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "3", "{", b"\xff", "[" * 100_000, '{"updates": 100}', json.dumps([GOOD])]
)
def test_what_is_no_line_is_refused(text):
    with pytest.raises(ValueError, match=r"a line of metrics\.jsonl") as refusal:
        Line.from_json(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_line_is_refused_or_another_whole_line(harm):
    """There is no seal in a line: the checkpoint's SHA-256 covers the file. What is read has the schema."""
    good, source, refused = json.dumps(GOOD).encode(), random.Random(harm.__name__), 0
    for _ in range(300):
        try:
            line = Line.from_json(harm(good, source))
        except ValueError:
            refused += 1
            continue
        assert json.loads(line.to_json(), parse_constant=refuse_constant).keys() == GOOD.keys()
    assert refused > 50


# --- TensorBoard -----------------------------------------------------------------------------------------------------


def crc32c(data):
    """Bit by bit, from the polynomial 0x1EDC6F41 (reversed 0x82F63B78)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def unmask(masked):
    turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF


def fields(data):
    """A protocol buffer as (number, value) pairs."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
        elif kind == 2:
            size = varint()
            yield number, data[at : at + size]
            at += size
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            yield number, struct.unpack(form, data[at : at + size])[0]
            at += size
    assert at == len(data)


def records(data):
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        size = struct.unpack("<Q", head)[0]
        assert unmask(struct.unpack("<I", data[at + 8 : at + 12])[0]) == crc32c(head)
        body = data[at + 12 : at + 12 + size]
        assert unmask(struct.unpack("<I", data[at + 12 + size : at + 16 + size])[0]) == crc32c(body)
        yield dict(fields(body))
        at += size + 16
    assert at == len(data)


def test_checksum_vector():
    assert crc32c(b"123456789") == 0xE3069283
    assert unmask(events._masked_crc(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tensorboard_shows_the_metrics(finished, name):
    (path,) = (finished[name] / "tensorboard").iterdir()
    assert ".tfevents." in path.name  # or TensorBoard does not look at it
    head, *rest = records(path.read_bytes())
    assert head[3] == b"brain.Event:2"
    lines = metrics.read((finished[name] / "metrics.jsonl").read_text().splitlines())
    assert len(rest) == len(lines) > 3
    assert time.time() - 3600 < head[1] <= rest[0][1] <= rest[-1][1] <= time.time()
    for event, line in zip(rest, lines, strict=True):
        assert event[2] == line.episodes
        values = [dict(fields(value)) for number, value in fields(event[5]) if number == 1]
        shown = {value[1].decode(): value[2] for value in values}
        wanted = {f"bits/seed-{seed}": bits for seed, bits in zip(line.seeds, line.bits, strict=True)}
        wanted |= {f"rate/seed-{seed}": rate for seed, rate in zip(line.seeds, line.rate, strict=True)}
        assert shown == pytest.approx(wanted, rel=1e-6)


def test_a_resumed_run_keeps_the_times_of_its_events(tmp_path, monkeypatch):
    lines = [line.to_json() for line in metrics.read(trained(tiny(episodes=300)).metrics)]
    clock = iter(range(1_000_000_000, 2_000_000_000, 60))
    monkeypatch.setattr(events.time, "time", lambda: float(next(clock)))
    folder = tmp_path / "tensorboard"
    events.rewrite(folder, [])
    for line in lines:
        events.append(folder, line)
    times = [event[1] for event in records((folder / events.FILE).read_bytes())]
    assert times == [1e9, 1e9 + 60, 1e9 + 120, 1e9 + 180]
    events.rewrite(folder, lines[:2])
    assert [event[1] for event in records((folder / events.FILE).read_bytes())] == times[:3]
    (folder / events.FILE).write_bytes(b"no event file")
    events.rewrite(folder, lines[:1])
    assert len(list(records((folder / events.FILE).read_bytes()))) == 2


def test_a_block_without_a_finite_cost_has_no_point():
    (line,) = lines_of(trained(tiny(episodes=100)))
    event = next(records(events._line(json.dumps(line | {"bits": [None]}), 1e9)))
    names = [dict(fields(value))[1] for number, value in fields(event[5]) if number == 1]
    assert names == [b"rate/seed-0"]
