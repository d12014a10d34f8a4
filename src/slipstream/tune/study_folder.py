"""A study's folder: everything that another process needs to continue the study.

slipstream-tune/
  study.json        what is tuned, for which machine, the knobs and the constraints
  program.bin       the program as it was lowered, so that editing the script changes nothing
  costs.pb …        measured costs, if there are any
  study.sqlite3     the trials, unless --storage names a database
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipstream.compiler.targets import Target
from slipstream.errors import BadInput
from slipstream.reading import damage, read_object
from slipstream.tune.search.storage import sqlite_url
from slipstream.tune.search.study import Study
from slipstream.tune.space.space import Space
from slipstream.writing import atomic_write, is_ours, mark_folder, not_ours

FORMAT = 1
PROGRAM, CONFIG = "program.bin", "study.json"
DEFAULT_FOLDER = "slipstream-tune"
SCREEN, MEASURED, LAUNCHED = "screen", "measured", "launched"
"""names of a folder's studies: simulated candidates, candidates timed in one process, and
candidates timed as launched jobs"""


@dataclass(frozen=True)
class JobSpec:
    """How candidates are timed: by launching a job, or, without a command, in one process."""

    command: tuple[str, ...] = ()
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """on top of the user's: what `slipstream run` had set"""
    start: int = 5
    """steps before the timed ones"""
    steps: int = 10
    """timed steps"""

    def to_json(self) -> dict[str, Any]:
        return {
            "command": list(self.command),
            "cwd": self.cwd,
            "environment": dict(self.environment),
            "capture": [self.start, self.steps],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> JobSpec:
        start, steps = data["capture"]
        return JobSpec(tuple(data["command"]), data["cwd"], data["environment"], start, steps)


@dataclass(frozen=True)
class StudyConfig:
    """What a study is about: the contents of study.json."""

    target: str
    kind: str
    """of the target, as `compiler.targets` has it"""
    machine: str
    program: str
    """the name that XLA gave it"""
    objective: str
    jaxlib: str
    space: Space
    devices: tuple[int, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    storage: str | None = None
    study_prefix: str = ""
    """in front of the names of its studies, in a storage that others use too"""
    costs: str | None = None
    """a path that `--costs` named"""
    most_memory_bytes: int | None = None
    tolerance: float = 0.01
    trials: int = 60
    budget_s: float = 600.0
    timeout_s: float = 600.0
    seed: int = 0
    measure: JobSpec | None = None
    """how candidates are timed; None if they are only simulated"""
    layers: Mapping[str, Any] = field(default_factory=dict)
    """size of one layer by kind of collective, to explain thresholds"""

    @property
    def measured_study(self) -> str:
        """The name of the study that keeps measured candidates."""
        return LAUNCHED if self.measure is not None and self.measure.command else MEASURED


def write_study(folder: Path, config: StudyConfig, content: bytes) -> None:
    """Write the program, then the config: with it, the study exists."""
    if (folder / PROGRAM).exists() and not has_study(folder) and not is_ours(folder):
        raise not_ours(folder / PROGRAM)
    mark_folder(folder)
    with atomic_write(folder / PROGRAM) as temporary:
        temporary.write_bytes(content)
    measure = config.measure.to_json() if config.measure is not None else None
    data = {
        "format": FORMAT, **asdict(config), "space": config.space.to_json(), "measure": measure,
    }  # fmt: skip
    # It may hold a command with credentials, or the password of a database.
    with atomic_write(folder / CONFIG, is_private=True) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def has_study(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def read_study(folder: Path) -> StudyConfig:
    """The config that `write_study` wrote."""
    if not has_study(folder):
        raise BadInput(
            f"{folder} holds no study ({CONFIG} is missing); start one with: slipstream tune "
            f"TARGET --on SPEC --study {folder}"
        )
    data = read_object(folder / CONFIG, "the settings of a study")
    if data.pop("format", None) != FORMAT:
        raise BadInput(f"{folder} was made by another release of Slipstream; start a new study")
    with damage(folder / CONFIG, "the settings of a study", next_step="start a new study"):
        data["space"] = Space.from_json(data["space"])
        data["devices"] = tuple(data["devices"])
        measure = data["measure"]
        data["measure"] = JobSpec.from_json(measure) if measure is not None else None
        return StudyConfig(**data)


def target_of(folder: Path, config: StudyConfig) -> Target:
    """The program to compile, as it was when the study started."""
    content = (folder / PROGRAM).read_bytes()
    return Target(
        config.kind, config.target, content, devices=config.devices, options=dict(config.options)
    )


def open_study(
    folder: Path, config: StudyConfig, name: str = SCREEN, space: Space | None = None
) -> Study:
    """One of the folder's studies; by default with the knobs that it can distinguish."""
    spaces = {SCREEN: config.space.screened, MEASURED: config.space.in_process}
    return Study(
        config.storage or sqlite_url(folder),
        f"{config.study_prefix}{name}",
        space or spaces.get(name, config.space),
        config.objective,
        config.seed,
    )
