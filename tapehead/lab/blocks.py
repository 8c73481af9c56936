"""What the lines of metrics.jsonl say about one machine. One line is a block: the mean of some hundred episodes."""

from typing import NamedTuple

from tapehead.experiment.metrics import Line
from tapehead.experiment.parts import WINDOW


class Block(NamedTuple):
    end: int
    """Episodes trained when it ended."""
    episodes: int
    """Episodes in it."""
    bits: float
    """Their mean cost; infinite if none of them was finite."""
    attempt: int = 1


def blocks_of(seed: int, metrics: list[Line]) -> list[Block]:
    """The blocks of one seed, in order; a seed that was solved and retired has fewer than others."""
    blocks, before = [], 0
    for line in metrics:
        if seed in line.seeds:
            place = line.seeds.index(seed)
            bits = line.bits[place]
            cost = float("inf") if bits is None else bits
            blocks.append(Block(line.episodes, line.episodes - before, cost, line.attempt[place]))
        before = line.episodes
    return blocks


def attempt_solved_at(blocks: list[Block], solved_at: int) -> list[Block]:
    """The blocks of the attempt that was solved after so many episodes."""
    attempt = next(block.attempt for block in blocks if block.end >= solved_at)
    return [block for block in blocks if block.attempt == attempt]


def worst_after(blocks: list[Block], solved_at: int, window: int = WINDOW) -> float:
    """The highest mean of at least `window` consecutive episodes among windows that end when it was solved or later.

    A window is whole blocks, as few as hold so many episodes. A block's mean is over its finite costs.
    """
    ends = (last for last, block in enumerate(blocks) if block.end >= solved_at)
    return max(mean_bits(blocks[_first(blocks, last, window) : last + 1]) for last in ends)


def _first(blocks: list[Block], last: int, window: int) -> int:
    """The place of the first block of the window that ends with block `last`."""
    first, episodes = last, blocks[last].episodes
    while episodes < window and first > 0:
        first -= 1
        episodes += blocks[first].episodes
    return first


def mean_bits(blocks: list[Block]) -> float:
    """The mean cost of the episodes of some blocks."""
    return sum(block.episodes * block.bits for block in blocks) / sum(block.episodes for block in blocks)


def curve_of(blocks: list[Block], most: int = 200) -> list[tuple[int, float]]:
    """A learning curve of at most `most` points: episodes, and the mean of the blocks since the point before."""
    each = max(1, -(-len(blocks) // most))
    groups = [blocks[i : i + each] for i in range(0, len(blocks), each)]
    means = [(group[-1].end, mean_bits(group)) for group in groups]
    return [(end, bits) for end, bits in means if bits < float("inf")]
