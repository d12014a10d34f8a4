"""`slipstream run`: the phases of a run, in order; a phase that is done is not repeated.

    1 check     settings that would end the job; problems that would spoil a profile
    2 profile   a few steps of the hot program, recorded
    3 costs     the cost of each instruction, from the recording
    4 compile   the hot program again, with those costs and in other ways
    5 compare   each step of the job runs one of the programs; the fastest stays

The job is started once, and phases 2 to 5 happen inside it. With `--profile-first` it is started
for phase 2 and ended, then started again for phases 4 and 5. Whatever fails in phases 2 to 5, the
job runs to its own end, with its own exit code.
"""

from __future__ import annotations

import os
import time

from slipstream.errors import BadInput, SlipstreamError
from slipstream.remote.paths import RemotePath
from slipstream.run import nsys
from slipstream.run.compare_phase import ComparePhase
from slipstream.run.context import Context, RunResult, Say
from slipstream.run.launcher import CantStart
from slipstream.run.preflight import Preflight, check_job
from slipstream.run.profile_phase import Precomputed, ProfilePhase
from slipstream.run.rank import all_ranks_share
from slipstream.run.run_dir import RUN, write_json
from slipstream.run.settings import Settings


def run(settings: Settings, say: Say) -> RunResult:
    """Run the job in the way that was asked for; BadInput if the options contradict each other."""
    _refuse_mixed(settings)
    if isinstance(settings.out, RemotePath):
        from slipstream.run.bucket import run_in_bucket

        return run_in_bucket(settings, settings.out, run, say)
    if settings.simulate is not None:
        from slipstream.run.simulated import run_simulated

        return run_simulated(settings, settings.simulate, say)
    if settings.layouts:
        from slipstream.run.layouts import run_layouts

        return run_layouts(settings, say)
    return _run_phases(settings, say)


def _refuse_mixed(settings: Settings) -> None:
    options = {
        "--simulate": settings.simulate is not None,
        "--auto": settings.auto,
        "--compare-layouts": settings.layouts,
        "--nsys": settings.nsys,
        "--profile-first": settings.profile_first and not settings.nsys,
        "--in-place": settings.in_place,
    }
    given = [name for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise BadInput(f"{given[0]} and {given[1]} can't be combined; give one of them")
    if settings.auto and settings.flags:
        raise BadInput(
            "--auto and --flags can't be combined: --auto compares what JAX makes of the job as it "
            "is; to set flags for the whole job: XLA_FLAGS='…' slipstream run --auto …"
        )


def _run_phases(settings: Settings, say: Say) -> RunResult:
    """All phases, on one rank."""
    context = Context(settings, say)
    if settings.nsys:
        nsys.nsys()
    preflight = check_job(settings)
    _report_checks(context, preflight)
    with context.run_dir.open(context.warn):
        try:
            found = _profile(context, preflight)
        except CantStart:
            raise
        except (OSError, SlipstreamError) as problem:
            # A full disk, for example: the job still has to run.
            context.warn(f"{problem}; the job runs without a profile")
            found = None
        except Exception as problem:  # a bug of ours must not keep the job from running
            context.warn(f"{type(problem).__name__}: {problem}; the job runs without a profile")
            found = None
        if isinstance(found, RunResult):
            return found
        return ComparePhase(context, preflight, found).run()


def _report_checks(context: Context, preflight: Preflight) -> None:
    jaxlib = preflight.jaxlib
    parts = [f"flags fine for jaxlib {jaxlib}" if jaxlib else "flags not checked"]
    parts += [f"{len(preflight.gpus)} × {preflight.gpus[0]}"] if preflight.gpus else ["no GPU here"]
    context.phase_facts["check"] = {"jaxlib": jaxlib, "gpus": list(preflight.gpus)}
    context.say("check", " · ".join(parts))
    for warning in (*preflight.warnings, *context.rank_notes()):
        context.warn(warning)


def _profile(context: Context, preflight: Preflight) -> Precomputed | RunResult | None:
    """A profile and its costs, from an earlier run or from a run of the job just for them."""
    run_dir, settings = context.run_dir, context.settings
    if settings.again:
        for phase in (run_dir.profile, run_dir.compare):
            run_dir.remove(phase)
    if context.rank.is_first:
        _write_run(context, preflight)
    if settings.auto or preflight.obstacle is not None:
        return None
    if not settings.starts_twice:
        return ProfilePhase(context, preflight).reused()
    if not all_ranks_share(run_dir.folder, context.rank, os.environ):
        context.warn("the ranks don't share this folder, so everything happens inside the job")
        return None
    return ProfilePhase(context, preflight).run()


def _write_run(context: Context, preflight: Preflight) -> None:
    settings = context.settings
    facts = {
        "command": list(settings.command),
        "cwd": os.getcwd(),
        "environment": dict(preflight.environment),
        "capture": [settings.start, settings.steps],
        "profile_first": settings.starts_twice,
        "auto": settings.auto,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    # `tune` starts the command again, so it is kept as it was, for its owner only.
    write_json(context.run_dir.folder / RUN, facts, is_private=True)
