"""The receipt: what a loop did, what it proved, and everything needed to repeat it.

`verdict` is one of: faster, no different, slower (the original program stays), can't tell.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from slipstream.errors import BadInput, SlipstreamError
from slipstream.experiment.environment import launch_facts
from slipstream.experiment.phase_times import times_of_ranks
from slipstream.experiment.plan import ExperimentOutcome
from slipstream.experiment.stats import Comparison
from slipstream.experiment.variants import Arm, is_reordered
from slipstream.inline import Inline
from slipstream.jaxhooks.shutdown import SHUTDOWN, run_in_background
from slipstream.masking import masked
from slipstream.profile.program import Program
from slipstream.reading import read_object
from slipstream.units import format_time
from slipstream.writing import atomic_write

if TYPE_CHECKING:
    from slipstream.experiment.controller import Controller

log = logging.getLogger("slipstream")

FILE = "receipt.json"
COMPARISON = "comparison.json"
"""what the agent inside a job hands to its launcher: a receipt without what the profiles show and
what the launcher knows. The launcher completes it and writes `receipt.json`, once."""
NOTHING_ELSE = "every variant is the same program as the original: there is nothing else to try"
_JSON_TYPES: Mapping[str, tuple[type, str]] = {
    "str": (str, "a text"),
    "Mapping": (dict, "an object"),
    "tuple": (list, "a list"),
}
"""by the type of a receipt's field: its JSON, and that in words"""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Receipt(Inline):
    """The result of one loop, with its proof."""

    verdict: str
    why: str
    chosen: str
    """the arm that runs from now on"""
    step_us: Mapping[str, float | None]
    """`before` and `after`: medians of the interleaved step times"""
    change: Mapping[str, float] | None
    """relative change of the step time: estimate, low, high, confidence, rounds"""
    pgle: Mapping[str, Any]
    """whether it was applied: costs found and missing, XLA's check, whether the schedule changed"""
    overlap: Mapping[str, Any]
    """`before` and `after`: the time of a step by what the device did"""
    memory_bytes: Mapping[str, int | None]
    bounds: Mapping[str, Any]
    """the most that better overlap could gain"""
    arms: tuple[Mapping[str, Any], ...]
    program: Mapping[str, Any]
    versions: Mapping[str, str]
    devices: tuple[str, ...]
    repeat: Mapping[str, Any]
    """command, flags and environment"""
    files: Mapping[str, str]
    basis: str = "measured"
    """`measured` or `predicted`"""
    notes: tuple[str, ...] = field(default_factory=tuple)
    phases: Mapping[str, Any] = field(default_factory=dict)
    """with `slipstream run`: what each phase found"""
    ranks: Mapping[str, Any] = field(default_factory=dict)
    """how many took part, and how long each phase took: median, slowest, and which rank that was"""
    functions: tuple[Mapping[str, Any], ...] = ()
    """where a job has several that matter: each with its comparison, this one first"""
    together: Mapping[str, Any] | None = None
    """the step before and after, with what all functions gained"""

    def to_json(self) -> dict[str, Any]:
        return {name: masked(value) for name, value in asdict(self).items()}

    def write(self, folder: Path, name: str = FILE) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / name
        with atomic_write(target, is_private=True) as temporary:
            temporary.write_text(json.dumps(self.to_json(), indent=1, default=str) + "\n")
        return target

    def sentence(self) -> str:
        """The verdict in one sentence."""
        before, after = self.step_us.get("before"), self.step_us.get("after")
        if self.change is None or before is None or after is None:
            return f"{self.verdict}: {self.why}"
        c = self.change
        interval = f" (95%: {c['low']:+.1%} … {c['high']:+.1%})" if "low" in c else ""
        return (
            f"{self.verdict}: {format_time(before * 1e6)} → {format_time(after * 1e6)}, "
            f"{c['estimate']:+.1%}{interval}. {self.why}"
        )


