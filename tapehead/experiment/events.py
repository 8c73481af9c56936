"""TensorBoard event files, written directly: the format is length, checksum and a small protocol buffer for each
scalar, and the package that usually writes it brings gRPC and a web server along.

A record is: length (uint64), masked CRC-32C of the length, the event, masked CRC-32C of the event. An event has fields
1 wall_time (double), 2 step (varint), 3 file_version (string), 5 summary; a summary holds values (1) with tag (1) and
simple_value (2, float). The wall time is the step: a resumed run writes the same bytes.
"""

import json
import struct
from collections.abc import Iterable
from pathlib import Path

from tapehead import files

FILE = "events.out.tfevents.0.tapehead"


def rewrite(folder: Path, lines: Iterable[str]) -> None:
    """A new event file for lines of metrics."""
    files.make_folder(folder)
    head = _record(_double(1, 0.0) + _bytes(3, b"brain.Event:2"))
    files.replace(folder / FILE, head + b"".join(_line(line) for line in lines))


def append(folder: Path, line: str) -> None:
    files.expect_folder(folder)
    files.append(folder / FILE, _line(line))


def _line(text: str) -> bytes:
    """The events of one line of metrics: bits and learning rate of every seed."""
    line = json.loads(text)
    scalars = {
        f"{name}/seed-{seed}": value
        for name in ("bits", "rate")
        for seed, value in zip(line["seeds"], line[name], strict=True)
        if value is not None
    }
    values = b"".join(_bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items())
    return _record(_double(1, float(line["episodes"])) + b"\x10" + _varint(line["episodes"]) + _bytes(5, values))


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
