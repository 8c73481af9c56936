"""The page's reader of safetensors files: whole files as Python wrote them; damaged and hostile ones in a sentence."""

import base64
import json
import struct

import numpy as np
import pytest
import safetensors.torch
import torch
from engine_page import unpacked

READ = """
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
return given.map((text) => {
  let tensors;
  const said = sentence(() => (tensors = files.readSafetensors(bytes(text))));
  return tensors
    ? Object.fromEntries(Object.entries(tensors).map(([name, {shape, data}]) => [name, [shape, packed(data)]]))
    : said;
});
"""
TENSORS = {
    "controller.weight_0": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)),
    "a name with ünicode": torch.tensor([1.0, -2.5, 1e-40]),
    "half": torch.tensor([0.0, -0.0, 1.0, -2.5, 6e-8, 65504.0, 1e-4]).half(),
    "double": torch.tensor([[1e300, -1e-300]], dtype=torch.float64),
    "one": torch.tensor(3.5),
    "none": torch.zeros(0, 4),
}
WHOLE = safetensors.torch.save(TENSORS)


def read(engine, *datas):
    return engine(READ, [base64.b64encode(data).decode() for data in datas])


def made(header, data=b"", length=None):
    """A file with that header, as text or as a table."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}}


def test_whole_files_are_read_exactly(engine):
    (found,) = read(engine, WHOLE)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        shape, data = found[name]
        assert shape == list(tensor.shape)
        assert np.array_equal(unpacked(data), tensor.double().numpy().ravel())


HOSTILE = {
    "nothing": b"",
    "a few bytes": b"\x01\x02\x03",
    "a header longer than the file": made({}, length=10**6),
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}" * 8,
    "text": b"<html>this is a page, not a file of weights</html>",
    "a pickle": b"\x80\x04\x95" + bytes(200),
    "a header that is no JSON": made(b"{'x': 1}    "),
    "a header that is a list": made([1, 2, 3]),
    "a header of bad UTF-8": made(b'{"\xff\xfe": 1}'),
    "a nested header": made(b'{"x":' * 2000 + b"1" + b"}" * 2000),
    "an entry that is null": made({"x": None}),
    "an unknown type": made(one("I64"), bytes(8)),
    "a type of the prototype": made(one("constructor"), bytes(8)),
    "a negative shape": made(one(shape=(-2,)), bytes(8)),
    "a shape of fractions": made(one(shape=(0.5, 4)), bytes(8)),
    "a shape that is a word": made({"x": {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}}, bytes(8)),
    "an enormous shape": made(one(shape=(2**30, 2**30), offsets=(0, 2**62)), bytes(8)),
    "many dimensions": made(one(shape=(1,) * 5000, offsets=(0, 4)), bytes(4)),
    "offsets that go backwards": made(one(offsets=(8, 0)), bytes(8)),
    "offsets that do not fit the shape": made(one(offsets=(0, 4)), bytes(4)),
    "offsets behind the end": made(one(offsets=(0, 8)), bytes(4)),
    "three offsets": made(one(offsets=(0, 4, 8)), bytes(8)),
    "a gap": made({**one(), "y": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]}}, bytes(16)),
    "an overlap": made({**one(), "y": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12)),
    "bytes behind the last tensor": made(one(), bytes(9)),
    "an infinity": made(one(), struct.pack("<2f", 1, float("inf"))),
    "a NaN": made(one("F16", offsets=(0, 4)), b"\x00\x3c\x01\x7e"),
    "thousands of tensors": made({f"x{i}": one(shape=(0,), offsets=(0, 0))["x"] for i in range(10_001)}),
}


def test_hostile_files_get_a_sentence(engine):
    for what, said in zip(HOSTILE, read(engine, *HOSTILE.values()), strict=True):
        assert isinstance(said, str), what
        assert said.startswith("the file of weights is damaged or no safetensors file: "), what
        assert said.endswith(".")
        assert len(said) < 300


def test_truncated_files_get_a_sentence(engine):
    cut = [WHOLE[:length] for length in range(0, len(WHOLE), 7)]
    for said in read(engine, *cut):
        assert isinstance(said, str)
        assert "bug" not in said


def test_flipped_bits_are_read_as_numbers_or_refused(engine):
    """Never a crash; a bit of a number cannot be noticed here, only by the SHA-256 on the card."""
    flipped = [bytes([*WHOLE[:i], WHOLE[i] ^ (1 << (i % 8)), *WHOLE[i + 1 :]]) for i in range(len(WHOLE))]
    header = struct.unpack("<Q", WHOLE[:8])[0] + 8
    for i, said in enumerate(read(engine, *flipped)):
        if isinstance(said, str):
            assert "bug" not in said, i
        elif i >= header:
            assert said.keys() == TENSORS.keys()


MODEL = {"name": "ntm", "controller": "feedforward", "controller_size": 3, "memory_width": 2, "memory_slots": 4}
REFUSED = [
    ({"model": {"name": "dnc"}}, "the model is"),
    ({"model": None}, "the model is null"),
    ({"model": MODEL | {"controller": "mine:Own"}}, "controller is"),
    ({"model": MODEL | {"memory_slots": 10**9}}, "memory_slots is"),
    ({"model": MODEL | {"memory_width": "2"}}, "memory_width is"),
    ({"model": MODEL | {"unheard_of": 1}}, "has an option"),
    ({"model": MODEL | {"shift": "scalar", "shift_range": 0}}, "shift_range is 0"),
    ({"model": MODEL | {"initial_memory": "addresses"}}, "initial_memory is addresses"),
    ({"model": MODEL | {"interface_clip": -1}}, "interface_clip is"),
    ({"model": MODEL | {"interface_clip": "no"}}, "interface_clip is"),
    ({"task": "copy"}, "the task is"),
    ({"task": {"name": "copy", "width": 99999}}, "width is"),
    ({"lost": "output.bias"}, "the weights lack output.bias"),
    ({"added": "output.other"}, "which a machine of this description does not have"),
    ({"added": "__proto__"}, "which a machine of this description does not have"),
    ({"model": MODEL | {"controller_size": 4}}, "has the shape"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED)
def test_weights_of_another_machine_are_refused(engine, change, says):
    said = engine(
        """const shapes = config.ntmShapes(config.ntmConfig({...given.own, input_size: 9, output_size: 8}));
        const entries = Object.entries(shapes).map(([name, shape]) => [name, api.tensor(shape)]);
        const parameters = Object.create(null);
        for (const [name, value] of entries) if (name !== given.lost) parameters[name] = value;
        if (given.added) parameters[given.added] = api.tensor([1]);
        const {task, model} = given;
        return sentence(() => load.assemble({id: "x", title: "x", task, model, card: null}, parameters));""",
        {"own": {key: value for key, value in MODEL.items() if key != "name"}, "model": MODEL, "task": {"name": "copy"}}
        | change,
    )
    assert says in said
    assert said.endswith(".")
