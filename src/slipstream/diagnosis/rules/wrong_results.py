"""Programs that compute wrong results."""

from __future__ import annotations

from slipstream.analyses.soundness import FLAG, PASS, SOURCE, VERIFIER, WrongBitcast, soundness
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy

NAME = "wrong-results"
COST = (
    "operands of combined all-reduces are then no longer contiguous in memory: a small model's "
    "step on two ranks sharing an H200 went from about 25 to 44 ms"
)
ONE_TYPE = (
    "or reduce values of one type only: that model trains with the pass enabled if the scales of "
    "its norms stay in float32 like the other gradients, instead of being cast to bfloat16"
)


def check(evidence: Evidence) -> RuleResults:
    """Bitcasts that change the number of bytes."""
    program = evidence.program
    if program is None:
        return
    found = soundness(program)
    if found.is_sound:
        return
    yield Finding(
        NAME,
        title="the program's results are wrong",
        evidence=f"{found.seen}: {found.why}.",
        gain=Gain(
            us=None,
            low_us=0.0,
            high_us=None,
            basis="unknown",
            why="this is about correctness, not time",
        ),
        changes=_changes(evidence, found.is_known),
        exhibits=tuple(_exhibit(evidence, one) for one in found.bitcasts[:MOST_EXHIBITS]),
        sources=(SOURCE,) if found.is_known else (VERIFIER,),
        is_wrong=True,
    )


def _changes(evidence: Evidence, is_known: bool) -> tuple[Remedy, ...]:
    if not is_known:
        note = "report the dumped program at github.com/openxla/xla/issues"
        return (Remedy("setting", "XLA_FLAGS=--xla_dump_to=DIR", note),)
    set_before = evidence.flags.settings.get(FLAG, "")
    off = ",".join([*(one for one in set_before.split(",") if one), PASS])
    flag = evidence.flag(FLAG, off, COST)
    code = Remedy("code", "# see the note", ONE_TYPE)
    return (flag, code) if flag is not None else (code,)


def _exhibit(evidence: Evidence, one: WrongBitcast) -> Exhibit:
    program = evidence.program
    assert program is not None
    label = evidence.label(program.instruction(one.instruction))
    note = f"{one.source} as {one.result}"
    near = f", {one.all_reduce} an all-reduce" if one.all_reduce else ""
    return Exhibit(one.instruction, 0.0, 0, label.source, "", note + near)


RULE = Rule(NAME, "Does the program compute correct results?", check)
