"""What a user imports: sequence models with one contract."""

from typing import Any

from tapehead.models.sequence import SequenceModel
from tapehead.registry import MODELS, resolve
from tapehead.tasks import Task
from tapehead.suggest import unknown

__all__ = ["SequenceModel", "make_model"]


def make_model(name: str, task: Task, backend: str = "auto", **options: Any) -> SequenceModel:
    """The model of that name, sized for a task; options are the keywords of its class."""
    if name not in MODELS:
        raise ValueError(unknown("model", name, MODELS))
    try:
        model: SequenceModel = resolve(MODELS[name])(task.input_size, task.output_size, **options)
    except TypeError as error:  # a misspelt option
        raise ValueError(str(error)) from error
    model.choose_backend(backend)
    return model
