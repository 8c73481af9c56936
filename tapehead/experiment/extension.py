"""A run that goes on to more episodes than it was asked for at first.

That is exact if nothing that has happened so far would have been otherwise: a run with more episodes from the start
ends with the same bytes. It is refused where the number of episodes has had an effect already, through a schedule, a
curriculum or validations: the folder's experiment would no longer say what its weights come from.
"""

from tapehead.experiment.config import Experiment
from tapehead.experiment.parts import BLOCK


def extends(experiment: Experiment, other: Experiment) -> bool:
    """Whether an experiment is another with more episodes, and with everything else as it was."""
    more = experiment.training.episodes
    if more <= other.training.episodes:
        return False
    try:
        return other.with_values({"training.episodes": more}).hash == experiment.hash
    except ValueError:  # its other values do not fit so many
        return False


def why_not(experiment: Experiment, other: Experiment, updates: int) -> str:
    """Why so many updates of `other` are not the first ones of `experiment`, which extends it; empty if they are."""
    if experiment.restarts.attempts > 1:
        return "seeds are restarted at the end of their episodes"
    if any(experiment.rate(update) != other.rate(update) for update in range(updates)):
        return f"the {type(experiment.schedule).__name__} schedule of the learning rate depends on their number"
    blocks = range(BLOCK, updates + 1, BLOCK)
    if any(_taught(experiment, done) != _taught(other, done) for done in blocks):
        return "the curriculum lasts for a share of them"
    if any(experiment.validates_at(done) != other.validates_at(done) for done in blocks):
        return "machines are validated at times that depend on their number"
    return ""


def _taught(experiment: Experiment, done: int) -> tuple[bool, bool]:
    """Whether the block that ends here is of the curriculum, and of one that ends."""
    taught = experiment.curriculum_updates
    return done <= taught, taught < experiment.updates
