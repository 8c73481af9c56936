"""Figure 5: LSTM generalisation on the copy task."""

from tapehead.paper.figures.figure04 import SIZES
from tapehead.paper.figures.outputs import Outputs

FIGURE = Outputs(
    5,
    "LSTM generalisation on the copy task",
    {"LSTM": "copy-lstm"},
    SIZES,
    "the same lengths; the LSTM copies length 20 and breaks soon beyond it.",
    instead={"LSTM of half the width": "copy-half-width-lstm"},  # the zoo has no room for the other
).figure()
