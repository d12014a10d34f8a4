"""`--simulate`: the phases of a run, with XLA's compiler and the simulator in place of a device.

profile   the job runs on this machine's CPU until its step is known; the real XLA:GPU compiler
          compiles the step for the machine, and its simulated timeline is the profile
costs     from that timeline
compile   the step again, with the costs and in other ways
compare   each variant simulated; the receipt says that these are predictions
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.analyses.bounds import WORTHWHILE
from slipstream.analyses.soundness import soundness
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.compile import compiler, machine_of
from slipstream.compiler.session import CompilerSession
from slipstream.costs.coverage import Coverage, check_profile, check_program
from slipstream.costs.extract import extract_costs
from slipstream.costs.table import CostTable
from slipstream.errors import SlipstreamError
from slipstream.experiment.receipt import Receipt, bare_receipt, wrong_notes
from slipstream.experiment.variants import DEFAULT_VARIANTS, SCHEDULE_VARIANTS, Variant
from slipstream.machines.machine import Machine
from slipstream.outputs.terminal.receipt import receipt_lines
from slipstream.outputs.xplane_writer import write_timeline
from slipstream.results.prediction import Prediction
from slipstream.run.agent.precomputed import coverage_facts
from slipstream.run.captured_output import CapturedStream
from slipstream.run.context import (
    SIGNALLED,
    RunResult,
    Say,
    agent_problem,
    how_far,
    signal_name,
    write_receipt,
)
from slipstream.run.launcher import running
from slipstream.run.lowered_job import (
    failure,
    is_over,
    lowered_program,
    lowering_environment,
    why_nothing,
)
from slipstream.run.preflight import Preflight, check_job
from slipstream.run.run_dir import (
    RunDir,
    mark_done,
    write_json,
)
from slipstream.run.settings import Settings
from slipstream.simulate.prediction import predict
from slipstream.units import PS_PER_US, format_time

PREDICTED = "predicted"
PREDICTION = "predicted: nothing ran on a device; XLA compiled, the step was simulated"


@dataclass(frozen=True)
class _Arm:
    """A compiled variant and its prediction."""

    variant: Variant
    compiled: Compilation | None = None
    prediction: Prediction | None = None
    error: str | None = None
    coverage: Coverage | None = None
    is_obeyed: bool | None = None


def run_simulated(settings: Settings, spec: str, say: Say) -> RunResult:
    """Run the phases for a machine that isn't here."""
    machine = machine_of(spec)
    preflight = check_job(settings)
    say("check", f"flags fine for jaxlib {preflight.jaxlib} · {machine.spec} simulated, no device")
    for warning in preflight.warnings:
        say("", warning)
    run_dir = RunDir(settings.out)
    with run_dir.open(lambda text: say("", text)):
        lowered = _lowered(run_dir, settings, machine, preflight, say)
        if isinstance(lowered, RunResult):
            assert lowered.receipt is not None
            write_receipt(lowered.receipt, run_dir.folder)
            return lowered
        target = Path(lowered["stablehlo"])
        with compiler(
            target, on=machine, progress=lambda text: say("profile…", text), program_only=True
        ) as session:
            simulated = _Simulated(run_dir, session, machine, preflight, lowered, say)
            receipt = simulated.receipt(settings)
        write_receipt(receipt, run_dir.folder)
    return RunResult(0, receipt)


def _lowered(
    run_dir: RunDir, settings: Settings, machine: Machine, preflight: Preflight, say: Say
) -> dict[str, Any] | RunResult:
    """Run the job on the CPU, with the machine's number of devices, until its step is known.

    If the job fails before that, this was the job: its output is shown and its exit code counts.
    """
    phase = run_dir.clear(run_dir.profile)
    environment = lowering_environment(os.environ, phase, machine, preflight.environment)
    say("profile…", f"the job runs on the CPU until its step is known; log: {phase}/log.txt")
    with CapturedStream(phase / "output.txt") as output, CapturedStream(phase / "log.txt") as log:
        streams = (output.writing, log.writing)
        with running(settings.command, environment, *streams, ends_with_us=True) as job:
            code = job.wait(lambda: is_over(phase))
            if code is None:
                job.stop()
    asked = job.signals.ending
    found = lowered_program(phase, code)
    if found is not None and not asked:
        return found
    output.replay(sys.stderr if settings.is_json else sys.stdout)
    log.replay(sys.stderr)
    nothing = why_nothing(phase) or how_far(phase, settings.command)
    known = agent_problem(phase) or failure(phase)
    why = known or f"there is nothing to simulate: {nothing}"
    if asked:
        code = SIGNALLED + asked[-1] if code is None else code
        why = f"{signal_name(SIGNALLED + asked[-1])} ended the job"
    elif code:
        how = f"{signal_name(code)} ended it" if code > SIGNALLED else f"exit code {code}"
        why = f"the job failed before its step was known ({how})" + (f"; {known}" if known else "")
    say("verdict", f"can't tell: {why}")
    receipt = replace(
        bare_receipt(why),
        basis=PREDICTED,
        repeat=settings.repeat(),
        notes=preflight.warnings,
        phases={"simulate": machine.spec, "exit_code": code or 0},
    )
    return RunResult(code or 0, receipt)


