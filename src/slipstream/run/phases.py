"""The phases of `slipstream run`, one after the other; what is done is not done again.

    1 check     settings that would end the job, and what of the machine would spoil a profile
    2 profile   the job, for a few steps, recorded; then it is ended
    3 costs     what each instruction costs, out of the recording
    4 compile   the hot program anew, inside the job, with those costs and in other ways
    5 compare   the job itself: each of its steps runs one of the programs; the fastest stays

With `in_place` the job runs once, and 2 to 5 happen inside it. Whatever fails in 2 to 5, the job
runs to its own end, with its own exit code.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from slipstream.errors import SlipstreamError
from slipstream.run import nsys
from slipstream.run.compare_phase import ComparePhase
from slipstream.run.context import Context, RunResult, Say
from slipstream.run.launcher import CantStart
from slipstream.run.preflight import Preflight, check
from slipstream.run.profile_phase import Precomputed, ProfilePhase
from slipstream.run.rank import LAUNCHERS
from slipstream.run.rollcall import all_ranks_share
from slipstream.run.run_dir import write_json
from slipstream.run.settings import Settings


def run(settings: Settings, say: Say) -> RunResult:
    """All phases, on one rank."""
    context = Context(settings, say)
    if settings.nsys:
        nsys.nsys()
    checked = check(settings.presets, settings.flags)
    _tell(context, checked)
    with context.run_dir.open():
        try:
            given = _given(context, checked)
        except CantStart:
            raise
        except (OSError, SlipstreamError) as problem:
            # A full disk, say: the job is what counts.
            context.warn(f"{problem}; the job runs without a profile")
            given = None
        except Exception as problem:  # a fault of ours is no reason for the job not to run
            context.warn(f"{type(problem).__name__}: {problem}; the job runs without a profile")
            given = None
        if isinstance(given, RunResult):
            return given
        return ComparePhase(context, checked, given).run()


def _tell(context: Context, checked: Preflight) -> None:
    jaxlib = checked.jaxlib
    parts = [f"flags fine for jaxlib {jaxlib}" if jaxlib else "flags not checked"]
    parts += [f"{len(checked.gpus)} × {checked.gpus[0]}"] if checked.gpus else ["no GPU here"]
    context.found["check"] = {"jaxlib": jaxlib, "gpus": list(checked.gpus)}
    context.say("check", " · ".join(parts))
    for warning in checked.warnings:
        context.warn(warning)
    launcher = Path(context.settings.command[0]).name
    if launcher in LAUNCHERS:
        context.warn(
            f"{launcher} is part of the job: if it starts several processes, nothing is compared, "
            f"for each has to be watched; then write: {launcher} … slipstream run -- python …"
        )


def _given(context: Context, checked: Preflight) -> Precomputed | RunResult | None:
    """A profile and its costs, where the job is run for them."""
    run_dir, settings = context.run_dir, context.settings
    if settings.again:
        for phase in (run_dir.profile, run_dir.compare):
            shutil.rmtree(phase, ignore_errors=True)
    if context.rank.is_first:
        _write_run(context, checked)
    if settings.in_place or settings.auto:
        return None
    if not all_ranks_share(run_dir.folder, context.rank, os.environ):
        context.warn("not all ranks see this folder, so everything happens inside the job")
        return None
    return ProfilePhase(context, checked).run()


def _write_run(context: Context, checked: Preflight) -> None:
    settings = context.settings
    facts = {
        "command": list(settings.command),
        "cwd": os.getcwd(),
        "environment": dict(checked.environment),
        "capture": [settings.start, settings.steps],
        "in_place": settings.in_place,
        "auto": settings.auto,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_json(context.run_dir.folder / "run.json", facts)
