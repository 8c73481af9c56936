"""Figure 3: learning curves of the copy task."""

from tapehead.paper.figures.learning import LearningCurves

FIGURE = LearningCurves(
    number=3,
    title="Copy learning curves",
    task="copy",
    thousands=1000,
    bits=(0, 10),
    differs="one run of each system to 1,000,000 sequences; both NTMs near 0 bits from 100,000 on, the LSTM at "
    "4.8 bits then.",
).figure()
