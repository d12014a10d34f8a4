"""An encoder of protobuf's wire format: varints and length-delimited fields."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit is set in all bytes but the last."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """A length-delimited field: a submessage, a string or bytes."""
    content = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(content)) + content


def string(field: int, text: str) -> bytes:
    return message(field, text.encode("utf-8", "replace"))


def fixed_tag(field: int) -> bytes:
    """The tag of a fixed64 or double field, which eight bytes follow."""
    return varint(field << 3 | 1)
