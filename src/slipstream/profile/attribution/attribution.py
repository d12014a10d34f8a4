"""Attribution: find the instruction and the execution that each kernel and copy belongs to.

Outside CUDA graphs the profiler labels every event with its instruction, and that label is used.
Inside graphs it labels all of them `command_buffer_N`; there, the events of one execution are
aligned with the program's launch sequence. Events that fit nowhere stay unattributed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slipstream.profile.attribution.executions import (
    execution_starts,
    graph_number,
    launch_keys,
    recorded_executions,
    used_texts,
)
from slipstream.profile.events import Array, Rows, Table, Texts, distinct
from slipstream.profile.profile import Profile, ProfileWarning
from slipstream.profile.program import Program


def attribute(profile: Profile) -> Profile:
    """Fill in the `instruction` and `execution` of the events."""
    events = profile.events
    if not len(events):
        return profile
    texts = Texts(events.texts)
    events = _labelled(profile, texts)
    execution = np.zeros(0, np.int32)
    instruction: Array | None = None
    warnings: list[ProfileWarning] = []
    for name, rows in _parts(profile):
        alone = isinstance(rows, slice)
        own = events if alone else events.take(rows)
        program = profile.programs.get(name)
        recorded = recorded_executions(profile, rows)
        number = _executions(program, own) if recorded is None else recorded
        if alone:
            execution = number
        else:
            execution = execution if len(execution) else np.zeros(len(events), np.int32)
            execution[rows] = number
        if recorded is not None:
            continue
        if program is not None and _has_unlabelled(own):
            from slipstream.profile.attribution.graph_kernels import instructions_in_graphs

            instruction = events["instruction"].copy() if instruction is None else instruction
            instruction[rows], doubts = instructions_in_graphs(program, own, number, texts)
            warnings += doubts.warnings(name, own, instruction[rows], texts)
        elif program is None and _has_graphs(own):
            warnings.append(_no_program(name))
    execution = execution if len(execution) else np.zeros(len(events), np.int32)
    filled = events.replace(texts.values, execution=execution)
    if instruction is not None:
        filled = filled.replace(instruction=instruction)
    return profile.with_events(filled).with_warnings(*dict.fromkeys(warnings))


def _parts(profile: Profile) -> Iterator[tuple[str, Rows]]:
    """(program, rows) for each program on each device; a slice if it has all rows."""
    from slipstream.profile.grouping import group_columns, group_pairs

    events = profile.events
    if len(profile.devices) == 1 and events.is_tagged("program"):
        used = distinct(events.tagged("program"))
        if len(used) == 1:
            yield from [(events.texts[used[0]], slice(None))] if used[0] else []
            return
    if len(profile.devices) == 1:
        groups, firsts = group_columns(events, "program", "program")
    else:
        groups, firsts = group_pairs(profile.event_devices, events["program"])
    for group, first in enumerate(firsts.tolist()):
        if name := events.text("program", first):
            yield name, slice(None) if len(firsts) == 1 else np.flatnonzero(groups == group)


def _executions(program: Program | None, events: Table) -> Array:
    from slipstream.profile.grouping import places

    return places(launch_keys(events), execution_starts(program, events.texts, events))


def _labelled(profile: Profile, texts: Texts) -> Table:
    """The events with the labels that are instructions; no label inside a graph is one.

    If the program is unknown, every label but a graph's counts as an instruction.
    """
    from slipstream.profile.grouping import group_pairs

    events = profile.events
    tagged = events.is_tagged("program", "op")
    read = events.tagged if tagged else events.__getitem__
    programs, ops = read("program"), read("op")
    groups, firsts = group_pairs(programs, ops)
    found = []
    for row in firsts.tolist():
        label, name = events.texts[ops[row]], events.texts[programs[row]]
        known = name in profile.programs
        is_instruction = label in profile.programs[name] if known else graph_number(label) is None
        found.append(label if is_instruction else "")
    instruction = np.take(texts.map(found), groups)
    fill = events.retag if tagged else events.replace
    return fill(texts.values, instruction=instruction)


def _has_unlabelled(events: Table) -> bool:
    """Whether there are kernels inside graphs, which the profiler does not label."""
    if events.is_tagged("instruction") and events.tagged("instruction").all():
        return False
    return not events["instruction"].all() and _has_graphs(events)


def _no_program(name: str) -> ProfileWarning:
    return ProfileWarning(
        "no-program",
        f"{name} ran inside CUDA graphs, but the profile does not contain the program, so its "
        "kernels can't be attributed to instructions; record with host_tracer_level of at least 1, "
        "or without command buffers (xla_gpu_enable_command_buffer='')",
    )


def _has_graphs(events: Table) -> bool:
    return any(graph_number(events.texts[i]) is not None for i in used_texts(events, "op"))