class _Simulated:
    """The phases after lowering."""

    def __init__(
        self,
        run_dir: RunDir,
        session: CompilerSession,
        machine: Machine,
        preflight: Preflight,
        lowered: Mapping[str, Any],
        say: Say,
    ) -> None:
        self.run_dir = run_dir
        self.session = session
        self.machine = machine
        self.preflight = preflight
        self.lowered = lowered
        self.say = say

    def receipt(self, settings: Settings) -> Receipt:
        original = self._arm(Variant("original"), None)
        if original.compiled is None or original.prediction is None:
            raise SlipstreamError(original.error or "the step was not compiled")
        timeline = self._profile(original.compiled, original.prediction)
        table, coverage = self._costs(original.prediction, settings.policy)
        self.say("compile…", f"compiling for {self.machine.spec}, with costs and in other ways")
        ours = SCHEDULE_VARIANTS if settings.schedule else ()
        variants = (*DEFAULT_VARIANTS, *ours, *self.preflight.variants)
        arms = [original, *(self._arm(variant, table) for variant in variants)]
        receipt = self._receipt(arms, coverage, timeline, settings)
        for phase, text in receipt_lines(receipt.to_json()):
            self.say(phase, text)
            for note in wrong_notes(receipt.arms) if phase == "compile" else ():
                self.say("", note)
        return receipt

    def _arm(self, variant: Variant, table: CostTable | None) -> _Arm:
        flags = {**self.preflight.flags, **variant.flags}
        costs = table if variant.uses_costs else None
        is_obeyed = None
        try:
            if variant.uses_order:
                compiled, is_obeyed = self._ordered(flags)
            else:
                compiled = self.session.compile(flags=flags, costs=costs)
            prediction = predict(compiled.program, self.machine, compilation=compiled)
        except SlipstreamError as error:
            return _Arm(variant, error=str(error))
        coverage = check_program(costs, compiled.program) if costs is not None else None
        return _Arm(variant, compiled, prediction, coverage=coverage, is_obeyed=is_obeyed)

    def _ordered(self, flags: Mapping[str, str]) -> tuple[Compilation, bool]:
        """The step in an order of our own, and whether XLA compiled that."""
        from slipstream.scheduling.comparison import MEMORY
        from slipstream.scheduling.schedule import searched

        source = self.session.scheduled(flags=flags)
        spare = round(MEMORY * self.machine.chip.memory_bytes) - source.memory.peak_bytes
        order = searched(source.program, self.machine, spare_bytes=max(spare, 0)).order
        if not order.sequences:
            raise SlipstreamError("no order was found that is faster than XLA's")
        compiled = self.session.compile(flags=flags, order=order.sequences)
        return compiled, order.is_obeyed(compiled.program, source.program)

    def _profile(self, compiled: Compilation, prediction: Prediction) -> Path:
        folder = self.run_dir.profile / "profiles" / "before"
        folder.mkdir(parents=True, exist_ok=True)
        assert prediction.timeline is not None
        timeline = write_timeline(
            prediction.timeline, folder / "simulated.xplane.pb", compiled.proto.read_bytes()
        )
        self.say(
            "profile",
            f"{self.lowered['program']} compiled by XLA, one step simulated on "
            f"{self.machine.spec}: {format_time(prediction.step_us * PS_PER_US)}, predicted",
        )
        return timeline

    def _costs(self, prediction: Prediction, policy: str) -> tuple[CostTable, Coverage]:
        assert prediction.timeline is not None
        table = extract_costs(prediction.timeline, policy)
        coverage = check_profile(table, prediction.timeline)
        self.run_dir.clear(self.run_dir.costs)
        files = [Path(file) for file in table.write(self.run_dir.costs_file)]
        facts = {"instructions": len(table), "basis": PREDICTED}
        mark_done(self.run_dir.costs, files, facts | {"coverage": coverage_facts(coverage)})
        self.say("costs", f"{len(table)} instructions · {coverage.share:.0%} of the step, modelled")
        return table, coverage

    def _receipt(
        self, arms: list[_Arm], coverage: Coverage, timeline: Path, settings: Settings
    ) -> Receipt:
        before = arms[0].prediction
        assert before is not None
        best = min((arm for arm in arms if arm.prediction), key=_step_us)
        verdict, why, shown = _verdict(arms, best)
        chosen = best.variant.name if verdict == "faster" else "original"
        after = shown.prediction or before
        phase = self.run_dir.clear(self.run_dir.compare)
        described = tuple(_described(arm, arms) for arm in arms)
        write_json(phase / "arms.json", described)
        return Receipt(
            verdict=verdict,
            why=why,
            chosen=chosen,
            step_us={"before": before.step_us, "after": after.step_us},
            change={"estimate": after.step_us / before.step_us - 1},
            pgle=self._pgle(arms, coverage),
            overlap={"before": _times(before), "after": _times(after)},
            memory_bytes={"before": before.memory_bytes, "after": after.memory_bytes},
            bounds=_bounds(before),
            arms=described,
            program={
                "name": before.program,
                "fingerprint": arms[0].compiled.program.fingerprint if arms[0].compiled else None,
                "content": self.lowered.get("content"),
                "stablehlo": self.lowered.get("stablehlo"),
            },
            versions=dict(self.session.versions),
            devices=(self.machine.spec,),
            repeat=settings.repeat(),
            files={"before": str(timeline), "costs": str(self.run_dir.costs_file)},
            basis=PREDICTED,
            notes=(PREDICTION, *wrong_notes(described), *self.preflight.warnings),
            phases={"simulate": self.machine.spec, "basis": dict(before.basis)},
        )

    def _pgle(self, arms: list[_Arm], coverage: Coverage) -> dict[str, Any]:
        arm = next((a for a in arms if a.variant.uses_costs and a.compiled), None)
        original = arms[0].compiled
        if arm is None or arm.compiled is None or original is None:
            return {"applied": None, "why": "no program was compiled with costs"}
        said = {message.code: message.text for message in arm.compiled.messages}
        used = "pgle-used" in said
        return {
            "applied": used,
            "why": "XLA's log says so" if used else "XLA did not say that it used the costs",
            "found": arm.coverage.found if arm.coverage else None,
            # XLA's checker logs only if something is missing.
            "missing": _leading_number(said.get("pgle-missing")) or 0,
            "checked_by_xla": used,
            "schedule_changed": original.program.content_hash != arm.compiled.program.content_hash,
            "device_time_with_a_cost": coverage.share,
        }


