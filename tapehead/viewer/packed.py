"""Weights inside an exported page, as page/engine/packed.js reads them: the bytes of all numbers, the most significant
first (so that the exponents, which are alike, are neighbours), compressed by zlib, in base64."""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

ENCODINGS = ("float32", "float24", "float16")
"""From exact to coarse. float24 is float32 with 15 bits of fraction, wrong by at most 2^-16 of a number; float16 has 10
bits: 2^-11."""


def pack(weights: Mapping[str, Tensor], encoding: str) -> dict[str, Any]:
    """Named parameters as the page's data holds them."""
    flat = np.concatenate([value.detach().cpu().float().numpy().ravel() for value in weights.values()])
    planes = _numbers(flat, encoding)
    return {
        "encoding": encoding,
        "shapes": [[name, list(value.shape)] for name, value in weights.items()],
        "data": base64.b64encode(zlib.compress(planes.T.tobytes(), 9)).decode(),
    }


def _numbers(flat: np.ndarray, encoding: str) -> np.ndarray:
    """The bytes of each number, most significant first, [numbers, bytes]."""
    if encoding == "float16":
        return flat.astype(">f2").view(np.uint8).reshape(-1, 2)
    if encoding == "float24":
        bits = flat.view(np.uint32).astype(np.uint64)
        bits = bits + 0x7F + ((bits >> 8) & 1)  # to the nearest, halves to even
        flat = (bits & 0xFFFFFF00).astype(np.uint32).view(np.float32)
    whole = flat.astype(">f4").view(np.uint8).reshape(-1, 4)
    return whole[:, :3] if encoding == "float24" else whole
