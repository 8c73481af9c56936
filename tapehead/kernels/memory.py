"""Tensors whose memory a kernel may read; several as one, where they are neighbours."""

import math
import operator
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_DTYPE = operator.attrgetter("dtype")


def in_one_piece(tensors: Sequence[Tensor]) -> Tensor | None:
    """Dense tensors that stand one behind the other in one storage, as a view [1, n] of it; None if they do not."""
    first = tensors[0]
    size = first.element_size()
    begin = end = first.data_ptr()
    for address, count in zip(map(Tensor.data_ptr, tensors), map(Tensor.numel, tensors), strict=True):
        if address != end:
            return None
        end += size * count
    if not all(map(Tensor.is_contiguous, tensors)) or len(set(map(_DTYPE, tensors))) != 1:
        return None
    storage = first.untyped_storage()
    if end > storage.data_ptr() + storage.nbytes():  # neighbours by chance, each in a storage of its own
        return None
    count = (end - begin) // size
    return (first.detach() if first.requires_grad else first).as_strided((1, count), (count, 1))


def split(flat: Tensor, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Named views of the parts of flat [..., n], which stand in it one behind the other."""
    parts = flat.split([math.prod(shape) for shape in shapes.values()], dim=-1) if shapes else ()
    return {name: part.unflatten(-1, tuple(shape)) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


_TYPES = frozenset((Tensor, torch.nn.Parameter))


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are what its memory holds, so that a kernel may read them there.

    Not so for the wrappers of `torch.func`, lazily negated or zero tensors, fake tensors and other subclasses; torch's
    dispatcher knows what to do with those.
    """
    return (
        type(tensor) in _TYPES
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def all_plain(tensors: Sequence[Tensor]) -> bool:
    """`is_plain` of several tensors, without a line of Python for each."""
    return (
        _TYPES.issuperset(map(type, tensors))
        and not any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors))
        and not any(map(Tensor.is_neg, tensors))
        and not any(map(Tensor._is_zerotensor, tensors))
    )


class PlainTensors:
    """Plain tensors of one type on one device, and the memory [1, n] where they stand one behind the other, if they do.

    For those of many calls: `are` asks less than it takes to find out.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors, self.flat = tensors, in_one_piece(tensors)
        self.dtype, self.device = tensors[0].dtype, tensors[0].device
        self._same = tuple(tensors)
        self._addresses = list(map(Tensor.data_ptr, tensors))
        self._shapes = list(map(Tensor.size, tensors))
        self._dtypes = list(map(_DTYPE, tensors))

    def are(self, tensors: list[Tensor]) -> bool:
        """Whether these are the same tensors, and none was given other memory (by an assigned `.data`) or moved."""
        return (
            len(tensors) == len(self._same)
            and all(map(operator.is_, tensors, self._same))
            and list(map(Tensor.data_ptr, tensors)) == self._addresses
            and list(map(Tensor.size, tensors)) == self._shapes
            and list(map(_DTYPE, tensors)) == self._dtypes
            and all(map(Tensor.is_contiguous, tensors))
            and not any(map(Tensor.is_neg, tensors))
            and self.device == tensors[0].device
        )
