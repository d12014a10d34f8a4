"""One recording to read: what workers are asked, and how they answer.

Messages between a process and its workers are a length and a pickle each.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO

from slipstream.errors import SlipstreamError
from slipstream.fleet.digest import Digest, digest

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Task:
    """One recording to read."""

    source: str
    dumps: str | None = None
    with_costs: bool = False


@dataclass(frozen=True)
class Refused:
    """A recording that can't be read, and why."""

    reason: str


def digest_of(task: Task) -> Digest | Refused:
    """The digest of a recording."""
    from slipstream.sources.load import load

    try:
        return digest(load(task.source, dumps=task.dumps), task.with_costs)
    except SlipstreamError as error:
        return Refused(str(error))
    except (OSError, MemoryError) as error:
        return Refused(f"can't read {task.source}: {str(error) or type(error).__name__}")


def send(stream: IO[bytes], content: object) -> None:
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> object:
    """What the other side sent; EOFError if it has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)  # written by this process's own parent or child
