"""Text (not in the paper): predict the next byte of the sources of Python's standard library.

    time      0    1    2   ...  L-1
    input     -   c0   c1   ...  c_L-2      the byte before, one-hot over 256; nothing at first
    targets  c0   c1   c2   ...  c_L-1      one-hot over 256
    mask      1    1    1   ...   1

A sequence is L bytes from a place drawn uniformly in the text. The text is that of the Python that runs: the modules at
the top of its standard library, in the order of their names, read when the first sequence is drawn; nothing is shipped.
Every tenth module is held out. To train on the others and score on those: `part = "held-out"` in the task, and
`options = { part = "training" }` in the curriculum.

An experiment names its text, as in "python-3.11.4-0123456789ab" (version, and the beginning of a SHA-256), because
another version is another text: sequences are drawn from that one only.
"""

import functools
import hashlib
import platform
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tapehead.losses import CATEGORICAL, Loss
from tapehead.streams import Stream
from tapehead.tasks.task import Batch, Range, Size, Task, clock, row_sizes

SYMBOLS = 256
HELD_OUT_EVERY = 10


@dataclass(frozen=True, kw_only=True)
class Text(Task):
    """The language-modelling task. length: bytes in a sequence. part: which modules they come from. text: which text;
    by default the one that is here."""

    length: Size = 64
    part: Literal["training", "held-out"] = "training"
    text: str = ""

    name: ClassVar[str] = "text"
    limits: ClassVar[Mapping[str, int]] = {"length": 1}
    loss: ClassVar[Loss] = CATEGORICAL
    figures: ClassVar[tuple[str, ...]] = ("learning-curve",)

    def check(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", text_here())
        super().check()

    @property
    def input_size(self) -> int:
        return SYMBOLS

    @property
    def output_size(self) -> int:
        return SYMBOLS

    @property
    def chance_bits(self) -> float:
        """Eight for every byte."""
        return 8.0 * sum(self.ranges()["length"]) / 2

    def draw(self, draws: Stream, rows: int, sizes: Mapping[str, Range]) -> Batch:
        lengths = row_sizes(draws, rows, sizes["length"])
        longest, text = int(lengths.max()), self._bytes(draws.device)
        if longest >= len(text):
            raise ValueError(f"length is {longest}, but the text has {len(text)} bytes: give a smaller one.")
        place = draws.integers(rows, 1, 0, len(text) - sizes["length"][1]).transpose(-1, -2)  # [*lead, 1, B]
        time = clock(longest, draws.device)
        inside = time < lengths.unsqueeze(-2)  # [*lead, T, B]
        targets = one_hot(text[place + time].long(), SYMBOLS).float() * inside.unsqueeze(-1)
        inputs = torch.zeros_like(targets)
        inputs[..., 1:, :, :] = targets[..., :-1, :, :] * inside[..., 1:, :].unsqueeze(-1)
        return Batch(inputs, targets, inside.float(), lengths)

    def _bytes(self, device: torch.device) -> Tensor:
        if self.text != text_here():
            raise ValueError(
                f"the text is {self.text!r}, but this Python has {text_here()!r}: use that version, or leave text out."
            )
        return text_bytes(self.part, device)


@functools.cache
def _modules() -> tuple[bytes, ...]:
    """The modules at the top of the standard library that runs, in the order of their names."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"), key=lambda path: path.name)
    if not paths:
        raise ValueError("the standard library of this Python has no sources: use one that has, or another task.")
    return tuple(path.read_bytes() for path in paths)


@functools.cache
def text_here() -> str:
    """The name of the text that this Python has."""
    digest = hashlib.sha256(b"\0".join(_modules())).hexdigest()
    return f"python-{platform.python_version()}-{digest[:12]}"


@functools.cache
def text_bytes(part: str, device: torch.device) -> Tensor:
    """A part of the text that is here, as uint8."""
    chosen = [
        module
        for i, module in enumerate(_modules())
        if (i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == (part != "training")
    ]
    return torch.frombuffer(bytearray(b"".join(chosen)), dtype=torch.uint8).to(device)
