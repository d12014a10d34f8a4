"""A plan's folder: everything that another process needs to continue the plan.

slipstream-plan/
  plan.json         the target, its choices, the machines, the objective
  study.sqlite3     the candidates of all machines
  flags/1/ …        studies of `slipstream tune`, one for each of the best layouts (--flags)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipstream.compiler.memory_pool import PLAN_SHARE
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target, identify
from slipstream.errors import BadInput
from slipstream.plan.search.objective import Objective
from slipstream.plan.space.choices import Choice
from slipstream.reading import damage, read_object
from slipstream.tune.search.storage import sqlite_url
from slipstream.writing import atomic_write, mark_folder

FORMAT = 1
CONFIG = "plan.json"
DEFAULT_FOLDER = "slipstream-plan"


@dataclass(frozen=True)
class PlanConfig:
    """What a plan is about: the contents of plan.json."""

    target: str
    machines: tuple[str, ...]
    choices: tuple[Choice, ...]
    objective: Objective
    jaxlib: str
    where: str = ""
    costs: str | None = None
    trials: int = 1000
    budget_s: float = 900.0
    timeout_s: float = 300.0
    seed: int = 0
    storage: str | None = None
    command: tuple[str, ...] = ()
    """of a program that is launched, with places for its choices; empty for a build function"""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """files and variables that the target reads, and their contents, by `TargetInputs`"""

    @property
    def as_target(self) -> Target:
        if self.command:
            return Target("command", self.target)
        return identify(self.target, memory_share=PLAN_SHARE)


def has_plan(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def write_plan(folder: Path, config: PlanConfig) -> None:
    mark_folder(folder)
    data = {"format": FORMAT, **asdict(config), "objective": config.objective.to_json()}
    # It may hold the password of a database.
    with atomic_write(folder / CONFIG, is_private=True) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read_plan(folder: Path) -> PlanConfig:
    """The config that `write_plan` wrote."""
    if not has_plan(folder):
        raise BadInput(
            f"{folder} holds no plan ({CONFIG} is missing); make one with: slipstream plan TARGET "
            f"--on SPEC --study {folder}"
        )
    data = read_object(folder / CONFIG, "the settings of a plan")
    if data.pop("format", None) != FORMAT:
        raise BadInput(f"{folder} was made by another release of Slipstream; make a new plan")
    with damage(folder / CONFIG, "the settings of a plan", next_step="make a new plan"):
        choices = [Choice(**{**one, "values": tuple(one["values"])}) for one in data["choices"]]
        data |= {
            "choices": tuple(choices),
            "machines": tuple(data["machines"]),
            "command": tuple(data.get("command", ())),
            "objective": Objective(**data["objective"]),
        }
        return PlanConfig(**data)


def storage_of(folder: Path, config: PlanConfig) -> str:
    return config.storage or sqlite_url(folder)


def check_unchanged(folder: Path, config: PlanConfig) -> None:
    """BadInput if what the target reads has changed: its steps must not share one ranking."""
    known = config.inputs
    if not known:
        return  # it was interrupted before anything was evaluated
    now = TargetInputs(tuple(known["files"]), tuple(known["variables"])).state()
    for kind in ("files", "variables"):
        names = known[kind].keys() | now[kind].keys()
        changed = sorted(name for name in names if known[kind].get(name) != now[kind].get(name))
        if changed:
            raise BadInput(
                f"{changed[0]} has changed since the plan in {folder} was made; make a new one: "
                f"slipstream plan {config.target} --on {','.join(config.machines)} --study DIR"
            )
