"""Does a cost table fit a program, and what does the scheduler use where it doesn't?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.costs.measure import measure, unattributed_us
from slipstream.costs.scheduler_names import looked_up, lookup_name
from slipstream.costs.table import Cost, CostTable
from slipstream.did_you_mean import close_matches
from slipstream.inline import Inline
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program

_SOL_DEVICES = ("H100", "H200", "H800", "H20", "GH200", "B200", "B100")
_NO_SOL_DEVICES = ("GB200", "GB300")
_NO_SOL_KINDS = ("ragged-all-to-all", "collective-broadcast", "collective-reduce")


@dataclass(frozen=True)
class MissingCost:
    """An instruction whose cost the scheduler looks up and doesn't find."""

    name: str
    us: float | None
    """its device time per step, if a profile shows it"""
    closest: tuple[str, ...]
    """similar names in the file"""


@dataclass(frozen=True)
class Coverage(Inline):
    """How well costs fit a program."""

    program: str
    share: float
    basis: str
    """what the share refers to: `device time` or, without a profile, `instructions`"""
    found: int
    missing: tuple[MissingCost, ...]
    unused: tuple[str, ...]
    """names in the file that the program doesn't have"""
    stale: tuple[str, ...]
    """reasons to believe that the costs belong to another program"""
    fallback: str
    """what the scheduler uses for a missing cost"""


def check_program(table: CostTable, program: Program, device: str = "") -> Coverage:
    """Compare costs with a program: the share of instructions that they cover."""
    costs = table.of(program.fingerprint)
    names: dict[str, float | None] = {i.name: None for i in looked_up(program)}
    return _coverage(table, program, costs, names, "instructions", device)


def check_profile(table: CostTable, profile: Profile, program_name: str | None = None) -> Coverage:
    """Compare costs with a program of a profile: the share of its device time that they cover.

    Without a name, with the program that took most time.
    """
    name = program_name or _hottest(profile)
    program = profile.programs[name]
    costs = table.of(program.fingerprint)
    device = profile.devices[0].model if profile.devices else ""
    times, unknown_us = _times(profile, name), unattributed_us(profile, name)
    return _coverage(table, program, costs, times, "device time", device, unknown_us)


def _coverage(
    table: CostTable,
    program: Program,
    costs: Mapping[str, Cost],
    times: Mapping[str, float | None],
    basis: str,
    device: str,
    unknown_us: float = 0.0,
) -> Coverage:
    weights = {name: (1.0 if us is None else us) for name, us in times.items()}
    found = {name for name in times if _has(program, costs, name)}
    used = {n for name in times for n in _names(program, name)}
    used |= {n for instruction in looked_up(program) for n in _names(program, instruction.name)}
    unused = tuple(sorted(costs.keys() - used))
    total = sum(weights.values()) + unknown_us
    covered = sum(weights[name] for name in found)
    # Avoid rounding: if nothing is missing, the share is 1.
    is_all = bool(found) and len(found) == len(times) and not unknown_us
    share = 1.0 if is_all else covered / total if total else 0.0
    lost = sorted(times.keys() - found, key=lambda name: (-weights[name], name))
    missing = tuple(
        MissingCost(name, times[name], close_matches(name, unused, 2, 0.7)) for name in lost
    )
    return Coverage(
        program=program.name,
        share=share,
        basis=basis,
        found=len(found),
        missing=missing,
        unused=unused,
        stale=tuple(_stale(table, program, device)),
        fallback=_fallback(program, device),
    )


def _names(program: Program, name: str) -> set[str]:
    """All names under which the scheduler may look up an instruction's cost."""
    if name not in program:
        return {name}
    instruction = program.instruction(name)
    start = program.starter(name) or instruction
    wrapped = program.wrapped(start.name) if start.is_start else None
    names = {start.name, start.scheduling_name or start.name, lookup_name(program, name)}
    return names | ({wrapped.name} if wrapped else set())


def _has(program: Program, costs: Mapping[str, Cost], name: str) -> bool:
    return any(n in costs for n in _names(program, name))


def _hottest(profile: Profile) -> str:
    runs = profile.runs
    times = np.bincount(runs.program, runs.busy_ps, 1)
    for index in np.argsort(-times).tolist():
        name: str = profile.events.texts[index]
        if name in profile.programs:
            return name
    from slipstream.errors import BadInput

    raise BadInput(
        "the profile holds no program to check against; pass the program itself: "
        "slipstream costs check COSTS --against PROGRAM.hlo"
    )


def _times(profile: Profile, program: str) -> dict[str, float]:
    """Mean device time of one run, in microseconds, by instruction of a program."""
    return {
        measured.instruction: float(measured.us.sum() / len(measured.us))
        for measured in measure(profile)
        if measured.program == program
    }


def _stale(table: CostTable, program: Program, device: str) -> list[str]:
    reasons = []
    stated = {p.fingerprint for p in table.programs if p.fingerprint}
    if stated and program.fingerprint and program.fingerprint not in stated:
        reasons.append(
            f"fingerprint: costs of {', '.join(sorted(f[:8] for f in stated))}, "
            f"program {program.fingerprint[:8]}"
        )
    pairs = (
        ("jaxlib", table.facts.get("jaxlib_version"), program.jaxlib_version),
        ("device", table.facts.get("device"), device),
    )
    for what, measured, present in pairs:
        if measured and present and measured != present:
            reasons.append(f"{what}: costs of {measured}, program of {present}")
    flags = table.facts.get("flags")
    if isinstance(flags, dict) and flags and program.flags:
        for flag in sorted(flags.keys() | program.flags.keys()):
            then, now = flags.get(flag), program.flags.get(flag)
            if then != now:
                reasons.append(f"flags: {flag} was {then or 'unset'}, is {now or 'unset'}")
    return reasons


def _fallback(program: Program, device: str) -> str:
    """Which estimator XLA's scheduler falls back to."""
    kinds = {i.collective.kind for i in program.runnable if i.collective is not None}
    if any(name in device for name in _NO_SOL_DEVICES):
        return (
            f"T-shirt sizes (1, 1000 or 5000 µs), since XLA has no performance table for {device}"
        )
    if kinds & set(_NO_SOL_KINDS):
        return (
            f"T-shirt sizes, since the program has {', '.join(sorted(kinds & set(_NO_SOL_KINDS)))}"
        )
    if any(_offloads(i) for i in program.runnable):
        return "T-shirt sizes (1, 1000 or 5000 µs), since the program copies to or from host memory"
    if not device or any(name in device for name in _SOL_DEVICES):
        return "XLA's analytical (speed of light) estimator, on Hopper and Blackwell"
    return f"T-shirt sizes (1, 1000 or 5000 µs), since {device} is not Hopper or Blackwell"


def _offloads(instruction: Instruction) -> bool:
    return instruction.shape.on_host
