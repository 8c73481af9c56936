"""Figure 4: NTM generalisation on the copy task."""

from tapehead.paper.figures.outputs import Outputs

SIZES = tuple({"length": length} for length in (10, 20, 30, 50, 120))

FIGURE = Outputs(
    4,
    "NTM generalisation on the copy task",
    {"NTM with LSTM controller": "copy-ntm-lstm"},
    SIZES,
    "the same lengths, of one machine whose controller is not named; lengths up to 50 are nearly right, and length 120 "
    "has a few wrong bits and one vector that is written out twice.",
).figure()
