"""Programs that were compiled for another kind of machine than the one they are simulated on."""

from __future__ import annotations

from slipstream.machines.machine import Machine
from slipstream.machines.tpu.slices import is_slice_transfer, slices_of
from slipstream.profile.program import Program
from slipstream.profile.semantics.backend_config import TPU_KERNEL, estimated_cycles

CODE = "foreign-program"
_OF_GPUS = ("__cu", "__triton")


def foreign(program: Program, machine: Machine) -> str | None:
    """Why XLA would compile another program for this machine; None if nothing says so."""
    remedy = "compile it for this machine: slipstream predict FILE.py:build --on " + machine.spec
    if machine.kind != "tpu":
        if _is_for_tpus(program):
            return f"XLA compiled this program for TPUs, and another one for GPUs; {remedy}"
        return None
    if any(one.custom_call_target.startswith(_OF_GPUS) for one in program.instructions):
        return f"XLA compiled this program for GPUs, and another one for TPUs; {remedy}"
    needed = _slices(program)
    if needed > machine.slices:
        had = f"{machine.slices} slice" + ("s" if machine.slices > 1 else "")
        return f"this program is for {needed} slices, and {machine.spec} has {had}; {remedy}"
    return None


def _is_for_tpus(program: Program) -> bool:
    return any(
        estimated_cycles(one) is not None
        or is_slice_transfer(one)
        or one.custom_call_target == TPU_KERNEL
        for one in program.instructions
    )


def _slices(program: Program) -> int:
    between = (slices_of(one) for one in program.instructions if is_slice_transfer(one))
    return max((count for count in between if count), default=1)
