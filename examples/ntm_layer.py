"""A Neural Turing Machine as a layer of a larger model: embedding, NTM, output layer, on data of your own.

    python examples/ntm_layer.py

The data are made up: token sequences in which one token is a key that occurs twice, and after its second occurrence the
token that followed the first one must be named (associative recall of one pair).
"""

import argparse

import torch
from torch import Tensor, nn

import tapehead

TOKENS, STEPS = 12, 10


class Recall(nn.Module):
    """Tokens [batch, time] -> logits [batch, tokens], from the state of the last step."""

    def __init__(self, tokens: int = TOKENS, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        by_content = {"strength_bias": 2.0, "read_gate_bias": 1.0}  # for what is looked up: docs/recipes.md
        self.ntm = tapehead.NTM(
            *(width, width),
            controller_size=64,
            memory_slots=16,
            key_activation="tanh",
            add_activation="tanh",
            batch_first=True,
            **by_content,
        )
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        features, _ = self.ntm(self.embedding(tokens))  # [batch, time, width]
        return self.head(features[:, -1])


def made_up(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences without repeated tokens, but for the last, which is one of the earlier ones; and what followed it."""
    order = torch.rand(count, TOKENS, generator=generator).argsort(dim=1)[:, : STEPS - 1]
    place = torch.randint(STEPS - 2, (count, 1), generator=generator)
    return torch.cat([order, order.gather(1, place)], dim=1), order.gather(1, place + 1).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    model = Recall()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for update in range(1, options.updates + 1):
        tokens, answers = made_up(32, generator)
        loss = nn.functional.cross_entropy(model(tokens), answers)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if update == options.updates or update % max(1, options.updates // 10) == 0:
            print(f"{update} updates: loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad():
        tokens, answers = made_up(1000, generator)
        right = (model(tokens).argmax(dim=1) == answers).float().mean()
    print(f"accuracy on 1,000 fresh sequences: {right:.1%} (chance: {1 / (TOKENS - 1):.1%})")


if __name__ == "__main__":
    main()
