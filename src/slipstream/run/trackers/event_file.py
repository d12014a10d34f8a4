"""TensorBoard's event files, written without TensorBoard: importing it would take a job seconds.

record   length (8 bytes), checksum of the length, an Event, checksum of the Event
Event    wall_time = 1, step = 2, file_version = 3, summary = 5
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from slipstream.outputs.wire import fixed_tag, message, number, string, varint
from slipstream.writing import file_name, make_folder

_VERSION = "brain.Event:2"
_DT_STRING = 7
_CASTAGNOLI = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def write_events(folder: Path, scalars: Mapping[str, float], texts: Mapping[str, str]) -> Path:
    """Write a new event file with one step of scalars and texts."""
    now = time.time()
    host = file_name(socket.gethostname())
    target = make_folder(folder) / f"events.out.tfevents.{int(now)}.{host}.{os.getpid()}.slipstream"
    values = [_scalar(tag, value) for tag, value in scalars.items()]
    values += [_text(tag, text) for tag, text in texts.items()]
    # Read while it is written: a record appears whole or not at all, so it is one write.
    target.write_bytes(
        _record(_event(now, string(3, _VERSION))) + _record(_event(now, message(5, *values)))
    )
    return target


def _event(wall_time: float, content: bytes) -> bytes:
    return fixed_tag(1) + struct.pack("<d", wall_time) + number(2, 0) + content


def _scalar(tag: str, value: float) -> bytes:
    simple_value = varint(2 << 3 | 5) + struct.pack("<f", value)
    return message(1, string(1, tag), simple_value)


def _text(tag: str, text: str) -> bytes:
    shape = message(2, message(2, number(1, 1)))
    tensor = message(8, number(1, _DT_STRING), shape, string(8, text))
    metadata = message(9, message(1, string(1, "text")))
    return message(1, string(1, tag), tensor, metadata)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord has it."""
    crc = 0xFFFFFFFF
    table = _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


@cache
def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return tuple(table)
