"""Bounds of a combination before it is compiled: which can't fit, and which can't win.

    arguments, trace ──inspect──► Inspection ──and a machine──► least memory, least step

Both are lower bounds of what a compile and a simulated step would give; a combination that they
rule out needs no compile.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.compiler.inspection import Inspection
from slipstream.machines.least_time import least_gathers_us, least_products_us, least_traffic_us
from slipstream.machines.machine import Machine
from slipstream.units import PS_PER_US, format_bytes, format_time


@dataclass(frozen=True)
class LowerBounds:
    """The least that a step takes, and why."""

    step_us: float
    step_text: str
    """`its products alone take 512 ms`"""
    memory_bytes: int
    """of one device"""
    memory_text: str
    """`its arguments alone take 94 GB of 80 GB`"""


def lower_bounds(found: Inspection, machine: Machine, accumulator_bytes: int = 0) -> LowerBounds:
    """Bounds from what an inspection found, and what gradients of several steps need for a sum."""
    step_us, what = _least_step(found, machine)
    text = (
        f"{what} {format_time(step_us * PS_PER_US)}" if step_us else "nothing is known of its step"
    )
    needed = found.memory_bytes + accumulator_bytes
    has = format_bytes(machine.chip.memory_bytes)
    memory = f"{_filling(found)} {format_bytes(needed)} of {has}"
    return LowerBounds(step_us, text, needed, memory + accumulator_text(accumulator_bytes))


def accumulator_text(accumulator_bytes: int) -> str:
    if not accumulator_bytes:
        return ""
    return f", {format_bytes(accumulator_bytes)} of it to add up gradients"


def _least_step(found: Inspection, machine: Machine) -> tuple[float, str]:
    # SPMD: all devices do the same, so each does its share of what all must do at least.
    each = {dtype: flops / found.devices for dtype, flops in found.flops.items()}
    products_us = least_products_us(machine, each)
    return max(
        (products_us, "its products alone take at least"),
        (
            least_traffic_us(machine, found.moved_bytes),
            "reading its arguments and writing its results takes at least",
        ),
        (
            least_gathers_us(machine, found.received_bytes, found.network_bytes),
            "gathering its weights takes at least",
        ),
        key=lambda one: one[0],
    )


def _filling(found: Inspection) -> str:
    if found.memory_bytes > found.lasting_bytes:
        return "its arguments and what its loops keep for later take at least"
    if found.lasting_bytes > found.arguments_bytes:
        return "its arguments and results alone take"
    return "its arguments alone take"
