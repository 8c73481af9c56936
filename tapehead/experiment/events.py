"""TensorBoard event files, written directly: the format is length, checksum and a small protocol buffer for each
scalar, and the package that usually writes it brings gRPC and a web server along.

A record is: length (uint64), masked CRC-32C of the length, the event, masked CRC-32C of the event. An event has fields
1 wall_time (double), 2 step (varint), 3 file_version (string), 5 summary; a summary holds values (1) with tag (1) and
simple_value (2, float). The wall time is when the event was first written; a resumed run keeps the times of what it
had written before.
"""

import contextlib
import json
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tapehead import files

FILE = "events.out.tfevents.0.tapehead"
STEP = 0x10
"""The key of field 2, a varint."""
HEAD = -1
"""Stands for the step of the first event, which has a version instead."""


def rewrite(folder: Path, lines: Iterable[str]) -> None:
    """A new event file for lines of metrics, with the times that the present one has for them."""
    files.make_folder(folder)
    now, known = time.time(), _times(folder / FILE)
    head = _record(_double(1, known.get(HEAD, now)) + _bytes(3, b"brain.Event:2"))
    events = (_line(line, known.get(json.loads(line)["episodes"], now)) for line in lines)
    files.replace(folder / FILE, head + b"".join(events))


def append(folder: Path, line: str) -> None:
    files.expect_folder(folder)
    files.append(folder / FILE, _line(line, time.time()))


def _times(path: Path) -> dict[int, float]:
    """When the events of a file were written, by their steps; as far as it can be read."""
    times: dict[int, float] = {}
    with contextlib.suppress(OSError, ValueError, struct.error, IndexError):
        for data in _records(files.read(path)):
            step = _number(data[10:]) if data[9] == STEP else HEAD  # behind the wall time
            times[step] = struct.unpack("<d", data[1:9])[0]
    return times


def _records(data: bytes) -> Iterator[bytes]:
    """The events of a file."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        yield data[at + 12 : at + 12 + length]
        at += length + 16


def _number(data: bytes) -> int:
    """The varint that the data begins with."""
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 127) << (7 * place)
        if byte < 128:
            break
    return number


def _line(text: str, wall_time: float) -> bytes:
    """The events of one line of metrics: bits and learning rate of every seed."""
    line = json.loads(text)
    scalars = {
        f"{name}/seed-{seed}": value
        for name in ("bits", "rate")
        for seed, value in zip(line["seeds"], line[name], strict=True)
        if value is not None
    }
    values = b"".join(_bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items())
    return _record(_double(1, wall_time) + bytes([STEP]) + _varint(line["episodes"]) + _bytes(5, values))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return bytes([field << 3 | 5]) + struct.pack("<f", value)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data))


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and offset as the format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
