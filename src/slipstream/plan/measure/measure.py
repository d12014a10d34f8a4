"""`slipstream plan measure`: candidates of a plan timed on the devices that are here.

plan folder ─► is its machine here? ─► measure ─► record one ─► simulate again ─► ranked again
                                                  └─ GPUs only ─────────────┘
"""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path

from slipstream.compiler.compile import machine_of
from slipstream.compiler.local_gpu import is_same_model, visible_gpu
from slipstream.compiler.source_tracking import ALWAYS, TargetInputs
from slipstream.errors import BadInput, Missing
from slipstream.machines.machine import Machine
from slipstream.plan.measure.arms import Arms, Here
from slipstream.plan.measure.launched_arms import LaunchedArms
from slipstream.plan.measure.measuring import Measuring, OnMeasured, Progress
from slipstream.plan.measure.recording import simulate_again
from slipstream.plan.measure.selection import MeasureOptions, to_simulate_again
from slipstream.plan.plan_folder import PlanConfig, read_plan
from slipstream.plan.plans import show
from slipstream.results.planning import Candidate, Plan
from slipstream.simulate.recorded import recorded_costs
from slipstream.sources.load import load
from slipstream.tune.measure.ab_window import ArmFailed
from slipstream.writing import file_name

CACHE = "compiled"
"""in the plan's folder: JAX's compilation cache, so that a process that died costs little"""
RECORDINGS = "recordings"


def measure(
    folder: Path,
    options: MeasureOptions | None = None,
    *,
    use_gpu: bool | None = None,
    on_result: OnMeasured = lambda candidate, outcome: None,
    progress: Progress = lambda text: None,
) -> Plan:
    """Measure candidates of a plan on the devices that are here; the plan, ranked again.

    `use_gpu=False` takes as many devices of the CPU for the plan's GPUs, for tests.
    """
    options = options or MeasureOptions()
    config = read_plan(folder)
    check_same_target(folder, config)
    use_gpu = use_gpu is not False
    progress("starting JAX on the devices that are here")
    with _arms(folder, config, use_gpu, options.timeout_s) as arms:
        machine = machine_here(config, folder, arms.here, needs_gpu=use_gpu)
        plan = next(one for one in show(folder).machines if one.machine == machine.spec)
        measuring = Measuring(folder, config, machine, arms, options, on_result, progress)
        measuring.run(plan)
        best = min(measuring.measured, key=lambda pair: pair[0], default=None)
        recording = None
        if isinstance(arms, Arms) and use_gpu and options.records and best is not None:
            progress("recording the best candidate")
            recording = _record(arms, best[1], folder / RECORDINGS / file_name(machine.spec))
    if best is not None and recording is not None:
        progress("simulating candidates with recorded costs")
        costs = recorded_costs(str(recording), load)
        done = [one for _, one in measuring.measured]
        some = to_simulate_again(plan, config.objective.kind, done)
        place = (folder, config, measuring.space, machine.spec, arms.here.jaxlib)
        simulate_again(place, machine, costs, best[1], some)
    return show(folder)


def _arms(folder: Path, config: PlanConfig, use_gpu: bool, timeout_s: float) -> Arms | LaunchedArms:
    if config.command:
        return LaunchedArms(config.command, folder, use_gpu=use_gpu, timeout_s=timeout_s)
    module, _, function = config.target.rpartition(":")
    return Arms(module, function, use_gpu=use_gpu, timeout_s=timeout_s, cache=folder / CACHE)


def _record(arms: Arms, candidate: Candidate, folder: Path) -> Path | None:
    """The folder of a recording of one candidate; None if the profiler fails."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    try:
        arms.record(str(candidate.number), folder / now)
    except ArmFailed:
        return None  # predictions stay as they are, or get a factor
    return folder / now


def check_measurable(folder: Path) -> None:
    """Missing if nothing can be measured once the plan is made."""
    if visible_gpu() is None:
        raise Missing(
            "no GPU is visible to measure on; make the plan without --measure, copy its folder to "
            f"the machine that it is for, and run there: slipstream plan measure {folder}"
        )


def check_same_target(folder: Path, config: PlanConfig) -> None:
    """BadInput if the target would be built as another program than the plan's.

    Files may be at another place on this machine, which variables such as PATH say, and JAX may be
    set up otherwise.
    """
    again = f"slipstream plan measure {folder}"
    for name, value in config.inputs.get("variables", {}).items():
        own = os.environ.get(name)
        if name.startswith(ALWAYS) or own == value or (_is_place(value) and _is_place(own)):
            continue
        here = f"{name}={os.environ[name]}" if name in os.environ else f"{name} is not set"
        if value is None:
            raise BadInput(f"{here} here, but was not set for the plan; run: env -u {name} {again}")
        raise BadInput(
            f"{here} here, but was {value} for the plan; run: {name}={shlex.quote(value)} {again}"
        )
    files = [file for file in config.inputs.get("files", {}) if Path(file).exists()]
    now = TargetInputs(tuple(files)).state()["files"]
    for file in files:
        if now[file] != config.inputs["files"][file]:
            raise BadInput(
                f"{file} has changed since the plan in {folder} was made; make a new one: "
                f"slipstream plan {config.target} --on {','.join(config.machines)} --study DIR"
            )


def _is_place(value: str | None) -> bool:
    """Whether a variable is unset, a path, or a list of them: those differ between machines."""
    return not value or all(Path(part).is_absolute() for part in value.split(os.pathsep) if part)


def machine_here(config: PlanConfig, folder: Path, here: Here, *, needs_gpu: bool) -> Machine:
    """The machine of the plan that is here; Missing if none of them is."""
    machines = [machine_of(spec) for spec in config.machines]
    for one in machines:
        is_same = is_same_model(one, here.kind) if needs_gpu else here.platform == "cpu"
        if is_same and one.devices == here.devices:
            return one
    seen = f"{here.devices} × {here.kind}"
    wanted = " or ".join(f"{one.devices} × {one.chip.full_name}" for one in machines)
    again = f"slipstream plan {config.target} --on SPEC --study DIR"
    if here.platform == "cpu":
        raise Missing(
            f"the plan in {folder} is for {wanted}, and JAX sees no GPU here ({seen}); copy the "
            f"folder to such a machine, and run there: slipstream plan measure {folder}"
        )
    raise Missing(
        f"the plan in {folder} is for {wanted}, but here are {seen}; measure it on such a machine "
        f"(CUDA_VISIBLE_DEVICES can leave out some GPUs), or make a plan for this one: {again}"
    )
