"""`slipstream plan` as a service: make a plan, resume it, show it.

start ──► plan folder ──► for each machine: bounds ─► compile and simulate ─► ranked ──► scaling
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipstream.compiler.compile import machine_of
from slipstream.compiler.targets import identify
from slipstream.compiler.versions import installed_versions
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.plan.measure.measurements import read_measurements
from slipstream.plan.plan_folder import (
    DEFAULT_FOLDER,
    PlanConfig,
    check_unchanged,
    has_plan,
    read_plan,
    write_plan,
)
from slipstream.plan.report.report import machine_plan, unit_of, why_empty
from slipstream.plan.report.scaling import scaling, scaling_reasons, strong_scaling
from slipstream.plan.search.facts import TIMEOUT_S
from slipstream.plan.search.flags import FlagSearch
from slipstream.plan.search.launched import command_parameters
from slipstream.plan.search.objective import Objective, check_objective, check_work
from slipstream.plan.search.search import MachineSearch, OnResult, Progress, open_study
from slipstream.plan.space.choices import choices_of
from slipstream.plan.space.parameters import Parameter, read_parameters
from slipstream.plan.space.search_space import SearchSpace
from slipstream.plan.space.space import space_of
from slipstream.results.planning import MachinePlan, Plan
from slipstream.tune.ray.connection import connected

FLAGS_SHARE = 0.4
"""share of the budget for flags, if they are tuned"""


@dataclass(frozen=True)
class PlanOptions:
    """The options of a new plan."""

    on: tuple[str, ...] = ("8xH200",)
    vary: tuple[str, ...] = ()
    where: str = ""
    objective: Objective = field(default_factory=Objective)
    trials: int = 1000
    budget_s: float = 900.0
    timeout_s: float = TIMEOUT_S
    folder: Path = Path(DEFAULT_FOLDER)
    storage: str | None = None
    jobs: int | None = None
    costs: str | None = None
    seed: int = 0
    ray: str | None = None
    """the address of a Ray cluster"""
    flags: int = 0
    """layouts whose flags are tuned then"""
    command: tuple[str, ...] = ()
    """of a program that is launched, instead of a build function"""


def plan(
    target: str,
    options: PlanOptions,
    *,
    on_result: OnResult = lambda machine, candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Plan:
    """Make a plan: every machine's combinations, evaluated and ranked."""
    if has_plan(options.folder):
        raise BadInput(
            f"{options.folder} already holds a plan; continue it: slipstream plan resume "
            f"{options.folder}, or name another folder: --study DIR"
        )
    # Connect first: an unreachable cluster should fail before the first compiles.
    with connected(options.ray):
        start(target, options, progress)
        return resume(
            options.folder,
            jobs=options.jobs,
            ray=options.ray,
            flags=options.flags,
            on_result=on_result,
            progress=progress,
        )


def start(target: str, options: PlanOptions, progress: Progress = lambda text: None) -> PlanConfig:
    """Read the choices, check everything that was asked for, and write the folder."""
    if not options.on:
        raise BadInput("--on names no machine; write one or several: --on 8xH100,64xH100")
    machines = [machine_of(spec) for spec in options.on]
    check_objective(options.objective, {machine.chip.name for machine in machines})
    progress(f"reading the choices of {target}")
    choices = choices_of(target, _parameters(target, options), options.vary)
    for machine in machines:
        check_work(options.objective.work, choices, machine)
        if not (space := space_of(choices, machine, options.where)).count:
            reasons = "; ".join(why_empty(space)[:3]) or "no value is left"
            raise BadInput(f"no combination is possible on {machine.spec}: {reasons}")
    config = PlanConfig(
        target=target,
        machines=options.on,
        choices=choices,
        objective=options.objective,
        jaxlib=installed_catalogue().jaxlib_version,
        where=options.where,
        costs=options.costs,
        trials=options.trials,
        budget_s=options.budget_s,
        timeout_s=options.timeout_s,
        seed=options.seed,
        storage=options.storage,
        command=options.command,
    )
    write_plan(options.folder, config)
    return config


def _parameters(target: str, options: PlanOptions) -> tuple[Parameter, ...]:
    if not options.command:
        return read_parameters(identify(target))
    if not options.objective.work:
        raise BadInput(
            "the work of a step can't be read from a command; say it with the values that vary: "
            "--work 'batch * devices * 2048' --unit tokens"
        )
    if options.flags:
        raise BadInput("--flags needs FILE.py:FUNCTION; for a command: slipstream tune")
    installed_versions()  # without a compiler, each job would be started for nothing
    return command_parameters(options.command, options.vary)


def resume(
    folder: Path,
    *,
    jobs: int | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
    ray: str | None = None,
    flags: int = 0,
    on_result: OnResult = lambda machine, candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Plan:
    """Continue a plan: evaluated combinations stay, interrupted ones are tried again."""
    config = read_plan(folder)
    config = replace(config, trials=trials or config.trials, budget_s=budget_s or config.budget_s)
    check_same_jaxlib(config)
    check_unchanged(folder, config)
    end = time.monotonic() + config.budget_s * (1 - FLAGS_SHARE if flags else 1)
    for place, spec in enumerate(config.machines):
        # What earlier machines leave of their share goes to the later ones.
        share = (end - time.monotonic()) / (len(config.machines) - place)
        search = MachineSearch(folder, config, machine_of(spec), on_result, progress)
        search.run(max(share, 1.0), jobs, ray)
    if flags:
        budget_s = config.budget_s * FLAGS_SHARE / len(config.machines)
        for found in show(folder).machines:
            FlagSearch(folder, config, found.machine).run(found, flags, budget_s, jobs, progress)
    return show(folder)


def show(folder: Path) -> Plan:
    """A plan as it stands; nothing is evaluated."""
    config = read_plan(folder)
    machines, unit, seconds = list[MachinePlan](), "", 0.0
    for spec in config.machines:
        machine = machine_of(spec)
        space = space_of(config.choices, machine, config.where)
        searched = SearchSpace(config.choices, space)
        with closing(open_study(folder, config, searched, spec)) as study:
            rows, notes = study.rows(), study.notes()
        measured = read_measurements(folder, config, searched, spec, notes)
        why = notes.get("stopped_because", "not finished")
        found = machine_plan(machine, space, rows, config.objective, why, measured)
        machines.append(FlagSearch(folder, config, spec).added_to(found))
        unit = unit or unit_of(rows, config.objective)
        seconds += sum(row.seconds for row in rows)
    return Plan(
        target=config.target,
        objective=config.objective.kind,
        unit=unit,
        machines=tuple(machines),
        scaling=scaling(machines),
        strong=strong_scaling(machines),
        reasons=scaling_reasons(machines, unit),
        global_batch=config.objective.global_batch,
        jaxlib=config.jaxlib,
        seconds=seconds,
        folder=str(folder),
        enums={one.name: one.enum for one in config.choices if one.enum},
    )


def check_same_jaxlib(config: PlanConfig) -> None:
    """Another XLA compiles other programs, whose steps must not share one ranking."""
    here = installed_catalogue().jaxlib_version
    if here != config.jaxlib:
        raise BadInput(
            f"the plan was made with jaxlib {config.jaxlib}, but {here} is installed; make a new "
            f"one: slipstream plan {config.target} --on {','.join(config.machines)} --study DIR"
        )
