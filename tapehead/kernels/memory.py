"""Tensors whose memory a kernel may read; several as one, where they are neighbours."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def in_one_piece(tensors: Sequence[Tensor]) -> Tensor | None:
    """Dense tensors that stand one behind the other in one storage, as a view [1, n] of it; None if they do not."""
    first = tensors[0]
    dtype, size = first.dtype, first.element_size()
    begin = end = first.data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end or tensor.dtype != dtype or not tensor.is_contiguous():
            return None
        end += size * tensor.numel()
    storage = first.untyped_storage()
    if end > storage.data_ptr() + storage.nbytes():  # neighbours by chance, each in a storage of its own
        return None
    count = (end - begin) // size
    return first.detach().as_strided((1, count), (count, 1))


def split(flat: Tensor, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Named views of the parts of flat [..., n], which stand in it one behind the other."""
    parts = flat.split([math.prod(shape) for shape in shapes.values()], dim=-1) if shapes else ()
    return {name: part.unflatten(-1, tuple(shape)) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are what its memory holds, so that a kernel may read them there.

    Not so for the wrappers of `torch.func`, lazily negated or zero tensors, fake tensors and other subclasses; torch's
    dispatcher knows what to do with those.
    """
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


class PlainTensors:
    """Plain tensors of one type on one device, and the memory [1, n] where they stand one behind the other, if they do.

    For those of many calls: `are` asks less than it takes to find out.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors, self.flat = tensors, in_one_piece(tensors)
        self.dtype, self.device = tensors[0].dtype, tensors[0].device
        self._seen = [(one, one.data_ptr(), one.shape) for one in tensors]

    def are(self, tensors: list[Tensor]) -> bool:
        """Whether these are the same tensors, and none was given other memory (by an assigned `.data`) or moved."""
        if len(tensors) != len(self._seen):
            return False
        for one, (known, address, shape) in zip(tensors, self._seen, strict=True):
            if (
                one is not known
                or one.data_ptr() != address
                or one.shape != shape
                or one.dtype != self.dtype
                or not one.is_contiguous()
                or one.is_neg()
            ):
                return False
        return self.device == tensors[0].device
