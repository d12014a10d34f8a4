"""What is wrong with a step, what it costs, and what to do about it.

`diagnosis.diagnose.diagnose` makes it; it is here so that outputs can show it.
"""

from __future__ import annotations

from dataclasses import dataclass

BASES = {
    "simulated": "the recorded program run again by the simulator, with the costs of the recording",
    "measured": "time that the recording itself shows",
    "modelled": "by models of the hardware, which this run has not confirmed",
    "bound": "no more than this can be won; how much of it is not known",
    "unknown": "not known",
}
"""what a gain rests on, the best first"""


@dataclass(frozen=True)
class Gain:
    """What a step would win, in microseconds of one step."""

    us: float | None
    """what is expected; None where that isn't known"""
    low_us: float
    """what can be counted on"""
    high_us: float | None
    """the most; None where that isn't known"""
    basis: str
    """one of BASES"""
    why: str = ""
    """how it was found, and what could make it otherwise"""


@dataclass(frozen=True)
class Exhibit:
    """One instruction (or host event, or device) that shows the trouble."""

    name: str
    us: float
    """of one step"""
    times: int = 0
    """in a step; 0 where that says nothing"""
    source: str = ""
    description: str = ""
    note: str = ""


@dataclass(frozen=True)
class Remedy:
    """Something to do: the exact text to type or to write."""

    kind: str
    """`flag` (in XLA_FLAGS, or a compile option), `code`, `setting` (environment) or `command`"""
    text: str
    note: str = ""
    """what it does, and what it costs"""


@dataclass(frozen=True)
class Finding:
    """One trouble of the step."""

    rule: str
    """the rule that found it; stable"""
    title: str
    evidence: str
    """sentences with the numbers"""
    gain: Gain
    changes: tuple[Remedy, ...]
    """ways to be rid of it, the best first"""
    exhibits: tuple[Exhibit, ...] = ()
    """the instructions that show it, the longest first"""
    see: str = ""
    """command that shows more, PATH standing for the profile"""
    sources: tuple[str, ...] = ()
    """where the advice is from"""
    is_wrong: bool = False
    """whether results are wrong, which comes before all that is only slow"""


@dataclass(frozen=True)
class Abstention:
    """A rule that could not tell, and why."""

    rule: str
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """All that the rules found in a profile."""

    program: str
    """the program with the most device time, which the rules look at"""
    device: str
    steps: int
    step_us: float
    jaxlib: str
    """the release whose flags are recommended"""
    findings: tuple[Finding, ...]
    """wrong results first; then by what can be counted on, then by what is expected; where only the
    most is known, half of it counts"""
    abstained: tuple[Abstention, ...]
    clear: tuple[str, ...]
    """rules that looked and found nothing"""
    notes: tuple[str, ...] = ()
