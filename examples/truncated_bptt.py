"""Truncated backpropagation through time: one endless sequence, in pieces, with the state carried and detached.

    python examples/truncated_bptt.py

The data are made up: at every step a bit goes in, and the bit of LAG steps before is asked for. Sequences end at random
places, each row at its own: there the mask of resets starts that row anew, inside the piece, as in reinforcement
learning.
"""

import argparse

import torch
from torch import Tensor, nn

import tapehead

LAG, PIECE, BATCH, ENDS = 3, 20, 16, 0.02


class Bits:
    """BATCH endless rows of bits, and where a new sequence begins."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._past = torch.zeros(LAG, BATCH)  # the last bits of the present sequences

    def piece(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inputs [PIECE, BATCH, 1], answers and whether they count [PIECE, BATCH], and the resets."""
        bits = torch.randint(2, (PIECE, BATCH), generator=self._generator).float()
        resets = torch.rand(PIECE, BATCH, generator=self._generator) < ENDS
        answers = []
        for bit, reset in zip(bits, resets, strict=True):
            self._past[:, reset] = torch.nan  # nothing to be asked for yet
            answers.append(self._past[0].clone())
            self._past = torch.cat([self._past[1:], bit.unsqueeze(0)])
        asked = torch.stack(answers)
        return bits.unsqueeze(-1), asked.nan_to_num(), ~asked.isnan(), resets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    data = Bits(options.seed)
    ntm = tapehead.NTM(1, 1, controller_size=32, memory_slots=8, memory_width=8, add_activation="tanh")
    optimiser = torch.optim.Adam(ntm.parameters(), lr=3e-3)
    state = ntm.initial_state(BATCH)
    for update in range(1, options.updates + 1):
        inputs, answers, counted, resets = data.piece()
        logits, state = ntm(inputs, state, reset=resets)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.squeeze(-1)[counted], answers[counted])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(ntm.parameters(), 1.0)
        optimiser.step()
        state = state.detach()  # the next piece begins here, and its gradients end here
        if update == options.updates or update % max(1, options.updates // 10) == 0:
            right = ((logits.squeeze(-1) > 0) == (answers > 0.5))[counted].float().mean()
            print(f"{update} pieces: loss {loss.item():.3f}, {right:.1%} of the bits right")


if __name__ == "__main__":
    main()