def _verdict(arms: list[_Arm], best: _Arm) -> tuple[str, str, _Arm]:
    """The verdict, the reason, and the arm that it is about."""
    before = _step_us(arms[0])
    change = _step_us(best) / before - 1
    if change < -WORTHWHILE:
        return "faster", f"{best.variant.name} would be the fastest", best
    shown = next((arm for arm in arms[1:] if arm.prediction), arms[0])
    change = _step_us(shown) / before - 1
    why = f"predictions within {WORTHWHILE:.0%} of each other can't tell programs apart"
    if change > WORTHWHILE:
        return "slower", "the original program would stay", shown
    return "no different", why, shown


def _step_us(arm: _Arm) -> float:
    return arm.prediction.step_us if arm.prediction is not None else float("inf")


def _described(arm: _Arm, arms: list[_Arm]) -> dict[str, Any]:
    program = arm.compiled.program if arm.compiled else None
    earlier = arms[: arms.index(arm)]
    same = [other.variant.name for other in earlier if _is_same(other, arm)]
    return {
        "name": arm.variant.name,
        "flags": dict(arm.variant.flags),
        "uses_costs": arm.variant.uses_costs,
        "uses_order": arm.variant.uses_order,
        "is_obeyed": arm.is_obeyed,
        "fingerprint": program.fingerprint if program else None,
        "content": program.content_hash if program else None,
        "same_program_as": same[0] if same else None,
        "error": arm.error,
        "memory_bytes": arm.prediction.memory_bytes if arm.prediction else None,
        "rounds": 1 if arm.prediction else 0,
        "step_us": arm.prediction.step_us if arm.prediction else None,
        "messages": [asdict(message) for message in arm.compiled.messages] if arm.compiled else [],
        "wrong": soundness(program).text if program else "",
    }


def _is_same(one: _Arm, other: _Arm) -> bool:
    """Whether two arms run the same program in the same way: it doesn't show command buffers."""
    if one.compiled is None or other.compiled is None or _step_us(one) != _step_us(other):
        return False
    return one.compiled.program.content_hash == other.compiled.program.content_hash


def _times(prediction: Prediction) -> dict[str, float]:
    names = ("compute", "communication", "exposed_communication", "copy", "exposed_copy", "idle")
    return {"wall": prediction.step_us} | {n: getattr(prediction, f"{n}_us") for n in names}


def _bounds(prediction: Prediction) -> dict[str, Any]:
    gain = prediction.bounds.gain(prediction.step_us)
    why = (
        "nothing to gain from overlap here"
        if gain < WORTHWHILE
        else f"no schedule of this program would gain more than {gain:.1%}"
    )
    return {"overlap_gain": gain, "least_us": prediction.bounds.least_us, "why": why}


def _leading_number(text: str | None) -> int | None:
    first = (text or "").split(" ")[0]
    return int(first) if first.isdigit() else None
