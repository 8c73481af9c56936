"""Weights inside an exported page: exact in float32, rounded as said otherwise."""

import numpy as np
import pytest
import torch
from engine_page import unpacked

from tapehead.viewer.packed import ENCODINGS, pack

UNPACK = """
const {unpack} = await import("/engine/packed.js");
const tensors = await unpack(given);
return Object.entries(tensors).map(([name, {shape, data}]) => [name, shape, packed(data)]);
"""
ROUNDING = {"float32": 0.0, "float24": 2.0**-16, "float16": 2.0**-11}


def weights():
    generator = torch.Generator().manual_seed(3)
    return {"a.weight": torch.randn(30, 40, generator=generator), "a.bias": torch.tensor([0.0, -1.0, 2.0**-14, 3e4])}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_weights_come_back(engine, encoding):
    given = weights()
    found = engine(UNPACK, pack(given, encoding))
    assert [name for name, _, _ in found] == list(given)
    for (_, shape, data), right in zip(found, given.values(), strict=True):
        assert shape == list(right.shape)
        numbers, exact = unpacked(data), right.double().numpy().ravel()
        assert np.all(
            np.abs(numbers - exact) <= ROUNDING[encoding] * np.abs(exact) + 2.0**-25 * (encoding == "float16")
        )
    assert (encoding == "float32") == np.array_equal(unpacked(found[0][2]), given["a.weight"].double().numpy().ravel())


def test_rounding_is_to_the_nearest(engine):
    """Halves to even, into the next binade, and never to an infinity."""
    numbers = [1 + 2.0**-15 + 2.0**-16, 1 + 2.0**-16, 2 - 2.0**-20, 1 + 2.0**-17, -3.25]
    (found,) = engine(UNPACK, pack({"x": torch.tensor(numbers)}, "float24"))
    assert unpacked(found[2]).tolist() == [1 + 2.0**-14, 1, 2, 1, -3.25]


@pytest.mark.parametrize(
    "change", [{"data": "AAAA"}, {"data": "???"}, {"encoding": "float8"}, {"shapes": [["x", [3, 3]]]}]
)
def test_damaged_data_gets_a_sentence(engine, change):
    code = UNPACK.replace(
        "await unpack(given)", "await unpack(given).catch((error) => ({[error.name + ': ' + error.message]: {}}))"
    )
    found = engine(code.replace("packed(data)", "0"), pack({"x": torch.ones(2)}, "float32") | change)
    assert found[0][0].startswith("EngineError: the weights in this page are ")
