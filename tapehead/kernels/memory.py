"""Several tensors as one, where they are neighbours in memory."""

from collections.abc import Sequence

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
