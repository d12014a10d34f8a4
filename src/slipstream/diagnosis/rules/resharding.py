"""Activations that change their sharding: all-to-alls and all-gathers that no line asked for.

XLA's partitioner adds them where an operation wants its operand split along another dimension:

    x[16, 2048, 4096]   split along 0 ──► all-to-all ──► split along 2

Weights that are gathered (FSDP), and collectives that the model calls itself, are no resharding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.analyses.collectives import CollectiveRow
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.descriptions import moved_arguments
from slipstream.profile.semantics.signatures import result_shape
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy
from slipstream.units import format_bytes, format_time

NAME = "resharding"
LARGE_BYTES = 1 << 20
"""all-gathers below this cost little more than their latency"""
OWN = ("all_to_all", "all_gather", "ppermute", "pshuffle", "psum", "ragged_all_to_all")
"""primitives by which a model calls collectives itself"""
CONSTRAINT = (
    "https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html"
)


@dataclass(frozen=True)
class Resharding:
    """One collective that changes a sharding; dimensions are of the array of all its devices."""

    row: CollectiveRow
    dims: tuple[int, ...]
    """of that array"""
    before: int | None
    """the dimension that is split before; None if unknown"""
    after: int | None
    """the dimension that is split after; None if it is whole then"""

    @property
    def text(self) -> str:
        shape = f"[{', '.join(map(str, self.dims))}]"
        old = f"split along dimension {self.before}" if self.before is not None else "split"
        new = "whole" if self.after is None else f"split along dimension {self.after}"
        return f"{shape} is {old} before and {new} after"

    @property
    def note(self) -> str:
        """`dimension 0 → 2`: the split dimensions, in short."""
        old = "?" if self.before is None else self.before
        return f"dimension {old} → {'whole' if self.after is None else self.after}"

    @property
    def constraint(self) -> str:
        """The sharding it had before, to be kept."""
        names = ["None"] * len(self.dims)
        kept = self.before if self.before is not None else self.after
        if kept is not None:
            names[kept] = '"axis"'
        return f"jax.lax.with_sharding_constraint(x, P({', '.join(names)}))"


def check(evidence: Evidence) -> RuleResults:
    """Collectives that move activations because two operations want them split differently."""
    found = [one for row in evidence.collectives.rows if (one := _resharding(evidence, row))]
    found.sort(key=lambda one: -one.row.exposed_us)
    exposed = sum(one.row.exposed_us for one in found)
    if exposed < evidence.noticeable_us:
        return
    worst = found[0]
    total = sum(one.row.per_step_us for one in found)
    where = f" at {worst.row.source}" if worst.row.source else ""
    size = format_bytes(worst.row.bytes or 0)
    yield Finding(
        NAME,
        title="activations change their sharding inside the step",
        evidence=f"{len(found)} collectives that no line of the model calls move activations "
        f"between two shardings: {format_time(total * 1e6)} of the step, "
        f"{format_time(exposed * 1e6)} of it exposed. The longest, {worst.row.instruction}, moves "
        f"{size}{where}: over {worst.row.group_size} devices, {worst.text}.",
        gain=Gain(
            us=None,
            low_us=0.0,
            high_us=exposed,
            basis="bound",
            why="at most their exposed time: an operation that keeps its operand's sharding may "
            "need another collective instead",
        ),
        changes=_changes(worst),
        exhibits=_exhibits(found),
        see="slipstream collectives PATH",
        sources=(CONSTRAINT,),
    )


def _changes(worst: Resharding) -> tuple[Remedy, ...]:
    line = worst.row.source or "the operation that wants it otherwise"
    note = (
        f"before {line}, on the value it reads; axis is the mesh axis of these devices. It keeps "
        "the sharding the value has; if the operation can't use it, annotate what made the value"
    )
    return (Remedy("code", worst.constraint, note),)


def _exhibits(found: Sequence[Resharding]) -> tuple[Exhibit, ...]:
    return tuple(
        Exhibit(
            one.row.instruction,
            one.row.exposed_us,
            round(one.row.per_step_count),
            one.row.source,
            one.row.description,
            one.note,
        )
        for one in found[:MOST_EXHIBITS]
        if one.row.exposed_us
    )


def _resharding(evidence: Evidence, row: CollectiveRow) -> Resharding | None:
    program = evidence.program
    if program is None or row.program != evidence.program_name:
        return None
    start = evidence.start(row.instruction)
    if start is None or start.collective is None or not row.group_size or row.group_size < 2:
        return None
    is_own = start.op_name.rpartition("/")[2] in OWN
    if is_own or row.kind not in ("all-to-all", "all-gather"):
        return None
    operands = program.operands(start)
    if len(operands) != 1 or _is_argument(program, start):
        return None
    split = start.attributes.get("dimensions")
    if not isinstance(split, tuple) or len(split) != 1 or not isinstance(split[0], int):
        return None
    if row.kind == "all-gather":
        is_large = (row.bytes or 0) >= LARGE_BYTES
        dims = result_shape(start).dims
        return Resharding(row, dims, split[0], None) if is_large and len(dims) > 1 else None
    return _exchange(program, start, row, split[0], row.group_size)


def _is_argument(program: Program, start: Instruction) -> bool:
    """Whether it moves arguments of the program, such as weights, rather than activations."""
    if moved_arguments(program, start):
        return True
    return all(one.opcode == "parameter" for one in program.operands(start)) and (
        start.computation == program.entry.name
    )


def _exchange(
    program: Program, start: Instruction, row: CollectiveRow, at: int, size: int
) -> Resharding | None:
    """The partitioner splits the dimension that will be split: [8, 2048, 2, 2048] at 2.

    So [8, 2048, 4096] becomes [16, 2048, 2048]; which dimension grows, its first reader shows.
    """
    dims = program.operands(start)[0].shape.dims
    if at >= len(dims) or dims[at] != size or len(dims) < 3:
        return None
    local = [*dims[:at], *dims[at + 1 :]]
    before = _grown(program, start, local, at, size)
    whole = list(local)
    whole[at] *= size
    if before is not None:
        whole[before] *= size
    return Resharding(row, tuple(whole), before, at)


def _grown(
    program: Program, start: Instruction, local: Sequence[int], at: int, size: int
) -> int | None:
    """The dimension that its readers see whole; None if several would fit, or none."""
    users = program.computations[start.computation].users
    readers = list(users.get(start.name, ()))
    for reader in list(readers):
        if reader.is_done or reader.opcode == "bitcast":
            readers += users.get(reader.name, ())
    seen = {tuple(sorted(leaf.dims)) for one in readers for leaf in one.shape.leaves()}
    fits = []
    for place, length in enumerate(local):
        grown = [*local[:place], length * size, *local[place + 1 :]]
        if place != at and tuple(sorted(grown)) in seen:
            fits.append(place)
    return fits[0] if len(fits) == 1 else None


RULE = Rule(NAME, "Do activations change their sharding inside the step?", check)
