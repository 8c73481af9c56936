"""Figure 9: memory use during the repeat copy task."""

from tapehead.paper.figures.memory import Locations, MemoryUse, away, percent


def says(heads: Locations) -> str:
    length = heads.answer - 1  # the count is given in one step, after the sequence
    answers = heads.read[heads.answer :, :, 0]
    repeats = len(answers) // length
    passes = answers[: repeats * length].unflatten(0, (repeats, length))  # [repeats, length, B]
    written = heads.write[:length, :, 0].expand_as(passes)
    distance, share = heads.offset(passes[:, 1:], written[:, 1:])
    first, often = heads.offset(passes[1:, 0], written[1:, 0])
    return (
        f"in each of the {repeats} repeats the read head is {away(distance)} the slot where a vector was written for "
        f"{percent(share)} of the vectors after the first; from the second repeat on, the first vector is read "
        f"{away(first)} the slot where it was written in {percent(often)}."
    )


FIGURE = MemoryUse(
    9,
    "NTM memory use during the repeat copy task",
    "repeat-copy-ntm-lstm",
    says,
    "the same panels; the read head goes through the slots of the sequence once for every repeat and then jumps back "
    "to the first one.",
).figure()
