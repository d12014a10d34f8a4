"""A program whose results are wrong, however fast it is."""

from __future__ import annotations

from slipstream.analyses.soundness import FLAG, PASS, SOURCE, VERIFIER, WrongBitcast, soundness
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy

NAME = "wrong-results"
COST = (
    "all-reduces are then no longer laid side by side in memory: a step of a small model on two "
    "ranks that share an H200 went from about 25 to 44 ms"
)
ONE_TYPE = (
    "or leave what is summed in one type: that model trains with the pass where the scales of its "
    "norms stay in float32 beside gradients in float32, instead of being cast to bfloat16"
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
        "the program's results are wrong",
        f"{found.seen}: {found.why}.",
        Gain(None, 0.0, None, "unknown", "it is about right and wrong, not about time"),
        _changes(evidence, found.is_known),
        tuple(_exhibit(evidence, one) for one in found.bitcasts[:MOST_EXHIBITS]),
        sources=(SOURCE,) if found.is_known else (VERIFIER,),
        is_wrong=True,
    )


def _changes(evidence: Evidence, is_known: bool) -> tuple[Remedy, ...]:
    if not is_known:
        said = "and report the program that it writes at github.com/openxla/xla/issues"
        return (Remedy("setting", "XLA_FLAGS=--xla_dump_to=DIR", said),)
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


RULE = Rule(NAME, "Does the program compute what was asked for?", check)
