"""Figure 8: NTM and LSTM generalisation on the repeat copy task."""

from tapehead.paper.figures.outputs import Outputs

FIGURE = Outputs(
    8,
    "NTM and LSTM generalisation for the repeat copy task",
    {"NTM": "repeat-copy-ntm-lstm", "LSTM": "repeat-copy-lstm"},
    ({"length": 10, "repeats": 20}, {"length": 20, "repeats": 10}),
    "the same sizes; the NTM repeats longer sequences without an error, and beyond ten repeats goes on repeating but "
    "gives the end marker after every repetition from the eleventh on; the LSTM fails at both sizes.",
).figure()
