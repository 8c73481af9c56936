"""What a model carries from step to step, as torch's tools take it."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils._pytree import _register_namedtuple

State = TypeVar("State")


def carried(name: str) -> Callable[[type[State]], type[State]]:
    """For the named tuple of a state: files of `torch.export.save` may have it, by this name, and `torch.load` takes it
    although it refuses pickles of other classes."""

    def register(kind: type[State]) -> type[State]:
        _register_namedtuple(kind, serialized_type_name=name)
        torch.serialization.add_safe_globals([kind])
        return kind

    return register
