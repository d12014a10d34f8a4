"""A diagnosis: what slows a step down, what it costs, and what to do about it.

`diagnosis.diagnose.diagnose` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.inline import Inline

BASES = {
    "simulated": "the recorded program, simulated with the costs of the recording",
    "measured": "time seen in the recording itself",
    "modelled": "from hardware models, not confirmed by this recording",
    "bound": "an upper bound: the actual gain is unknown",
    "unknown": "unknown",
}
"""what the estimate of a gain is based on, best first"""


@dataclass(frozen=True)
class Gain:
    """What a step would gain, in microseconds."""

    us: float | None
    """the expected gain; None if unknown"""
    low_us: float
    """the gain that can be counted on"""
    high_us: float | None
    """the most that can be gained; None if unknown"""
    basis: str
    """one of BASES"""
    why: str = ""
    """how it was estimated, and what could change it"""


@dataclass(frozen=True)
class Exhibit:
    """One instruction (or host event, or device) that shows the problem."""

    name: str
    us: float
    """per step"""
    times: int = 0
    """executions per step; 0 if not applicable"""
    source: str = ""
    description: str = ""
    note: str = ""
    equal: tuple[str, ...] = ()
    """it and the instructions of other layers that do the same; empty if it is no instruction"""
    equal_us: float = 0.0
    """per step, of all of these"""
    equal_times: int = 0
    """executions per step, of all of these"""


@dataclass(frozen=True)
class Remedy:
    """Something to change: the exact text to type or write."""

    kind: str
    """`flag` (in XLA_FLAGS, or a compile option), `code`, `setting` (environment) or `command`"""
    text: str
    note: str = ""
    """what it does, and what it costs"""


@dataclass(frozen=True)
class Finding:
    """One problem of the step."""

    rule: str
    """the rule that found it; a stable name"""
    title: str
    evidence: str
    """sentences with figures"""
    gain: Gain
    changes: tuple[Remedy, ...]
    """remedies, best first"""
    exhibits: tuple[Exhibit, ...] = ()
    """the instructions that show it, longest first"""
    see: str = ""
    """command that shows more; PATH stands for the profile"""
    sources: tuple[str, ...] = ()
    """where the advice comes from"""
    is_wrong: bool = False
    """whether results are wrong; such findings are listed first"""


@dataclass(frozen=True)
class Abstention:
    """A rule that could not decide, and why."""

    rule: str
    why: str


@dataclass(frozen=True)
class Diagnosis(Inline):
    """Everything that the rules found in a profile."""

    program: str
    """the program with the most device time, which the rules examine"""
    device: str
    steps: int
    step_us: float
    jaxlib: str
    """the release whose flags are recommended"""
    findings: tuple[Finding, ...]
    """wrong results first; then by `low_us`, then by `us`, or by half of `high_us` if only that is
    known"""
    abstained: tuple[Abstention, ...]
    clear: tuple[str, ...]
    """rules that found no problem"""
    notes: tuple[str, ...] = ()
