"""Everything that is fuzzed, by name: native functions, and readers of whole files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from fuzz.guard_pages import Guards
from fuzz.native_inputs import EXPECTED, NATIVE, settle
from fuzz.profile_inputs import any_times
from fuzz.readers import READERS, Reader
from slipstream.errors import SlipstreamError


@dataclass(frozen=True)
class Target:
    """One reader, or some native functions."""

    run: Callable[[Random], object]
    """make an input, and read it"""
    weight: float = 1.0
    """share of the executions, against that of other targets"""
    prepare: Callable[[Guards], object] = lambda guards: None
    expected: tuple[type[Exception], ...] = (SlipstreamError,)
    """what an input may raise"""


_WEIGHTS = {
    "xplane: events": 4.0, "xplane: lines": 4.0, "xplane: fields": 4.0, "nsys: rows": 3.0,
    "nsys: launches": 2.0, "nsys: ranges": 2.0, "profile: group-bys": 2.0, "profile: places": 2.0,
    "profile: nesting": 2.0, "profile: timeline": 2.0, "profile: executions": 2.0,
    "profile: alignment": 0.5, "simulate: clock": 2.0, "serve: views": 0.7, "serve: tracks": 2.0,
}  # fmt: skip
_SLOW = {"xplane", "nsys", "archive", "hlo proto", "any file", "costs", "manifest"}
"""readers of files that take several milliseconds: most of it for what is done with a profile"""


def _read(reader: Reader, chance: Random) -> object:
    data = reader.damage(chance.choice(reader.inputs), chance)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / reader.file
        path.write_bytes(data)
        return reader.read(path)


FILES = {
    f"file: {reader.name}": Target(partial(_read, reader), 0.03 if reader.name in _SLOW else 0.1)
    for reader in READERS
}
TARGETS: dict[str, Target] = {
    name: Target(run, _WEIGHTS.get(name, 1.0), lambda guards: settle(guards.array), EXPECTED)
    for name, run in NATIVE.items()
} | {"profiles of any times": Target(any_times, 0.02), **FILES}
