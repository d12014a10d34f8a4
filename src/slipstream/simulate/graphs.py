"""What command buffers capture: runs of instructions that become one CUDA graph.

    copy  fusion  gemm  fusion-start  fusion  fusion-done │ all-gather-start │ fusion  fusion
    └──────────── five commands or more: captured ───────┘                    └─ too few ──┘

Inside a graph everything is serialised, so a captured asynchronous fusion is no longer
asynchronous. `copy-start` and, unless the flag says so, collectives are not captured.
Seen in recordings on an H200 with jaxlib 0.11.2; flags: xla.proto of github.com/openxla/xla.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Instruction, Program

FLAG = "xla_gpu_enable_command_buffer"
SIZE_FLAG = "xla_gpu_graph_min_graph_size"
DEFAULT_KINDS = frozenset(
    ("CONDITIONAL", "CUBLAS", "CUBLASLT", "CUDNN", "CUSTOM_CALL", "DYNAMIC_SLICE_FUSION", "FUSION")
)
DEFAULT_SIZE = 5

_FUSIONS = {"fusion", "fusion-start", "copy", "partition-id", "replica-id"}
_NOT_FUSIONS = {"while", "conditional", "call", "copy-start", "send", "recv", "infeed", "outfeed"}


def captured_kinds(flags: Mapping[str, str]) -> frozenset[str]:
    """The kinds of commands that graphs may capture, by the flags; none turns graphs off."""
    if FLAG not in flags:
        return DEFAULT_KINDS
    listed = [kind.strip().upper() for kind in flags[FLAG].strip("\"'").split(",")]
    kinds = DEFAULT_KINDS if any(kind.startswith(("+", "-")) for kind in listed) else frozenset()
    for kind in listed:
        changed = frozenset((kind.strip("+-"),)) if kind.strip("+-") else frozenset()
        kinds = kinds - changed if kind.startswith("-") else kinds | changed
    return kinds - {"INVALID"}


def regions(program: Program, name: str, kinds: frozenset[str]) -> dict[str, int]:
    """The instructions of a computation that run in graphs, each with its graph's number."""
    if not kinds:
        return {}
    least = least_size(program)
    instructions = program.computations[name].instructions
    refused: set[str] = set()
    while True:
        runs = _runs(program, instructions, kinds, refused)
        split = {s for run in runs for s in _open_starts(program, run)} - refused
        if not split:
            break
        refused |= split
    kept = [run for run in runs if sum(not launches_nothing(i) for i in run) >= least]
    return {i.name: number for number, run in enumerate(kept, 1) for i in run}


def least_size(program: Program) -> int:
    """How many commands a graph has at least."""
    text = program.flags.get(SIZE_FLAG, "")
    return int(text) if text.isdecimal() else DEFAULT_SIZE


def _runs(
    program: Program, instructions: Sequence[Instruction], kinds: frozenset[str], refused: set[str]
) -> list[list[Instruction]]:
    """Runs of consecutive commands in the schedule."""
    runs: list[list[Instruction]] = [[]]
    for instruction in instructions:
        if instruction.is_done:
            start = program.partner(instruction.name)
            is_wait = start is None or not is_command(program, start, kinds, refused)
            if not is_wait:
                runs[-1].append(instruction)
            elif not _is_sync(start):
                runs.append([])
        elif launches_nothing(instruction):
            continue
        elif is_command(program, instruction, kinds, refused):
            runs[-1].append(instruction)
        else:
            runs.append([])
    return [run for run in runs if run]


def _is_sync(start: Instruction | None) -> bool:
    return start is not None and start.collective is not None and start.collective.is_sync


def _open_starts(program: Program, run: Sequence[Instruction]) -> set[str]:
    """Starts whose done is in another run: a graph can't contain only one of the two."""
    names = {i.name for i in run}
    found = set()
    for instruction in run:
        done = program.partner(instruction.name) if instruction.is_start else None
        if instruction.is_start and (done is None or done.name not in names):
            found.add(instruction.name)
    return found


def is_command(
    program: Program,
    instruction: Instruction,
    kinds: frozenset[str],
    refused: Collection[str] = (),
) -> bool:
    """Whether a graph may capture an instruction; not those in `refused`."""
    if instruction.name in refused:
        return False
    if program.collective_of(instruction) is not None:
        return "COLLECTIVES" in kinds
    if instruction.opcode in _NOT_FUSIONS:
        return False
    if instruction.opcode == "custom-call":
        return _library(instruction.custom_call_target) in kinds
    if instruction.opcode in _FUSIONS:
        return "FUSION" in kinds
    return not instruction.is_start and "FUSION" in kinds


def _library(target: str) -> str:
    if target.startswith("__cublas$lt"):
        return "CUBLASLT"
    if target.startswith("__cublas"):
        return "CUBLAS"
    if target.startswith("__cudnn$conv"):
        return "CONVOLUTION"  # never captured in any recording; no flag has this kind
    return "CUDNN" if target.startswith("__cudnn") else "CUSTOM_CALL"
