"""The outcome of one candidate, as runners return it and studies keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput
from slipstream.results.tuning import OK
from slipstream.tune.search.program_counts import ProgramCounts

OBJECTIVES = ("step", "memory", "compile")


@dataclass(frozen=True)
class Outcome:
    """One candidate's figures, or why it failed."""

    status: str
    step_us: float | None = None
    memory_bytes: int | None = None
    compile_s: float | None = None
    exposed_us: float | None = None
    least_us: float | None = None
    """lower bound for any schedule of this program"""
    program: str = ""
    """hash of the schedule and how it is launched"""
    work: str = ""
    """hash of the instructions, independent of their order"""
    low_us: float | None = None
    high_us: float | None = None
    """the 90% band of a simulated step"""
    counts: ProgramCounts | None = None
    """what the compiled program has"""
    at_once: int | None = None
    """most collectives in flight at a time, in the simulated step"""
    parts_us: Mapping[str, float] | None = None
    """the parts of the step"""
    clock_hz: float | None = None
    """at which the step was simulated: what the power cap leaves to it"""
    basis: str = "simulated"
    interval_us: tuple[float, float] | None = None
    change: float | None = None
    """of the step relative to the baseline of the same window, if measured"""
    change_interval: tuple[float, float] | None = None
    numbers: str = ""
    """whether its results match the baseline's, if it was run"""
    note: str = ""
    wrong: str = ""
    """why its results are wrong, if its program shows that they are"""
    value: float | None = None
    """the figure to minimise, for an objective that the step's own figures don't give"""
    details: Mapping[str, Any] | None = None
    """what else a plan keeps of a candidate, as JSON"""

    @property
    def is_ok(self) -> bool:
        return self.status == OK

    def score(self, objective: str) -> float | None:
        """The objective to minimise; None if the candidate can't win."""
        if not self.is_ok:
            return None
        figures = {
            "step": self.step_us, "memory": self.memory_bytes, "compile": self.compile_s,
        }  # fmt: skip
        return figures.get(objective, self.value)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        found = dict(data)
        for name in ("interval_us", "change_interval"):
            if found.get(name) is not None:
                found[name] = tuple(found[name])
        found.pop("collectives", None)  # in studies of earlier versions
        if found.get("counts") is not None:
            found["counts"] = ProgramCounts.from_json(found["counts"])
        return Outcome(**found)


def check_objective(name: str) -> str:
    if name not in OBJECTIVES:
        raise BadInput(no_such("objective", name, OBJECTIVES))
    return name
