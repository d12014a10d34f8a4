"""Candidates that run against the baseline, in windows: what drifts drifts for all of them.

    window   baseline · null · a · b · c     forwards, backwards, forwards …
             └ the baseline over again: what it seems to change is noise

A loser leaves the window early; a window ends when none can win any more, or all is said. The
confidence of each interval accounts for all comparisons of all looks (Bonferroni). Leaving needs no
proof: who leaves can't win.
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
    """When it is looked at the times of a window."""

    warm_rounds: int
    """that are run and not timed"""
    looks: tuple[int, ...]
    """rounds after which it is decided who goes on, and who won"""
    early: tuple[int, ...] = ()
    """rounds after which leaves who was slower in each"""

    @property
    def final(self) -> LookSchedule:
        """The same with one look, at the end."""
        return LookSchedule(self.warm_rounds, self.looks[-1:])


STEPS = LookSchedule(2, (10, 15, 22, 30))
"""where a round is a step of each arm"""
JOBS = LookSchedule(0, (10, 14, 20), (3, 6))
"""where a round is a whole run of each arm's job, which warms up by itself"""
WARM_ROUNDS, LOOKS = STEPS.warm_rounds, STEPS.looks
Time = Callable[[str], float]
"""one step of an arm, in seconds; raises ArmFailed"""
Prune = Callable[[str, float, int], bool]
"""whether an arm that changed so much in so many rounds is not worth more of them"""


class ArmFailed(Exception):
    """An arm that can't run: its status, and what was seen."""

    def __init__(self, status: str, note: str) -> None:
        super().__init__(note)
        self.status = status
        self.note = note


@dataclass
class ABWindow:
    """What one window found."""

    comparisons: dict[str, Comparison] = field(default_factory=dict)
    failures: dict[str, ArmFailed] = field(default_factory=dict)
    times_s: dict[str, list[float]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """who left early without an interval, and why"""
    rounds: int = 0

    @property
    def noise_floor(self) -> NoiseFloor | None:
        found = self.comparisons.get(NULL)
        return NoiseFloor(found.change, found.low, found.high) if found else None

    def is_known(self, name: str) -> bool:
        """Whether something can be said of a candidate; not where the time was over before."""
        return name in self.comparisons or name in self.failures or name in self.left

    def change(self, name: str) -> float:
        """By the middle of the rounds' ratios."""
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
    """Baseline, null and candidates in turn, until it is clear who wins, or the time is over."""
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
        # The widest interval of n ranks misses with a chance of 2 in 2^n: fewer can't say more.
        if 2.0 ** (1 - len(times)) <= (1 - CONFIDENCE) / tests:
            window.comparisons[name] = compare(baseline[: len(times)], times, tests)
    for name in _candidates(running):
        # A loser is dropped; the null arm stays to the end.
        found = window.comparisons.get(name)
        if found is not None and found.verdict == "slower":
            running.remove(name)


def _drop_losers(
    window: ABWindow, running: list[str], schedule: LookSchedule, prune: Prune
) -> None:
    """Who needs no proof: slower each time, or no match for those before."""
    for name in _candidates(running):
        ratios, rounds = window.ratios(name), window.rounds
        if rounds in schedule.early and min(ratios) > 1 + NEGLIGIBLE:
            window.left[name] = f"slower in each of {rounds} rounds"
            running.remove(name)
        elif prune(name, window.change(name), rounds):
            window.left[name] = "worse than most candidates before it"
            running.remove(name)


def _candidates(running: Sequence[str]) -> list[str]:
    return [name for name in running if name not in (BASELINE, NULL)]


def _can_anyone_win(window: ABWindow, running: Sequence[str]) -> bool:
    """Whether another round could change what is known."""
    verdicts = [window.comparisons.get(name) for name in _candidates(running)]
    return any(one is None or one.verdict in ("can't tell", "no different") for one in verdicts)


def outcome_of(window: ABWindow, name: str, memory_bytes: int | None, numbers: str = "") -> Outcome:
    """A candidate of a window, as a study keeps it."""
    if name in window.failures:
        failed = window.failures[name]
        return Outcome(failed.status, basis="measured", note=failed.note)
    before = median(window.times_s[BASELINE][: len(window.times_s[name])]) * 1e6
    found = window.comparisons.get(name)
    change = found.change if found is not None else window.change(name)
    # By the rounds' ratios, which drift doesn't touch, from the baseline's median.
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
    left = f"left early: {window.left[name]}" if name in window.left else ""
    verdict = f"{found.verdict}: {found.why}" if found is not None else ""
    said = "; ".join(filter(None, (verdict, left)))
    return f"{said}; {len(window.times_s[name])} rounds"


def status_of(text: str) -> str:
    """The kind of a failure, by what XLA said."""
    return OUT_OF_MEMORY if is_out_of_memory(text) else CRASH
