"""The ways to run a job, one of which a command takes."""

from __future__ import annotations

from slipstream.errors import BadInput
from slipstream.run.context import RunResult, Say
from slipstream.run.settings import Settings


def run(settings: Settings, say: Say) -> RunResult:
    """By the way that was asked for; BadInput where that is two."""
    _refuse_mixed(settings)
    if settings.simulate is not None:
        from slipstream.run.simulated import run_simulated

        return run_simulated(settings, settings.simulate, say)
    if settings.layouts:
        from slipstream.run.layouts import run_layouts

        return run_layouts(settings, say)
    from slipstream.run.phases import run as run_phases

    return run_phases(settings, say)


def _refuse_mixed(settings: Settings) -> None:
    ways = {
        "--simulate": settings.simulate is not None,
        "--auto": settings.auto,
        "--compare-layouts": settings.layouts,
        "--nsys": settings.nsys,
        "--in-place": settings.in_place,
    }
    taken = [name for name, is_asked in ways.items() if is_asked]
    if len(taken) > 1:
        raise BadInput(f"{taken[0]} is a way of its own, so {taken[1]} has no place there")
    if settings.auto and settings.flags:
        raise BadInput(
            "--auto compares what JAX makes of the job as it is, so --flags has no place there; "
            "set the flags for the whole job: XLA_FLAGS='…' slipstream run --auto …"
        )
