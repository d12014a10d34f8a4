"""The sequence of launches of a program: its schedule with loops unrolled.

Each launch is an instruction together with what its kernels may look like, so that `alignment` can
tell which kernels of a CUDA graph belong to which instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.profile.attribution.kernels import (
    ATTENTION,
    ATTENTION_GRAD,
    BROADCAST,
    EXCHANGE,
    FILTER_GRAD,
    FORWARD_CONV,
    GATHER,
    INPUT_GRAD,
    MATMUL,
    NO_FAMILY,
    REDUCE,
    SAME_SIDE,
    SCATTER,
    TO_DEVICE,
    TO_HOST,
    sanitized,
)
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.signatures import result_shape

MAX_LAUNCHES = 2_000_000

_NO_WORK = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier",
    "domain", "add-dependency", "get-dimension-size", "token",
}  # fmt: skip
_NO_WORK_TARGETS = {"AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}
# Calls of XLA:TPU that only say something about a value, or name a part of it.
_NO_WORK_TARGETS |= {"ConcatBitcast", "ZeroCrop", "AssumeGatherIndicesInBound"}
_COPIES = {"copy", "copy-start", "dynamic-slice", "dynamic-update-slice", "slice", "bitcast"}
_MOVES = _COPIES | {"parameter", "constant", "tuple", "get-tuple-element", "reshape"}
_MOVES |= {"compare", "add", "subtract", "multiply", "select", "clamp", "convert", "iota"}


@dataclass(frozen=True)
class Launch:
    """One instruction that may launch device work, and what that work may look like."""

    instruction: str
    """the name that a profile records: for an async start, the operation inside"""
    group: str
    """shared by equal fusions, whose kernels have one name"""
    is_library: bool = False
    is_copy: bool = False
    is_collective: bool = False
    is_memset: bool = False
    family: int = NO_FAMILY
    direction: int = SAME_SIDE
    bytes: int = 0
    skip_cost: float = 8.0
    """the higher, the less likely that it leaves no event"""

    @property
    def may_be_elided(self) -> bool:
        """Whether it often leaves no event: an elided copy, a branch that was not taken."""
        return self.skip_cost <= 3.0


@dataclass(frozen=True)
class LaunchSequence:
    """Launches in order; `loops` are (first, last) launches of loops with unknown trip count."""

    launches: tuple[Launch, ...]
    loops: tuple[tuple[int, int], ...]
    groups: dict[str, str]
    """from a kernel's name to the group of fusions that share it"""


def unroll(program: Program) -> LaunchSequence:
    """The launches of one execution of a program, with loops unrolled by their trip counts."""
    known: dict[str, Launch] = {}
    launches: list[Launch] = []
    loops: list[tuple[int, int]] = []

    def visit(computation: str, optional: bool) -> None:
        for instruction in program.computations[computation].instructions:
            if len(launches) > MAX_LAUNCHES:
                return
            if instruction.opcode == "while":
                _visit_loop(instruction, optional)
            elif instruction.opcode in ("call", "conditional"):
                for called in instruction.called:
                    visit(called, optional or instruction.opcode == "conditional")
            elif launches_nothing(instruction):
                continue
            else:
                launch = known.get(instruction.name)
                if launch is None:
                    launch = known[instruction.name] = _launch(program, instruction, optional)
                launches.append(launch)

    def _visit_loop(loop: Instruction, optional: bool) -> None:
        body = loop.called[0]
        first = len(launches)
        for _ in range(1 if loop.trip_count is None else loop.trip_count):
            before = len(launches)
            visit(body, optional)
            if len(launches) == before or len(launches) > MAX_LAUNCHES:
                break  # a trip count may be any number
        if loop.trip_count is None and len(launches) > first:
            loops.append((first, len(launches) - 1))

    visit(program.entry.name, False)
    return LaunchSequence(tuple(launches), tuple(loops), _kernel_groups(program))


def launches_nothing(instruction: Instruction) -> bool:
    """Whether an instruction never launches device work."""
    return (
        instruction.opcode in _NO_WORK
        or instruction.is_done
        or instruction.opcode.endswith("-update")
        or instruction.custom_call_target in _NO_WORK_TARGETS
    )


def _launch(program: Program, start: Instruction, optional: bool) -> Launch:
    inner = program.wrapped(start.name) if start.is_start else None
    instruction = inner or start
    is_collective = start.collective is not None or instruction.collective is not None
    is_library, family = _library(program, instruction)
    if is_collective:
        family = _collective_family(start.collective or instruction.collective)
    is_copy = _is_copy(program, instruction)
    is_memset = instruction.opcode in ("partition-id", "replica-id")
    return Launch(
        instruction=instruction.name,
        group=_group(program, instruction),
        is_library=is_library,
        is_copy=is_copy,
        is_collective=is_collective,
        is_memset=is_memset,
        family=family,
        direction=_direction(program, instruction),
        bytes=_moved_bytes(program, instruction) if is_copy else 0,
        skip_cost=0.5 if optional else _skip_cost(start, is_collective, is_memset),
    )


