"""Figure 13: learning curves of the dynamic N-gram task."""

from tapehead.paper.figures.learning import LearningCurves

FIGURE = LearningCurves(
    number=13,
    title="Dynamic N-gram learning curves",
    task="ngrams",
    thousands=1000,
    bits=(130, 160),
    differs="one run of each system to 1,000,000 sequences; LSTM at 136 to 137 bits, NTM with feedforward "
    "controller at 134, NTM with LSTM controller at 133.5, optimum at about 133.",
).figure()
