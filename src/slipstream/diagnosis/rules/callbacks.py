"""Calls from the program into Python on the host, for which the device waits."""

from __future__ import annotations

from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule, RuleResults
from slipstream.profile.program import Instruction
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy
from slipstream.units import format_time

NAME = "host-callbacks"
CALLBACKS = "https://docs.jax.dev/en/latest/external-callbacks.html"


def check(evidence: Evidence) -> RuleResults:
    """The copies of callbacks, and idle time right before and after them."""
    calls = _callbacks(evidence)
    shown = [one for call in calls if (one := _exhibit(evidence, call)).us]
    total = sum(one.us for one in shown)
    if not shown or total < evidence.noticeable_us:
        return
    shown.sort(key=lambda one: -one.us)
    if evidence.is_gpu:
        stops = f"{'stops' if len(calls) == 1 else 'stop'} the device for at least"
        how = ": arguments are copied to the host, Python runs, and results are copied back"
        why = "their copies and the idle time next to them, of the longest gaps"
    else:
        stops = "takes" if len(calls) == 1 else "take"
        how = ", on a thread of the device"
        why = "their time; other threads of the device may compute meanwhile"
    total = min(total, evidence.step.wall_us)
    yield Finding(
        NAME,
        title="the device waits for Python functions that the program calls",
        evidence=f"{len(calls)} {'callback' if len(calls) == 1 else 'callbacks'} (pure_callback, "
        f"io_callback, debug.print) {stops} {format_time(total * 1e6)} of the step{how}.",
        gain=Gain(us=total, low_us=0.0, high_us=total, basis="measured", why=why),
        changes=(
            Remedy(
                "code",
                "return metrics from the jitted step, and print every few steps",
                "instead of jax.debug.print or io_callback in it; a pure_callback may be written "
                "in jax.numpy",
            ),
        ),
        exhibits=tuple(shown),
        see="slipstream gaps PATH",
        sources=(CALLBACKS,),
    )


def _callbacks(evidence: Evidence) -> list[Instruction]:
    program = evidence.program
    if program is None:
        return []
    calls = [one for one in program.runnable if one.opcode == "custom-call"]
    return [one for one in calls if evidence.kernel_features(one).kind == "callback"]


def _exhibit(evidence: Evidence, call: Instruction) -> Exhibit:
    op = evidence.op_by_name.get(call.name)
    steps = max(1, len(evidence.profile.steps))
    gaps = [gap for gap in evidence.gaps.longest if call.name in (gap.before, gap.after)]
    us = sum(gap.us for gap in gaps) / steps + (op.per_step_us if op is not None else 0.0)
    label = evidence.label(call)
    times = round(op.count / steps) if op is not None else 0
    return Exhibit(call.name, us, times, label.source, call.custom_call_target)


QUESTION = "Does the device wait for Python functions that the program calls?"
RULE = Rule(NAME, QUESTION, check, needs_gpu=False)
