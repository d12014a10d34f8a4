"""A study's folder: all that another process needs to go on with it.

slipstream-tune/
  study.json        what is tuned, for what machine, the knobs and the constraints
  program.bin       the program as it was lowered, so that an edited script changes nothing
  costs.pb …        measured costs, where there are any
  study.sqlite3     trials, unless --storage says otherwise
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipstream.compiler.targets import Target
from slipstream.errors import BadInput
from slipstream.tune.search.storage import sqlite_url
from slipstream.tune.space.space import Space
from slipstream.writing import atomic_write

FORMAT = 1
PROGRAM, FACTS = "program.bin", "study.json"
DEFAULT_FOLDER = "slipstream-tune"


@dataclass(frozen=True)
class StudyConfig:
    """What a study is about."""

    target: str
    kind: str
    machine: str
    program: str
    """the name that XLA gave it"""
    objective: str
    jaxlib: str
    space: Space
    devices: tuple[int, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    storage: str | None = None
    costs: str | None = None
    """a path that `--costs` named"""
    most_memory_bytes: int | None = None
    tolerance: float = 0.01
    trials: int = 60
    budget_s: float = 600.0
    timeout_s: float = 600.0
    seed: int = 0
    measure: Mapping[str, Any] | None = None
    """how candidates are run; None where they are only simulated"""
    layers: Mapping[str, Any] = field(default_factory=dict)
    """what one layer weighs, by kind of collective, for the reasons"""


def write_study(folder: Path, facts: StudyConfig, content: bytes) -> None:
    """The program first: a study counts from the moment its facts are there."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / PROGRAM) as temporary:
        temporary.write_bytes(content)
    data = {"format": FORMAT, **asdict(facts), "space": facts.space.to_json()}
    with atomic_write(folder / FACTS) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def has_study(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def read_study(folder: Path) -> StudyConfig:
    """What `write_study` wrote."""
    try:
        data = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except OSError:
        raise BadInput(
            f"{folder} holds no study ({FACTS} is not there); begin one with: slipstream tune "
            f"TARGET --on SPEC --study {folder}"
        ) from None
    except ValueError as error:
        raise BadInput(f"{folder / FACTS} is no JSON ({error}); begin the study anew") from None
    if data.pop("format", None) != FORMAT:
        raise BadInput(f"{folder} is a study of another release of Slipstream; begin it anew")
    data["space"] = Space.from_json(data["space"])
    data["devices"] = tuple(data["devices"])
    return StudyConfig(**data)


def target_of(folder: Path, facts: StudyConfig) -> Target:
    """The program to compile, as it was when the study began."""
    content = (folder / PROGRAM).read_bytes()
    return Target(
        facts.kind, facts.target, content, devices=facts.devices, options=dict(facts.options)
    )


def storage_of(folder: Path, facts: StudyConfig) -> str:
    return facts.storage or sqlite_url(folder)
