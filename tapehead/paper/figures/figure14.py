"""Figure 14: predictions of the NTM and the LSTM on the dynamic N-gram task, beside the optimal ones."""

import numpy as np
from matplotlib.figure import Figure

from tapehead.figures import style
from tapehead.figures.predictions import Box, Prediction, draw_rows, predict
from tapehead.paper.figures.figure import INTERVALS, PaperFigure, missing_machine, paragraph
from tapehead.paper.figures.outputs import all_seeds
from tapehead.paper.results import Machine, Results
from tapehead.tasks.ngrams import NGrams

TITLE = "Dynamic N-gram inference"
ROWS = {"NTM": "ngrams-ntm-lstm", "LSTM": "ngrams-lstm"}
LARGEST = 3  # disagreements with the optimum that are marked, of each machine in each sequence


def machines(results: Results) -> dict[str, Machine]:
    found = {name: results.machine(row) for name, row in ROWS.items()}
    return {name: machine for name, machine in found.items() if machine is not None}


def predicted(results: Results) -> list[Prediction]:
    found = machines(results)
    task = next(iter(found.values())).task
    assert isinstance(task, NGrams)
    return predict({name: machine.model for name, machine in found.items()}, task)


def largest(prediction: Prediction, name: str) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Where a machine disagrees most with the optimum, in the order of time."""
    return np.sort(np.argsort(-prediction.distances(name), kind="stable")[:LARGEST])


def worst(shown: list[Prediction], name: str) -> Box:
    """The largest disagreement of a machine in all sequences."""
    peaks = [float(one.distances(name).max()) for one in shown]
    sequence = int(np.argmax(peaks))
    return Box(sequence, name, int(shown[sequence].distances(name).argmax()))


@style.look()
def draw(results: Results) -> Figure:
    if not machines(results):
        raise ValueError(missing(results))
    shown = predicted(results)
    arrows = [{name: largest(one, name) for name in one.said} for one in shown]
    first = next(iter(shown[0].said))
    words = f"arrows: the {LARGEST} largest differences from optimal; box: the {first}'s largest"
    absent = ", ".join(name for name in ROWS if name not in shown[0].said)
    title = f"Figure 14. {TITLE}" + (f" (no trained machine: {absent})" if absent else "")
    return draw_rows(title, shown, arrows, words, worst(shown, first))


def missing(results: Results) -> str | None:
    if machines(results):
        return None
    return paragraph(missing_machine(results, row) or "" for row in ROWS.values())


def caption(results: Results) -> str:
    found = machines(results)
    sentences = [
        "Bits of test sequences, the probability of a one that the Bayes predictor (Eq. 10) gives to each, and those "
        "of the machines; black is 0 and white is 1.",
        INTERVALS,
    ]
    for name, row in ROWS.items():
        if name in found:
            sentences.append(f"{name}: {found[name].origin}.")
        else:
            sentences.append(f"The row of the {name} is missing. {missing_machine(results, row)}")
        record = results.record(row)
        labels = [] if record is None else [point["label"] for point in record["points"]]
        sentences.append(all_seeds(results, row, labels, above_optimum=True))
    if found:
        sentences.append(_says_worst(predicted(results)))
    differs = (
        "one sequence, with arrows and a box at an error of the NTM, whose controller read the slot of another context."
    )
    return paragraph([*sentences, f"In the paper: {differs}"])


def _says_worst(shown: list[Prediction]) -> str:
    box = worst(shown, next(iter(shown[0].said)))
    one = shown[box.sequence]
    said, optimal = one.said[box.name][box.column], one.optimal[box.column]
    return (
        f"The largest disagreement of the {box.name} (box) is at bit {box.column + 1} of sequence {box.sequence + 1}: "
        f"it gives {said:.2f} where {optimal:.2f} is optimal."
    )


FIGURE = PaperFigure(14, TITLE, draw, caption, missing)
