"""What a figure of a run is drawn from."""

from typing import NamedTuple

from tapehead.experiment.metrics import Line
from tapehead.models import SequenceModel
from tapehead.tasks import Task


class RunView(NamedTuple):
    """A trained machine and the metrics of its run. A figure is a function of this that returns a matplotlib figure, or
    None if there is nothing to draw."""

    task: Task
    model: SequenceModel
    seed: int
    """Of the model."""
    metrics: list[Line]
    """Of all seeds of the run; empty for a machine without a run."""
