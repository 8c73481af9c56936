"""`torch.nn.utils.rnn.PackedSequence` in and out, as `nn.LSTM` takes it. Rows are in the order before packing."""

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

__all__ = ["PackedSequence", "repacked", "unpacked"]


def unpacked(x: PackedSequence) -> tuple[Tensor, Tensor]:
    """Padded inputs [T, B, I], and the lengths [B] on their device."""
    padded, lengths = pad_packed_sequence(x)
    return padded, lengths.to(padded.device)


def repacked(y: Tensor, lengths: Tensor, like: PackedSequence) -> PackedSequence:
    """Outputs [T, B, O] packed as the inputs were."""
    if like.sorted_indices is not None:
        y, lengths = y.index_select(1, like.sorted_indices), lengths.index_select(0, like.sorted_indices)
    packed = pack_padded_sequence(y, lengths.cpu())
    return PackedSequence(packed.data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)
