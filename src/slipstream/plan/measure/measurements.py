"""Everything that was measured for one machine of a plan, and its candidates in that light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.plan.measure.calibration import agreement, calibrate, calibrated
from slipstream.plan.measure.measured import (
    MEASURED_WITH,
    Key,
    measured_outcomes,
    with_measured,
)
from slipstream.plan.measure.recording import is_better, recorded_outcomes, with_recorded
from slipstream.plan.plan_folder import PlanConfig
from slipstream.plan.space.search_space import SearchSpace
from slipstream.results.planning import Agreement, Candidate
from slipstream.tune.outcome import Outcome


@dataclass(frozen=True)
class Measurements:
    """What was measured with one jaxlib, by settings."""

    jaxlib: str
    planned_with: str
    """the jaxlib of the plan's predictions"""
    measured: Mapping[Key, Outcome]
    simulated: Mapping[Key, Outcome] = field(default_factory=dict)
    """with costs from a recording"""
    recorded: Key = ()
    """the candidate that was recorded"""


def read_measurements(
    folder: Path, config: PlanConfig, space: SearchSpace, spec: str, notes: Mapping[str, str]
) -> Measurements | None:
    """The measurements of the jaxlib that was used last; None if nothing was measured.

    `notes` are those of the search's study.
    """
    jaxlib = notes.get(MEASURED_WITH)
    if jaxlib is None:
        return None
    place = (folder, config, space, spec, jaxlib)
    simulated, recorded = recorded_outcomes(*place)
    return Measurements(jaxlib, config.jaxlib, measured_outcomes(*place), simulated, recorded)


def with_measurements(
    candidates: Sequence[Candidate], found: Measurements | None
) -> tuple[tuple[Candidate, ...], Agreement | None]:
    """Candidates with measured steps, the others recalibrated; and how predictions compare."""
    if found is None or not found.measured:
        return tuple(candidates), None
    notes = []
    if found.jaxlib != found.planned_with:
        notes.append(
            f"predictions are those of jaxlib {found.planned_with}, measured was {found.jaxlib}"
        )
    plain = with_measured(candidates, found.measured)
    chosen = plain
    if found.simulated:
        again = with_measured(with_recorded(candidates, found.simulated), found.measured)
        if is_better(plain, again, found.recorded):
            chosen = again
            notes = ["predictions use costs from a recording of a measured candidate"]
    by = calibrate(chosen)
    return calibrated(chosen, by), agreement(chosen, by, "; ".join(notes))
