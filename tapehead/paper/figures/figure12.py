"""Figure 12: memory use during the associative recall task."""

import torch

from tapehead.paper.figures.memory import Locations, MemoryUse, away, percent


def says(heads: Locations) -> str:
    inputs, targets = heads.batch.inputs, heads.batch.targets
    answers, length = len(inputs) - heads.answer, heads.answer - 1
    wanted = targets[heads.answer :]  # [answers, B, O]
    width = wanted.shape[-1]
    windows = torch.stack([inputs[t : t + answers, :, :width] for t in range(length - answers)])
    begins = (windows == wanted).all(dim=-1).all(dim=1).int().argmax(dim=0)  # [B]: where the wanted item was shown
    steps = begins + torch.arange(answers).unsqueeze(-1)  # [answers, B]
    distance, share = heads.offset(heads.read[heads.answer :, :, 0], heads.write[:, :, 0].gather(0, steps))
    return (
        f"while it answers, the read head is {away(distance)} the slot where the head wrote when that vector of the "
        f"wanted item was shown in {percent(share)} of the answers."
    )


FIGURE = MemoryUse(
    12,
    "NTM memory use during the associative recall task",
    "associative-recall-ntm-lstm",
    says,
    "the same panels; at the end of an item the controller writes a compressed form of it, at the query it finds that "
    "slot by content, and it reads on from the next one.",
).figure()