def read_receipt(path: Path) -> Receipt:
    """A receipt from its file, or from the folder that holds it; BadInput if it is none."""
    file = path / FILE if path.is_dir() else path
    data = read_object(file, "a receipt")
    given: dict[str, Any] = {}
    for one in fields(Receipt):
        is_required = one.default is MISSING and one.default_factory is MISSING
        if one.name in data or is_required:
            given[one.name] = _checked(file, one.name, str(one.type), data.get(one.name))
    return Receipt(**given)


def _checked(file: Path, name: str, type_name: str, value: Any) -> Any:
    """The value of a field, if its JSON has the type that the receipt declares."""
    if value is None and type_name.endswith("| None"):
        return None
    kind, *inner = re.findall("str|Mapping|tuple", type_name)
    json_type, expected = _JSON_TYPES[kind]
    if isinstance(value, json_type):
        if not isinstance(value, list):
            return value
        if all(isinstance(one, _JSON_TYPES[inner[0]][0]) for one in value):
            return tuple(value)
    raise BadInput(f"{file} is not a receipt: expected {expected} under {name!r}; make it again")


def bare_receipt(why: str, verdict: str = "can't tell") -> Receipt:
    """The receipt of a loop that never reached a comparison."""
    return Receipt(
        verdict=verdict,
        why=why,
        chosen="original",
        step_us={"before": None, "after": None},
        change=None,
        pgle={"applied": None, "why": why},
        overlap={},
        memory_bytes={"before": None, "after": None},
        bounds={"overlap_gain": None, "why": "there is no profile"},
        arms=(),
        program={},
        versions=_versions(),
        devices=(),
        repeat=launch_facts(),
        files={},
    )


def receipt_of(controller: Controller, reads_profiles: bool = True) -> Receipt:
    """The receipt of a finished loop. Without its profiles, `with_overlap` completes it later."""
    outcome = controller.outcome
    arms = {arm.name: arm for arm in outcome.arms}
    described = tuple(_arm_json(outcome, arm) for arm in outcome.arms)
    shown = outcome.comparisons.get(outcome.chosen) or _most_telling(outcome)
    verdict, why = _verdict(outcome, shown)
    before = arms.get("original")
    after = arms.get(outcome.chosen)
    read = outcome.profiles if reads_profiles else {}
    overlap = {name: _overlap(path) for name, path in read.items()}
    return Receipt(
        verdict=verdict,
        why=why,
        chosen=outcome.chosen,
        step_us={
            "before": shown.before_us if shown else None,
            "after": shown.after_us if shown else None,
        },
        change=change_json(shown) if shown else None,
        pgle=_pgle(outcome),
        overlap=overlap,
        memory_bytes={
            "before": before.memory_bytes if before else None,
            "after": after.memory_bytes if after else None,
        },
        bounds=_bounds(overlap.get("before")),
        arms=described,
        program={
            "name": outcome.program,
            "fingerprint": before.program.fingerprint if before and before.program else None,
            "compile_s": controller.compiled.compile_s,
        },
        versions=_versions(),
        devices=_devices(),
        repeat=launch_facts(),
        files={name: str(path) for name, path in outcome.profiles.items()}
        | ({"costs": str(outcome.costs)} if outcome.costs else {}),
        notes=(*outcome.notes, *wrong_notes(described)),
        ranks=times_of_ranks(outcome.consensus, is_over=outcome.problem is None),
    )


def combined_receipt(receipts: Sequence[Receipt]) -> Receipt:
    """The receipt of a job with several functions: that of the first, and the others' results."""
    first, *others = receipts
    if not others:
        return first
    return replace(
        first,
        functions=tuple(_function_json(receipt) for receipt in receipts),
        together=_together(receipts),
        notes=tuple(dict.fromkeys(note for receipt in receipts for note in receipt.notes)),
    )


def _function_json(receipt: Receipt) -> dict[str, Any]:
    names = (
        "program", "verdict", "why", "chosen", "step_us", "change", "pgle", "memory_bytes", "arms",
        "files",
    )  # fmt: skip
    return {name: getattr(receipt, name) for name in names}


