"""What a user imports: sequence models with one contract."""

from typing import Any

from tapehead.models.sequence import SequenceModel

__all__ = ["SequenceModel", "check_model"]


def check_model(kind: Any, name: str) -> type[SequenceModel]:
    """The class of a model by that name, or one sentence why it is none."""
    if not (isinstance(kind, type) and issubclass(kind, SequenceModel)):
        raise ValueError(f"{name} is no model: a model is a subclass of tapehead.SequenceModel.")
    if kind.forward is not SequenceModel.forward:
        raise ValueError(f"{name} has a `forward`, which is SequenceModel's own: call the method `run`.")
    return kind
