"""The result of a study: every trial, the best one, and the effect of each knob.

`slipstream.tune` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from slipstream.inline import Inline
from slipstream.reading import damage

Settings = Mapping[str, str]
"""the knobs that are not at their default, by name"""

OK = "ok"
SAME = "same program"
NO_FIT = "does not fit"
REFUSED = "refused"
CRASH = "crash"
HANG = "hang"
OUT_OF_MEMORY = "out of memory"
DIFFERENT = "different numbers"
WRONG = "wrong results"
IMPOSSIBLE = "below its bound"
WAITING = "waiting"
RUNNING = "running"
FAILURES = (NO_FIT, REFUSED, CRASH, HANG, OUT_OF_MEMORY, DIFFERENT, WRONG, IMPOSSIBLE)
"""statuses of trials that are recorded but can't win"""
SCORED = (OK, SAME)
SIMULATED, MEASURED = "simulated", "measured"
MEASURE_AGAIN = "measure again, into another folder"


@dataclass(frozen=True)
class TrialResult:
    """One candidate, and its outcome."""

    number: int
    settings: Settings
    status: str
    origin: str
    """what proposed it: `default`, a preset, `layers`, `search`, `simplify`"""
    step_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    """the 90% band of a simulated step"""
    least_us: float | None = None
    """lower bound for any schedule of its program, if it was simulated"""
    interval_us: tuple[float, float] | None = None
    """95% confidence interval, if it was measured"""
    memory_bytes: int | None = None
    compile_s: float | None = None
    exposed_us: float | None = None
    """exposed communication per step"""
    compiler_cycles: int | None = None
    """XLA:TPU's own estimate for the step's operations, one after the other; None for GPUs"""
    basis: str = SIMULATED
    """`simulated`, or `measured`"""
    same_program_as: int | None = None
    same_work_as: int | None = None
    """an earlier candidate with the same instructions in another order"""
    change: float | None = None
    """relative change of the objective against the baseline; negative is better"""
    change_interval: tuple[float, float] | None = None
    numbers: str = ""
    """whether its results equal the baseline's, if it was run: `as the baseline's`, or `not
    checked` and why"""
    changes: tuple[str, ...] = ()
    """what its compiled program has that the default's doesn't, or the reverse"""
    note: str = ""
    """what went wrong, or other remarks"""
    wrong: str = ""
    """why its results are wrong, if its program shows that"""

    @property
    def is_scored(self) -> bool:
        return self.status in SCORED


@dataclass(frozen=True)
class KnobEffect:
    """One knob: its values, what it is for, and its observed effect."""

    name: str
    values: tuple[str, ...]
    default: str
    why: str
    """what it is meant to do, and what the default program has of that"""
    seen_by: str
    """what can distinguish its values: `program`, `simulation` or `measurement`"""
    importance: float | None = None
    """share of the observed variation, by Optuna's PED-ANOVA"""
    best_value: str | None = None
    effect: float | None = None
    """relative change of the objective, best value against default; negative is better"""
    interval: tuple[float, float] | None = None
    """95% confidence interval, over resamples of the candidates"""
    tried: int = 0
    """number of candidates in which it was not at its default"""
    basis: str = "simulated"
    """`simulated` or `measured`: where the effect was observed"""


@dataclass(frozen=True)
class ErrorMargin:
    """How large a change must be to count in the ranking."""

    margin: float
    """changes smaller than this are ties"""
    basis: str
    """what the margin is based on"""
    ties: int
    """number of candidates that can't be told from the best"""


@dataclass(frozen=True)
class NoiseFloor:
    """The change measured for the null arm, which is identical to the baseline."""

    change: float
    low: float
    high: float

    @property
    def is_clean(self) -> bool:
        return self.low <= 0 <= self.high

    def to_note(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_note(text: str) -> NoiseFloor:
        """What `to_note` wrote; BadInput if it is something else."""
        with damage(
            "the study's noise floor", "a change and its interval", next_step=MEASURE_AGAIN
        ):
            found = {name: float(value) for name, value in json.loads(text).items()}
            return NoiseFloor(**found)


@dataclass(frozen=True)
class Tuning(Inline):
    """The current state of a study."""

    target: str
    machine: str
    program: str
    objective: str
    """`step`, `memory` or `compile`"""
    jaxlib: str
    baseline: TrialResult | None
    best: TrialResult | None
    """the baseline itself if nothing is better"""
    trials: tuple[TrialResult, ...]
    """in the order in which they were tried; settings tried twice appear once"""
    knobs: tuple[KnobEffect, ...]
    left_out: Mapping[str, str]
    """knobs that can't matter for this program, and why"""
    reasons: tuple[str, ...]
    """why the best is better, and what its settings mean"""
    trust: ErrorMargin | None
    noise_floor: NoiseFloor | None
    stopped_because: str
    seconds: float
    """total time of all workers"""
    folder: str
    is_finished: bool = False

    @property
    def distinct(self) -> int:
        """Number of distinct programs."""
        return sum(tried.status == OK and tried.basis == SIMULATED for tried in self.trials)

    @property
    def measured(self) -> tuple[TrialResult, ...]:
        """Candidates that were run, or whose run was attempted."""
        return tuple(tried for tried in self.trials if tried.basis == MEASURED)
