"""Figure 7: learning curves of the repeat copy task."""

from tapehead.paper.figures.learning import LearningCurves

FIGURE = LearningCurves(
    number=7,
    title="Repeat copy learning curves",
    task="repeat-copy",
    thousands=500,
    bits=(0, 200),
    differs="one run of each system to 500,000 sequences; at 50,000 the LSTM is at about 105 bits, the NTM with "
    "LSTM controller at 5 and the one with feedforward controller at 45. Its vectors have six bits, as "
    "its numbers of parameters say; those of recipe tuned have eight.",
).figure()