def _together(receipts: Sequence[Receipt]) -> dict[str, Any] | None:
    """A step is a call of the first function, with everything that happens until the next."""
    before_us = receipts[0].step_us.get("before")
    if before_us is None:
        return None
    saved = {"estimate": 0.0, "low": 0.0, "high": 0.0}
    for receipt in receipts:
        calls, own_us = receipt.program.get("calls_per_step"), receipt.step_us.get("before")
        if receipt.chosen == "original" or receipt.change is None or not calls or own_us is None:
            continue
        for bound in saved:
            saved[bound] += receipt.change[bound] * own_us * calls
    change = {bound: us / before_us for bound, us in saved.items()}
    after_us = before_us + saved["estimate"]
    return {"before_us": before_us, "after_us": after_us, "change": change}


def receipt_when_ready(controller: Controller) -> Receipt:
    """The receipt of a loop that is done, made on first use."""
    with _LOCK:
        if controller.receipt is None:
            controller.receipt = receipt_of(controller)
        return controller.receipt


def write_receipt_later(controller: Controller) -> threading.Thread:
    """Write the receipt into the loop's folder, in a thread: no step waits for it."""
    return run_in_background(lambda: _write_receipt(controller), "slipstream-receipt")


def _write_receipt(controller: Controller) -> None:
    try:
        # First without the profiles: the process may end while they are read.
        receipt_of(controller, reads_profiles=False).write(controller.plan.folder)
        receipt_when_ready(controller).write(controller.plan.folder)
    except (OSError, SlipstreamError) as problem:
        log.warning("slipstream: the receipt was not written: %s", problem)
    except Exception:
        # Python starts no threads during shutdown, and reading a profile needs some.
        if not SHUTDOWN.is_set():
            log.warning("slipstream: the receipt was not written", exc_info=True)


