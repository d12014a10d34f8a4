"""What the launcher asks of the agent inside the job, passed as a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.experiment.variants import DEFAULT_VARIANTS, Variant
from slipstream.reading import damage
from slipstream.run.run_dir import read_json, write_json

ENVIRONMENT = "SLIPSTREAM_AGENT"
"""the variable that names the request's file in the job's environment"""

PROFILE, COMPARE, LOOP, APPLY, LOWER = "profile", "compare", "loop", "apply", "lower"
AUTO, LAYOUT, TIME = "auto", "layout", "time"
MODES = (PROFILE, COMPARE, LOOP, APPLY, LOWER, AUTO, LAYOUT, TIME)
"""
profile   record some steps of the hot program and save it; the launcher then ends the job
compare   compile the program again with known costs, time it against the original, keep the faster
loop      all of it inside the job: record, extract costs, compile, compare
apply     an earlier run found the winner: compile it and run it
auto      JAX profiles and recompiles by itself (AutoPGLE): time its program against the original
layout    run as one of several processes and time some steps; the launcher then ends the job
time      time some steps of the unchanged job, keep its first results; the launcher then ends it
lower     save the hot program as JAX lowered it; the launcher then ends the job
"""

LOADED, JAX_IMPORTED, PROBLEM = "loaded", "jax", "problem"
"""what `site/sitecustomize.py` leaves beside the request, as `request.json.loaded`"""


def marked(request: Path, mark: str) -> Path:
    """The file that shows that the job got so far."""
    return request.with_name(f"{request.name}.{mark}")


@dataclass(frozen=True)
class Request:
    """Everything the agent needs to know."""

    mode: str
    folder: str
    """the folder of this phase and rank; it exists"""
    start: int = 5
    steps: int = 3
    rounds: int = 30
    policy: str = "typical"
    variants: tuple[Variant, ...] = DEFAULT_VARIANTS
    program: str | None = None
    """the name of the profiled program"""
    content: str | None = None
    """its content: see `program_dump.content_of`"""
    devices: tuple[str, ...] = ()
    costs: str | None = None
    profile: str | None = None
    """the recording that the costs come from"""
    coverage: Mapping[str, Any] = field(default_factory=dict)
    chosen: str | None = None
    """with `apply`: the arm to run"""
    others: tuple[Mapping[str, Any], ...] = ()
    """with `apply`: `program`, `content`, `costs` and `chosen` of the job's other functions"""
    functions: tuple[str, ...] = ()
    """names of the functions to measure, if the user chose"""
    run_folder: str | None = None
    """where a profile made inside the job, and its costs, are kept for later runs"""
    rank: int = 0
    """whose folders in there are this process's"""
    xla_flags: str = ""
    """the job's XLA_FLAGS, before the job itself changes them"""
    launcher: int = 0
    """its process id; a profile run ends with it"""
    is_recorded_outside: bool = False
    """with `profile`: nsys records, not JAX's profiler"""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """with `layout`: coordinator, processes, process, devices"""
    profiler: Mapping[str, Any] = field(default_factory=dict)
    """attributes of `jax.profiler.ProfileOptions`"""
    target: str = ""
    """with `lower`: the GPU to lower for (text of a GpuTargetConfigProto); empty for the job's"""
    track: tuple[str, ...] = ()
    """trackers that get the receipt, as `--track` names them; empty for none"""
    variables: tuple[str, ...] = ()
    """with `time`: environment variables to report as the job sees them"""

    def known(self) -> list[Request]:
        """Requests for the functions that an earlier run measured, each about one of them."""
        if self.program is None:
            return []
        return [self, *(replace(self, **other, others=()) for other in self.others)]

    def conditions(self) -> dict[str, Any]:
        """What must be the same for a profile to be reused, apart from the program."""
        return {"xla_flags": self.xla_flags, "functions": list(self.functions)}

    def write(self, path: Path) -> Path:
        """Write it, and remove the marks that the job of an earlier request left."""
        for mark in (LOADED, JAX_IMPORTED, PROBLEM):
            marked(path, mark).unlink(missing_ok=True)
        return write_json(path, asdict(self))


def read_request(path: str | os.PathLike[str]) -> Request:
    data = read_json(Path(path))
    if data is None or str(data.get("mode")) not in MODES:
        raise BadInput(f"{os.fspath(path)} holds no request; see: slipstream run --help")
    with damage(os.fspath(path), "a request of slipstream run"):
        variants = tuple(Variant(**one) for one in data.pop("variants"))
        names = ("devices", "variables", "functions", "others", "track")
        lists = {name: tuple(data.pop(name)) for name in names}
        return Request(**data | lists, variants=variants)
