"""What a tuning found: every candidate with what became of it, the best, and what each knob did.

`slipstream.tune` makes it; it is here so that outputs can show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Settings = Mapping[str, str]
"""knobs that are not at their default, by name"""

OK = "ok"
SAME = "same program"
NO_FIT = "does not fit"
REFUSED = "refused"
CRASH = "crash"
HANG = "hang"
OUT_OF_MEMORY = "out of memory"
DIFFERENT = "different numbers"
WRONG = "wrong results"
WAITING = "waiting"
RUNNING = "running"
FAILURES = (NO_FIT, REFUSED, CRASH, HANG, OUT_OF_MEMORY, DIFFERENT, WRONG)
"""what is recorded and never wins"""
SCORED = (OK, SAME)
SIMULATED, MEASURED = "simulated", "measured"


@dataclass(frozen=True)
class TrialResult:
    """One candidate, and what became of it."""

    number: int
    settings: Settings
    status: str
    origin: str
    """who proposed it: `default`, a preset, `layers`, `search`, `simplify`"""
    step_us: float | None = None
    interval_us: tuple[float, float] | None = None
    """95%, where it was measured"""
    memory_bytes: int | None = None
    compile_s: float | None = None
    exposed_us: float | None = None
    """communication that nothing hides"""
    basis: str = SIMULATED
    """`simulated`, or `measured`"""
    same_program_as: int | None = None
    same_work_as: int | None = None
    """an earlier candidate with the same instructions in another order"""
    change: float | None = None
    """against the baseline, of what is tuned for; negative is better"""
    change_interval: tuple[float, float] | None = None
    numbers: str = ""
    """whether its results are the baseline's, where it was run: `as the baseline's`, or `not
    checked` and why"""
    note: str = ""
    """what went wrong, or what else is to be known"""
    wrong: str = ""
    """why its results are wrong, where its program shows that they are"""

    @property
    def is_scored(self) -> bool:
        return self.status in SCORED


@dataclass(frozen=True)
class KnobEffect:
    """One knob: what it may be, why it is one, and what it was seen to do."""

    name: str
    values: tuple[str, ...]
    default: str
    why: str
    seen_by: str
    """what can tell its values apart: `program`, `simulation` or `measurement`"""
    importance: float | None = None
    """share of what the search saw, by Optuna's PED-ANOVA"""
    best_value: str | None = None
    effect: float | None = None
    """of the best value against the default, as a share of the objective; negative is better"""
    interval: tuple[float, float] | None = None
    """95%, over resamples of the candidates"""
    tried: int = 0
    """candidates in which it was not at its default"""
    basis: str = "simulated"
    """or `measured`: what the effect was seen in"""


@dataclass(frozen=True)
class ErrorMargin:
    """How far the ranking goes."""

    margin: float
    """changes smaller than this are ties"""
    basis: str
    """what the margin rests on"""
    ties: int
    """candidates that can't be told from the best"""


@dataclass(frozen=True)
class NoiseFloor:
    """What the null arm, identical to the baseline, seemed to change."""

    change: float
    low: float
    high: float

    @property
    def is_clean(self) -> bool:
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class Tuning:
    """A study as it stands."""

    target: str
    machine: str
    program: str
    objective: str
    """`step`, `memory` or `compile`"""
    jaxlib: str
    baseline: TrialResult | None
    best: TrialResult | None
    """the baseline itself where nothing is better"""
    trials: tuple[TrialResult, ...]
    """in the order in which they were tried; settings that were tried twice are one"""
    knobs: tuple[KnobEffect, ...]
    left_out: Mapping[str, str]
    """knobs that can't matter here, and why"""
    reasons: tuple[str, ...]
    """why the best is better, and what its settings mean"""
    trust: ErrorMargin | None
    noise_floor: NoiseFloor | None
    stopped_because: str
    seconds: float
    """that workers were at it, all together"""
    folder: str
    is_finished: bool = False

    @property
    def distinct(self) -> int:
        """Programs that differ from one another."""
        return sum(tried.status == OK and tried.basis == SIMULATED for tried in self.trials)

    @property
    def measured(self) -> tuple[TrialResult, ...]:
        """Candidates that were run, or tried to."""
        return tuple(tried for tried in self.trials if tried.basis == MEASURED)
