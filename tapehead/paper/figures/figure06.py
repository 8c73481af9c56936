"""Figure 6: memory use during the copy task."""

from tapehead.paper.figures.memory import Locations, MemoryUse, away, percent


def says(heads: Locations) -> str:
    length = len(heads.read) - heads.answer
    distance, share = heads.offset(heads.read[heads.answer :, :, 0], heads.write[:length, :, 0])
    steps, _ = heads.offset(heads.write[1:length, :, 0], heads.write[: length - 1, :, 0])
    return (
        f"the write head moves by {steps:+d} slot with every vector, and the read head is {away(distance)} the slot "
        f"where the vector of each answer was written in {percent(share)} of the answers."
    )


FIGURE = MemoryUse(
    6,
    "NTM memory use during the copy task",
    "copy-ntm-lstm",
    says,
    "the same panels; the heads write the inputs to consecutive slots and then read the same slots in order.",
).figure()
