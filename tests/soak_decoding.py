"""Greedy draft and verify against plain decoding, token by token: `python tests/soak_decoding.py PROMPTS`.

Models, prompts, sets of skipped sub-layers, lengths of drafts and thresholds are all drawn. Too long for every `make
test`, which has a hundred prompts.
"""

import sys

import torch

from tapehead.models.transformer.model import Transformer
from tapehead.models.transformer.skips import SkipSet
from tapehead.streams import stream
from tapehead.sublayers.decoding import decode, draft_and_verify

POSITIONS = ("rotary", "alibi", "none")


def compare(number: int) -> tuple[int, int]:
    """Drafted and accepted tokens of one prompt; an error if the outputs differ."""
    draws = stream(number, "soak", 0)
    layers, tokens, draft, prompt = draws.integers(1, 4, 1, 8)[0].tolist()
    model = Transformer(9, 9, 16, layers, num_heads=2, positions=POSITIONS[number % 3], dtype=torch.float64).eval()
    model.reset_parameters(torch.Generator().manual_seed(number))
    skip = SkipSet.of_bits(draws.bits(1, 2 * layers)[0].int().tolist())
    given = draws.integers(1, prompt, 0, 8)[0].tolist()
    stop = float(draws.uniform(1, 1)) * 0.3
    plain = decode(model, given, 2 * tokens)
    ours = draft_and_verify(model, skip, given, 2 * tokens, draft=draft, stop_below=stop)
    if ours.tokens != plain.tokens:
        raise AssertionError(f"prompt {number}: {ours.tokens} is not {plain.tokens}")
    return ours.drafted, ours.accepted


if __name__ == "__main__":
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    drafted, accepted = map(sum, zip(*(compare(number) for number in range(count)), strict=True))
    print(f"{count} prompts: all outputs equal; {accepted} of {drafted} drafted tokens accepted")
