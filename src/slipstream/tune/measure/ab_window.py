"""A/B windows: candidates interleaved with the baseline, so that drift affects all arms alike.

    window   baseline · null · a · b · c     forwards, backwards, forwards …
                        └ the baseline again: its apparent change is noise

Slower arms are dropped early; a window ends when no arm can win any more, or after its last round.
The confidence of each interval accounts for all comparisons at all looks (Bonferroni). Dropping an
arm needs no proof, because a dropped arm can't win.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from slipstream.experiment.stats import CONFIDENCE, NEGLIGIBLE, Comparison, compare, round_order
from slipstream.jaxhooks.jax_types import is_out_of_memory
from slipstream.results.tuning import CRASH, OK, OUT_OF_MEMORY, NoiseFloor
from slipstream.tune.outcome import Outcome

BASELINE, NULL = "baseline", "null"


@dataclass(frozen=True)
class LookSchedule:
    """After which rounds a window's times are compared."""

    warm_rounds: int
    """rounds before the timed ones"""
    looks: tuple[int, ...]
    """rounds after which arms are compared, and losers dropped"""
    early: tuple[int, ...] = ()
    """rounds after which arms that were slower every time are dropped"""

    @property
    def final(self) -> LookSchedule:
        """The same with a single look, at the end."""
        return LookSchedule(self.warm_rounds, self.looks[-1:])


STEPS = LookSchedule(2, (10, 15, 22, 30))
"""a round is one step of each arm"""
JOBS = LookSchedule(0, (10, 14, 20), (3, 6))
"""a round is one run of each arm's job, which warms up by itself"""
Time = Callable[[str], float]
"""the duration of one step of an arm, in seconds; raises ArmFailed"""
Prune = Callable[[str, float, int], bool]
"""(arm, change, rounds): whether to give the arm up"""


class ArmFailed(Exception):
    """An arm failed: its status, and what was seen."""

    def __init__(self, status: str, note: str) -> None:
        super().__init__(note)
        self.status = status
        self.note = note


@dataclass
class ABWindow:
    """The result of one window."""

    comparisons: dict[str, Comparison] = field(default_factory=dict)
    failures: dict[str, ArmFailed] = field(default_factory=dict)
    times_s: dict[str, list[float]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """arms that were dropped early without an interval, and why"""
    rounds: int = 0

    @property
    def noise_floor(self) -> NoiseFloor | None:
        found = self.comparisons.get(NULL)
        return NoiseFloor(found.change, found.low, found.high) if found else None

    def is_known(self, name: str) -> bool:
        """Whether the window has a result for a candidate; not if it ran out of time first."""
        return name in self.comparisons or name in self.failures or name in self.dropped

    def change(self, name: str) -> float:
        """The median of the rounds' ratios, minus 1."""
        return median(self.ratios(name)) - 1

    def ratios(self, name: str) -> list[float]:
        pairs = zip(self.times_s[BASELINE], self.times_s[name], strict=False)
        return [after / before for before, after in pairs]


def run_ab_window(
    arms: Sequence[str],
    time_one: Time,
    rounds: int | None = None,
    *,
    schedule: LookSchedule = STEPS,
    is_over: Callable[[], bool] = lambda: False,
    prune: Prune = lambda name, change, rounds: False,
) -> ABWindow:
    """Time all arms in turn until the result is clear or the time is up."""
    most = rounds or schedule.looks[-1]
    window = ABWindow(times_s={name: [] for name in (BASELINE, NULL, *arms)})
    running = [BASELINE, NULL, *arms]
    tests = (len(arms) + 1) * len(schedule.looks)
    for number in range(schedule.warm_rounds + most):
        for name in round_order(running, number):
            seconds = _timed(window, running, name, time_one)
            if seconds is not None and number >= schedule.warm_rounds:
                window.times_s[name].append(seconds)
        window.rounds = number + 1 - schedule.warm_rounds
        is_last = window.rounds == most or is_over()
        if window.rounds in schedule.looks or (is_last and window.rounds > 0):
            _compare(window, running, tests)
        if window.rounds in (*schedule.early, *schedule.looks):
            _drop_losers(window, running, schedule, prune)
        if is_last or not _can_anyone_win(window, running):
            break
    return window


def _timed(window: ABWindow, running: list[str], name: str, time_one: Time) -> float | None:
    try:
        return time_one(name)
    except ArmFailed as failed:
        if name in (BASELINE, NULL):
            raise
        window.failures[name] = failed
        window.comparisons.pop(name, None)
        running.remove(name)
        return None


def _compare(window: ABWindow, running: list[str], tests: int) -> None:
    baseline = window.times_s[BASELINE]
    for name in [one for one in running if one != BASELINE]:
        times = window.times_s[name]
        # The widest interval of n ranks misses with probability 2 / 2^n: too few prove nothing.
        if 2.0 ** (1 - len(times)) <= (1 - CONFIDENCE) / tests:
            window.comparisons[name] = compare(baseline[: len(times)], times, tests)
    for name in _candidates(running):
        # Losers are dropped; the null arm stays to the end.
        found = window.comparisons.get(name)
        if found is not None and found.verdict == "slower":
            running.remove(name)


def _drop_losers(
    window: ABWindow, running: list[str], schedule: LookSchedule, prune: Prune
) -> None:
    """Drop arms without proof: slower in every round, or worse than earlier candidates."""
    for name in _candidates(running):
        ratios, rounds = window.ratios(name), window.rounds
        if rounds in schedule.early and min(ratios) > 1 + NEGLIGIBLE:
            window.dropped[name] = f"slower in each of {rounds} rounds"
            running.remove(name)
        elif prune(name, window.change(name), rounds):
            window.dropped[name] = "worse than most candidates before it"
            running.remove(name)


def _candidates(running: Sequence[str]) -> list[str]:
    return [name for name in running if name not in (BASELINE, NULL)]


def _can_anyone_win(window: ABWindow, running: Sequence[str]) -> bool:
    """Whether another round could change the result."""
    verdicts = [window.comparisons.get(name) for name in _candidates(running)]
    return any(one is None or one.verdict in ("can't tell", "no different") for one in verdicts)


def outcome_of(window: ABWindow, name: str, memory_bytes: int | None, numbers: str = "") -> Outcome:
    """A candidate's outcome, as a study keeps it."""
    if name in window.failures:
        failed = window.failures[name]
        return Outcome(failed.status, basis="measured", note=failed.note)
    before = median(window.times_s[BASELINE][: len(window.times_s[name])]) * 1e6
    found = window.comparisons.get(name)
    change = found.change if found is not None else window.change(name)
    # The baseline's median times the rounds' ratio, which is immune to drift.
    outcome = Outcome(
        OK,
        step_us=before * (1 + change),
        memory_bytes=memory_bytes,
        basis="measured",
        change=change,
        numbers=numbers,
        note=_note(window, name, found),
    )
    if found is None:
        return outcome
    interval = (before * (1 + found.low), before * (1 + found.high))
    return replace(outcome, interval_us=interval, change_interval=(found.low, found.high))


def _note(window: ABWindow, name: str, found: Comparison | None) -> str:
    dropped = f"dropped early: {window.dropped[name]}" if name in window.dropped else ""
    verdict = f"{found.verdict}: {found.why}" if found is not None else ""
    parts = "; ".join(filter(None, (verdict, dropped)))
    return f"{parts}; {len(window.times_s[name])} rounds"


def status_of(text: str) -> str:
    """The status of a failure, by XLA's message."""
    return OUT_OF_MEMORY if is_out_of_memory(text) else CRASH
