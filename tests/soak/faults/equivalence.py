"""9: a batch of sequences whole, in pieces, padded, and each row alone."""

import random

import torch
from torch import Tensor

import tapehead
from soak.fault import Case, Fault
from tapehead.models import SequenceModel

TOLERANCE = 1e-11
"""Of the largest difference, in float64; seen: 1e-13 over 500 machines."""


def random_model(source: random.Random) -> SequenceModel:
    sizes = (source.randint(1, 4), source.randint(1, 3))
    torch.manual_seed(source.randrange(10**6))
    if source.random() < 0.2:
        return tapehead.PaperLSTM(*sizes, source.randint(1, 7), source.randint(1, 3), dtype=torch.float64)
    return tapehead.NTM(
        *sizes,
        controller=source.choice(("lstm", "feedforward")),
        controller_size=source.choice((1, 3, 8)),
        controller_layers=source.choice((1, 1, 2)),
        memory_slots=source.choice((1, 2, 5, 13)),
        memory_width=source.choice((1, 3, 6)),
        read_heads=source.randint(1, 2),
        write_heads=source.randint(1, 2),
        shift=source.choice(("softmax", "scalar")),
        shift_range=source.randint(1, 2),
        order=source.choice(("write_then_read", "read_then_write")),
        write_gate=source.random() < 0.5,
        backend=source.choice(("auto", "auto", "reference")),
        dtype=torch.float64,
    )


def largest(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.numel() else 0.0


@torch.no_grad()
def check(case: Case) -> None:
    source = case.random
    model = random_model(source)
    steps, rows = source.randint(1, 12), source.randint(1, 4)
    x = torch.randn(steps, rows, model.input_size, dtype=torch.float64)
    lengths = torch.tensor([source.randint(1, steps) for _ in range(rows)])
    whole, final = model(x, lengths=lengths)
    padded = torch.cat([x, torch.full((3, rows, x.shape[2]), 7.0, dtype=torch.float64)])
    worst = [largest(model(padded, lengths=lengths)[0][:steps], whole)]
    for row in range(rows):
        length = int(lengths[row])
        alone, state = model(x[:length, row : row + 1])
        worst.append(largest(alone, whole[:length, row : row + 1]))
        worst += [largest(one, other[row : row + 1]) for one, other in zip(state, final, strict=True)]
        cuts = sorted(source.randint(0, length) for _ in range(source.randint(1, 3)))
        pieces, carried = [], None
        for begin, end in zip([0, *cuts], [*cuts, length], strict=True):
            if begin < end:
                piece, carried = model(x[begin:end, row : row + 1], carried)
                pieces.append(piece)
        worst.append(largest(torch.cat(pieces), alone))
        assert not bool(whole[length:, row].any()), "outputs beyond the end of a sequence are not zero"
    assert max(worst) < TOLERANCE, f"{max(worst):.1e} for {model}"


FAULT = Fault(
    number=9,
    title="a batch whole, in pieces, padded, and each row alone",
    promise="the same outputs and states, to 1e-11 in float64",
    counted="machines",
    full=500,
    quick=25,
    chunk=250,
    check=check,
    needs=("numba",),
)
