"""Figure 18: learning curves of the priority sort task."""

from tapehead.paper.figures.learning import LearningCurves

FIGURE = LearningCurves(
    number=18,
    title="Priority sort learning curves",
    task="priority-sort",
    thousands=1000,
    bits=(0, 140),
    differs="one run of each system to 1,000,000 sequences; the LSTM ends at 50 to 58 bits, the NTMs at 10 to 20.",
).figure()