def wrong_notes(arms: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Warnings about miscompiled arms, by name where not all arms are affected."""
    wrong = [arm for arm in arms if arm.get("wrong")]
    if not wrong:
        return ()
    made = [arm for arm in arms if not arm["error"]]
    names = "" if len(wrong) == len(made) else " · ".join(arm["name"] for arm in wrong) + ": "
    return (names + wrong[0]["wrong"],)


def with_overlap(receipt: Receipt) -> Receipt:
    """The receipt completed from its profiles: time by kind of work, and the gain from overlap."""
    profiles = {name: receipt.files[name] for name in ("before", "after") if name in receipt.files}
    overlap = {name: _overlap(Path(path)) for name, path in profiles.items()}
    return replace(receipt, overlap=overlap, bounds=_bounds(overlap.get("before")))


def _most_telling(outcome: ExperimentOutcome) -> Comparison | None:
    """The comparison to show where nothing was chosen: that of the arm with costs."""
    found = outcome.comparisons
    variants = [arm.variant for arm in outcome.arms]
    costs = [one.name for one in variants if one.uses_costs and not one.flags]
    asked = next((found[name] for name in costs if name in found), None)
    return asked or min(found.values(), key=lambda c: c.change, default=None)


def _verdict(outcome: ExperimentOutcome, shown: Comparison | None) -> tuple[str, str]:
    if outcome.problem:
        return "can't tell", outcome.problem
    if shown is None:
        same = [arm.name for arm in outcome.arms if arm.same_as]
        if same and len(same) == len([a for a in outcome.arms[1:] if not a.error]):
            return "no different", NOTHING_ELSE
        errors = "; ".join(f"{a.name}: {a.error}" for a in outcome.arms if a.error)
        return "can't tell", errors or "no other program could be compiled"
    if outcome.chosen != "original":
        return "faster", shown.why
    if shown.verdict == "slower":
        return "slower", f"{shown.why}: the original program stays"
    return shown.verdict, shown.why


def change_json(found: Comparison) -> dict[str, float]:
    """The relative change of the step time, as a receipt holds it."""
    return {
        "estimate": found.change,
        "low": found.low,
        "high": found.high,
        "confidence": found.confidence,
        "rounds": found.rounds,
    }


def _pgle(outcome: ExperimentOutcome) -> dict[str, Any]:
    """Whether the costs reached the scheduler of the hot program, and what they changed."""
    coverage = outcome.coverage
    arm = next((a for a in outcome.arms if a.variant.uses_costs and a.program), None)
    original = outcome.arms[0].program if outcome.arms else None
    if arm is None or arm.program is None or original is None:
        why = outcome.problem or outcome.costs_problem or "no program was compiled with costs"
        return {"applied": None, "why": why}
    is_gpu = any(i.backend_config for i in original.entry.instructions) and _platform() == "gpu"
    return {
        "applied": is_gpu and bool(arm.costs_found) and arm.executable_was_made,
        "why": _applied_why(arm, is_gpu),
        "found": arm.costs_found,
        "missing": arm.costs_missing,
        "checked_by_xla": arm.is_strict,
        "schedule_changed": is_reordered(original, arm.program),
        "device_time_with_a_cost": coverage.share if coverage is not None else None,
    }


def _applied_why(arm: Arm, is_gpu: bool) -> str:
    if not is_gpu:
        return "only XLA:GPU's scheduler takes costs; this backend ignores them"
    if arm.is_strict:
        return "XLA's accuracy checker, set to fail on any missing cost, passed"
    return (
        f"XLA compiled with costs for {arm.costs_found} instructions, {arm.costs_missing} missing"
    )


def _arm_json(outcome: ExperimentOutcome, arm: Arm) -> dict[str, Any]:
    found = outcome.comparisons.get(arm.name)
    return {
        "name": arm.name,
        "flags": dict(arm.variant.flags),
        "uses_costs": arm.variant.uses_costs,
        "uses_order": arm.variant.uses_order,
        "is_obeyed": arm.is_obeyed,
        "fingerprint": arm.program.fingerprint if arm.program else None,
        "content": arm.program.content_hash if arm.program else None,
        "same_program_as": arm.same_as,
        "error": arm.error,
        "memory_bytes": arm.memory_bytes,
        "rounds": len(arm.times_s),
        "step_us": median(arm.times_s) * 1e6 if arm.times_s else None,
        "comparison": asdict(found) if found else None,
        "wrong": _wrong(arm.program),
    }


def _wrong(program: Program | None) -> str:
    """Why a program's results are wrong; empty where it shows no sign of that."""
    from slipstream.analyses.soundness import soundness

    # A TPU's layouts pad: sizes say nothing there.
    return "" if program is None or _platform() == "tpu" else soundness(program).text


def _overlap(profile: Path) -> dict[str, float] | None:
    from slipstream.analyses.summary import summary
    from slipstream.outputs.json import summary_json
    from slipstream.sources.load import load

    try:
        found: dict[str, float] = summary_json(summary(load(profile)))["per_step_us"]
    except (SlipstreamError, OSError, KeyError):
        return None
    return found


def _bounds(before: Mapping[str, float] | None) -> dict[str, Any]:
    """What perfect overlap would gain: no exposed communication, no exposed copies."""
    if not before or not before.get("wall"):
        return {"overlap_gain": None, "why": "there is no profile"}
    exposed = before.get("exposed_communication", 0.0) + before.get("exposed_copy", 0.0)
    gain = exposed / before["wall"]
    why = (
        "nothing to gain from overlap: almost nothing is exposed"
        if gain < 0.01
        else f"hiding all communication and copies would gain at most {gain:.1%}"
    )
    return {"overlap_gain": gain, "exposed_us": exposed, "idle_us": before.get("idle"), "why": why}


def _platform() -> str:
    import jax

    return str(jax.default_backend())


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    # A job may load our package from another environment, where its metadata isn't found.
    own = import_module("slipstream").__version__
    found = {"python": platform.python_version(), "slipstream": own}
    for package in ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _devices() -> tuple[str, ...]:
    import jax

    return tuple(str(device.device_kind) for device in jax.local_devices())
