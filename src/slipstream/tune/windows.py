"""Candidates that run against the baseline, in windows: what drifts drifts for all of them.

    window   baseline · null · a · b · c     forwards, backwards, forwards …
             └ the baseline over again: what it seems to change is noise

A loser leaves the window early; a window ends when none can win any more, or all is said. The
confidence of each interval accounts for all comparisons of all looks (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slipstream.analyses.tuning import CRASH, OK, OUT_OF_MEMORY, NoiseFloor
from slipstream.loop.statistics import Comparison, compare
from slipstream.tune.outcome import Outcome

BASELINE, NULL = "baseline", "null"
WARM_ROUNDS = 2
LOOKS = (8, 12, 20, 30)
"""rounds after which it is decided who goes on"""
Time = Callable[[str], float]
"""one step of an arm, in seconds; raises ArmFailed"""


class ArmFailed(Exception):
    """An arm that can't run: its status, and what was seen."""

    def __init__(self, status: str, note: str) -> None:
        super().__init__(note)
        self.status = status
        self.note = note


@dataclass
class Window:
    """What one window found."""

    comparisons: dict[str, Comparison] = field(default_factory=dict)
    failures: dict[str, ArmFailed] = field(default_factory=dict)
    times_s: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0

    @property
    def noise_floor(self) -> NoiseFloor | None:
        found = self.comparisons.get(NULL)
        return NoiseFloor(found.change, found.low, found.high) if found else None


def run_window(arms: Sequence[str], time_one: Time, rounds: int = LOOKS[-1]) -> Window:
    """Baseline, null and candidates in turn, until it is clear who wins."""
    window = Window(times_s={name: [] for name in (BASELINE, NULL, *arms)})
    running = [BASELINE, NULL, *arms]
    tests = (len(arms) + 1) * len(LOOKS)
    for number in range(WARM_ROUNDS + rounds):
        order = running if number % 2 == 0 else running[::-1]
        for name in list(order):
            seconds = _timed(window, running, name, time_one)
            if seconds is not None and number >= WARM_ROUNDS:
                window.times_s[name].append(seconds)
        window.rounds = number + 1 - WARM_ROUNDS
        if window.rounds in LOOKS or window.rounds == rounds:
            _look(window, running, tests)
            if not _can_anyone_win(window, running):
                break
    return window


def _timed(window: Window, running: list[str], name: str, time_one: Time) -> float | None:
    try:
        return time_one(name)
    except ArmFailed as failed:
        if name in (BASELINE, NULL):
            raise
        window.failures[name] = failed
        running.remove(name)
        return None


def _look(window: Window, running: list[str], tests: int) -> None:
    baseline = window.times_s[BASELINE]
    for name in [one for one in running if one != BASELINE]:
        times = window.times_s[name]
        window.comparisons[name] = compare(baseline[: len(times)], times, tests)
    for name in [one for one in running if one not in (BASELINE, NULL)]:
        # A loser is dropped; the null arm stays to the end.
        if window.comparisons[name].verdict == "slower":
            running.remove(name)


def _can_anyone_win(window: Window, running: Sequence[str]) -> bool:
    """Whether another round could change what is known."""
    others = [name for name in running if name not in (BASELINE, NULL)]
    open_verdicts = ("can't tell", "no different")
    return any(window.comparisons[name].verdict in open_verdicts for name in others)


def outcome_of(window: Window, name: str, memory_bytes: int | None) -> Outcome:
    """A candidate of a window, as a study keeps it."""
    if name in window.failures:
        failed = window.failures[name]
        return Outcome(failed.status, basis="measured", note=failed.note)
    found = window.comparisons[name]
    # By the rounds' ratios, which drift doesn't touch, from the baseline's median.
    before = found.before_us
    return Outcome(
        OK,
        step_us=before * (1 + found.change),
        memory_bytes=memory_bytes,
        basis="measured",
        interval_us=(before * (1 + found.low), before * (1 + found.high)),
        change=found.change,
        change_interval=(found.low, found.high),
        note=f"{found.verdict}: {found.why}; {found.rounds} rounds",
    )


def status_of(text: str) -> str:
    """The kind of a failure, by what XLA said."""
    is_memory = "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()
    return OUT_OF_MEMORY if is_memory else CRASH
