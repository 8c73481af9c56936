"""Figure 10: learning curves of the associative recall task."""

from tapehead.paper.figures.learning import LearningCurves

FIGURE = LearningCurves(
    number=10,
    title="Associative recall learning curves",
    task="associative-recall",
    thousands=1000,
    bits=(0, 20),
    differs="one run of each system to 1,000,000 sequences; the feedforward controller is near 0 bits in 30,000, "
    "the LSTM controller in 100,000, and the LSTM is still at 0.5 bits at the end.",
).figure()
