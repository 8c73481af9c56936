"""Seeds of a population in groups of a constant size.

A matrix product of another number of seeds may round differently, and a seed's bits must not depend on its neighbours:
a group that is not full is filled with copies.
"""

import torch
from torch import Tensor


def groups(seeds: int, each: int) -> list[slice]:
    """Slices of at most `each` seeds, in order."""
    return [slice(first, min(first + each, seeds)) for first in range(0, seeds, each)]


def filled(part: Tensor, each: int) -> Tensor:
    """At most `each` seeds [S, ...] with copies of the last for those that are missing, [each, ...]: a copy."""
    return torch.cat([part, part[-1:].expand(each - len(part), *part.shape[1:])])
