"""Streams: the published Philox vectors, addresses, and the shape of the distributions."""

import numpy as np
import pytest
import torch

from tapehead.streams import WORD, key_schedule, philox, stream

# From the Random123 distribution's kat_vectors, "philox4x32 10": counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def hexadecimal(text):
    return [int(word, 16) for word in text.split()]


def scalar_philox(counter, key):
    """Philox4x32-10 with Python's integers, from the paper's description."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & WORD, (p0 >> 32) ^ c[3] ^ k1, p0 & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c


def torch_philox(counter, key):
    c = torch.tensor(counter)
    even, odd = philox(c[0::2], c[1::2], key_schedule(torch.tensor(key)))
    return torch.stack((even, odd), dim=1).flatten().tolist()


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter, key, expected):
    assert torch_philox(hexadecimal(counter), hexadecimal(key)) == hexadecimal(expected)
    assert scalar_philox(hexadecimal(counter), hexadecimal(key)) == hexadecimal(expected)


def test_address_is_the_documented_counter():
    import zlib

    seed, step = 2**40 + 5, 2**33 + 9
    source = stream(seed, "train", step)
    source.words(1, 1)
    drawn = source.words(3, 6)  # draw 1
    key = scalar_philox([zlib.crc32(b"train"), 0, 0, 0], (seed & WORD, seed >> 32))[:2]
    for row in range(3):
        blocks = [scalar_philox([1 << 24 | block, row, step & WORD, step >> 32], key) for block in range(2)]
        assert drawn[row].tolist() == (blocks[0] + blocks[1])[:6]


@pytest.mark.parametrize("method", ["words", "bits", "uniform"])
def test_rows_prefixes_and_leads_do_not_matter(method):
    def draw(seed, step, rows, n):
        return getattr(stream(seed, "x", step), method)(rows, n)

    grid = draw([3, 7, 2**50], range(10, 14), 5, 37)
    assert grid.shape == (4, 3, 5, 37)
    for k, step in enumerate(range(10, 14)):
        assert torch.equal(draw(torch.tensor([3, 7]), step, 5, 37), grid[k, :2])
        assert torch.equal(draw(7, step, 5, 37), grid[k, 1])
        assert torch.equal(draw(7, step, 2, 33), grid[k, 1, :2, :33])
    assert torch.equal(draw(7, [12, 10], 5, 37), grid[[2, 0], 1])


def test_different_addresses_differ():
    base = stream(1, "train", 0).words(2, 8)
    others = [stream(2, "train", 0), stream(1, "eval", 0), stream(1, "train", 1), stream(1, "train", 2**32)]
    seen = {tuple(base[0].tolist()), tuple(base[1].tolist())} | {tuple(o.words(1, 8)[0].tolist()) for o in others}
    assert len(seen) == 6


def test_draws_are_consumed_in_order_and_rewind():
    source = stream(1, "train", 0)
    first, second = source.bits(2, 40), source.bits(2, 40)
    assert not torch.equal(first, second)
    again = source.rewind()
    assert torch.equal(again.bits(2, 7), first[:, :7])  # a shorter first draw ...
    assert torch.equal(again.bits(2, 40), second)  # ... does not move the second
    fixed = source.rewind()
    fixed.integers(2, 1, 5, 5)
    assert torch.equal(fixed.bits(2, 40), second)  # nor does one without a choice


def chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


def test_distributions():
    # Bounds are the 0.9999 quantiles of chi-square with that many degrees of freedom; the seeds are fixed.
    source = stream(11, "test", range(20))
    integers = source.integers(500, 10, -2, 4)
    assert chi_square(torch.bincount(integers.flatten() + 2, minlength=7), 1e5 / 7) < 27.9
    uniform = source.uniform(500, 10)
    assert chi_square(torch.histc(uniform, 16, 0, 1), 1e5 / 16) < 44.3
    assert uniform.min() >= 0
    assert uniform.max() < 1
    bits = source.bits(500, 64)
    assert bits.dtype == torch.float32
    ones = bits.sum(dim=(0, 1))  # each of the 64 places by itself
    assert chi_square(ones, 5000.0) * 2 < 114.8
    pairs = (bits[..., :-1] * 2 + bits[..., 1:])[..., ::2].long().flatten()
    assert chi_square(torch.bincount(pairs, minlength=4), pairs.numel() / 4) < 21.1


def test_uniform_is_exact():
    source = stream(5, "u", 0)
    words = source.rewind().words(3, 8).tolist()
    for row, values in zip(words, source.uniform(3, 4).tolist(), strict=True):
        assert values == [((row[2 * i] >> 5) * 2**26 + (row[2 * i + 1] >> 6)) / 2**53 for i in range(4)]
    coarse = source.rewind().uniform(3, 8, precision=24)
    assert torch.equal(coarse, coarse.float().double())
    with pytest.raises(ValueError, match="24 or 53"):
        source.uniform(1, 1, precision=32)


def test_integers_with_bounds_per_row():
    high = torch.tensor([[0, 1, 5], [2, 9, 3]])
    drawn = stream([1, 2], "i", 0).integers(3, 2000, 0, high)
    assert torch.equal(drawn.amin(-1), torch.zeros(2, 3, dtype=torch.int64))
    assert torch.equal(drawn.amax(-1), high)
    assert torch.equal(drawn[1, 1], stream(2, "i", 0).integers(3, 2000, 0, 9)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, "x", 0), r"seed -1 .* 0\.\.2\^64"),
        ((0, "x", 2**64), "step 18446744073709551616 "),
        (([], "x", 0), "no seed"),
    ],
)
def test_bad_addresses(arguments, message):
    with pytest.raises(ValueError, match=message):
        stream(*arguments)


def test_bad_draws():
    with pytest.raises(ValueError, match=r"\{3\.\.2\}"):
        stream(0, "x", 0).integers(1, 1, 3, 2)
    with pytest.raises(ValueError, match="more than one draw"):
        stream(0, "x", 0).words(1, 2**27)


@pytest.mark.gpu
def test_gpu_draws_the_same_bits():
    here, there = stream([1, 2], "x", range(3)), stream([1, 2], "x", range(3), device="cuda")
    assert torch.equal(here.uniform(4, 9), there.uniform(4, 9).cpu())
    assert torch.equal(here.bits(4, 99), there.bits(4, 99).cpu())


def test_addresses_may_be_numpy_numbers():
    assert torch.equal(stream(np.int64(3), "x", 0).bits(1, 9), stream(3, "x", 0).bits(1, 9))
    assert torch.equal(stream(np.array([3, 4]), "x", 0).bits(1, 9), stream([3, 4], "x", 0).bits(1, 9))