def _skip_cost(start: Instruction, is_collective: bool, is_memset: bool) -> float:
    """Low for what may leave no event: work on other streams, and copies that XLA elides."""
    if is_memset:
        return 0.5
    if start.is_start or is_collective or start.opcode == "copy":
        return 3.0
    return 8.0


_COLLECTIVE_FAMILIES = {
    "all-gather": GATHER,
    "all-reduce": REDUCE,
    "reduce-scatter": SCATTER,
    "all-to-all": EXCHANGE,
    "ragged-all-to-all": EXCHANGE,
    "collective-permute": EXCHANGE,
    "collective-broadcast": BROADCAST,
    "send": EXCHANGE,
    "recv": EXCHANGE,
}


def _collective_family(collective: Collective | None) -> int:
    return _COLLECTIVE_FAMILIES.get(collective.kind, NO_FAMILY) if collective else NO_FAMILY


def _group(program: Program, instruction: Instruction) -> str:
    if instruction.opcode in ("fusion", "fusion-start") and instruction.called:
        return program.canonical(instruction.called[0])
    return sanitized(instruction.name)


def _kernel_groups(program: Program) -> dict[str, str]:
    """From a kernel's name to the group of fusions that compute the same."""
    groups: dict[str, str] = {}
    for instruction in program.runnable:
        if launches_nothing(instruction) or instruction.opcode in ("while", "call", "conditional"):
            continue
        group = _group(program, instruction)
        groups[sanitized(instruction.name)] = group
        if instruction.deduplicated_name:
            groups.setdefault(sanitized(instruction.deduplicated_name), group)
    return groups


_TARGET_FAMILIES = (
    ("conv", "Forward", FORWARD_CONV),
    ("conv", "BackwardInput", INPUT_GRAD),
    ("conv", "BackwardFilter", FILTER_GRAD),
    ("conv", "BiasActivation", FORWARD_CONV),
    ("fmha", "Backward", ATTENTION_GRAD),
    ("fmha", "", ATTENTION),
    ("te_fused_attn", "backward", ATTENTION_GRAD),
    ("te_fused_attn", "", ATTENTION),
    ("cublas", "", MATMUL),
    ("triangularSolve", "", MATMUL),
)


def _library(program: Program, instruction: Instruction) -> tuple[bool, int]:
    """(whether a library runs it, what the library computes)."""
    if instruction.opcode == "custom-call":
        target = instruction.custom_call_target
        for part, other, family in _TARGET_FAMILIES:
            if part in target and other in target:
                return True, family
        return True, NO_FAMILY
    if instruction.opcode in ("convolution", "dot", "fft", "triangular-solve", "cholesky", "sort"):
        return True, NO_FAMILY
    config = instruction.backend_config
    if "__cudnn$fusion" in config or "__cublas" in config:
        return True, NO_FAMILY
    # Fusions that are a view of a library call (dynamic-slice fusion) hold it as a custom call.
    for name in instruction.called if instruction.opcode == "fusion" else ():
        for inner in program.computations[name].instructions:
            if inner.opcode == "custom-call":
                return _library(program, inner)
    return False, NO_FAMILY


def _is_copy(program: Program, instruction: Instruction) -> bool:
    """Whether a copy engine can run it: plain copies, and fusions that only slice."""
    # Text has `slice-start` where protos have the slice that it starts.
    if instruction.opcode.removesuffix("-start") in _COPIES:
        return True
    if instruction.opcode not in ("fusion", "fusion-start"):
        return False
    inside = [i for name in instruction.called for i in program.computations[name].instructions]
    return any(i.opcode in _COPIES - {"bitcast"} for i in inside) and all(
        i.opcode in _MOVES for i in inside
    )


def _direction(program: Program, instruction: Instruction) -> int:
    if result_shape(instruction).on_host:
        return TO_HOST
    from_host = any(operand.shape.on_host for operand in program.operands(instruction))
    return TO_DEVICE if from_host else SAME_SIDE


def _moved_bytes(program: Program, instruction: Instruction) -> int:
    """Bytes that one execution copies: the slice of an update, not the array it is written into."""
    inside = [instruction]
    if instruction.called:
        inside = list(program.computations[instruction.called[0]].instructions)
    for inner in inside:
        if inner.opcode == "dynamic-update-slice" and len(inner.operands) > 1:
            operands = program.operands(inner)
            if len(operands) > 1:
                return operands[1].shape.bytes
    return instruction.shape.bytes


def launch_of(program: Program, start: Instruction) -> Launch:
    """The launch of an instruction; for an async start, of the operation inside."""
    return _launch(program, start, False)
