"""What a disk, a cable or a hand does to the bytes of a file."""


def flip_bit(data, source):
    place = source.randrange(len(data) * 8)
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def truncate(data, source):
    return data[: source.randrange(len(data))]


def zero_block(data, source):
    start = source.randrange(len(data))
    end = min(len(data), start + source.choice((1, 16, 512)))
    zeroed = data[:start] + bytes(end - start) + data[end:]
    return zeroed if zeroed != data else flip_bit(data, source)


def lengthen(data, source):
    return data + source.choice((b"\0", b"\n", b" ", data))


HARMS = (flip_bit, truncate, zero_block, lengthen)
