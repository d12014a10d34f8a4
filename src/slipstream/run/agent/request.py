"""What the launcher asks of the agent inside the job, as a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.experiment.variants import DEFAULT_VARIANTS, Variant
from slipstream.run.run_dir import read_json, write_json

ENVIRONMENT = "SLIPSTREAM_AGENT"
"""names the file with the request, in the job's environment"""

PROFILE, COMPARE, LOOP, APPLY, LOWER = "profile", "compare", "loop", "apply", "lower"
AUTO, LAYOUT, TIME = "auto", "layout", "time"
MODES = (PROFILE, COMPARE, LOOP, APPLY, LOWER, AUTO, LAYOUT, TIME)
"""
profile   record some steps of the hot program, save it; the launcher then ends the job
compare   costs are given: compile the program anew, time it against the original, keep the faster
loop      all of it in place: record, costs, compile, compare
apply     the winner is known from before: compile it, run it
auto      JAX profiles and compiles by itself (AutoPGLE): time what it makes against the original
layout    be one of some processes, and time some steps; the launcher then ends the job
time      time some steps of the job as it is, keep what its first gave; the launcher then ends it
lower     save the hot program as JAX lowered it; the launcher then ends the job
"""


@dataclass(frozen=True)
class Request:
    """Everything the agent needs to know."""

    mode: str
    folder: str
    """of this phase and rank; exists"""
    start: int = 5
    steps: int = 3
    rounds: int = 30
    policy: str = "typical"
    variants: tuple[Variant, ...] = DEFAULT_VARIANTS
    program: str | None = None
    """name of the program that the profile is of"""
    content: str | None = None
    """its content: see `saving.content_of`"""
    devices: tuple[str, ...] = ()
    costs: str | None = None
    profile: str | None = None
    """the recording that the costs are from"""
    coverage: Mapping[str, Any] = field(default_factory=dict)
    chosen: str | None = None
    """with `apply`: the arm to run"""
    xla_flags: str = ""
    """what the job's XLA_FLAGS are, before the job itself changes them"""
    launcher: int = 0
    """its process; a profile run ends with it"""
    is_recorded_outside: bool = False
    """with `profile`: nsys records, and JAX's profiler is left alone"""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """with `layout`: coordinator, processes, process, devices"""
    profiler: Mapping[str, Any] = field(default_factory=dict)
    """attributes of `jax.profiler.ProfileOptions`"""
    variables: tuple[str, ...] = ()
    """with `time`: of the environment, to be written down as the job has them"""

    def write(self, path: Path) -> Path:
        return write_json(path, asdict(self))


def read_request(path: str | os.PathLike[str]) -> Request:
    data = read_json(Path(path))
    if data is None or data.get("mode") not in MODES:
        raise BadInput(f"{os.fspath(path)} holds no request for the agent; see: slipstream run")
    variants = tuple(Variant(**one) for one in data.pop("variants"))
    devices, variables = tuple(data.pop("devices")), tuple(data.pop("variables"))
    return Request(**data, variants=variants, devices=devices, variables=variables)
