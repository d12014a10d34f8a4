"""What an order has to keep beside dependencies: who reads and writes a buffer that values share.

Before XLA's scheduler, values that could be alive at the same time in some order have buffers of
their own. Behind it, XLA drops the copies that its own order makes unnecessary, and states no
dependency in their place:

    as scheduled     gather(weight)   update(weight)       in place: the old weight is read before
    dependencies     neither needs the other               the update writes over it
    other order      update(weight)   gather(weight)       wrong

So a write stays on its side of every other access to the same buffer, as XLA's scheduler left them.
A loop also stays on its side of sends and receives, as in XLA's scheduler, and what has effects
beyond its result keeps its order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from slipstream.analyses.liveness import Access, Buffer, Liveness
from slipstream.profile.program import Computation, Instruction, Program

Pairs = Mapping[str, tuple[tuple[str, str], ...]]
"""by computation: (instruction, what has to come before it)"""
_UPDATES = ("dynamic-update-slice", "scatter")
_IN_PLACE = ("all-reduce", "all-reduce-start", "collective-permute-start", *_UPDATES)
_ALIASING = "output_to_operand_aliasing"
_EFFECTS = ("infeed", "outfeed", "rng-get-and-update-state")
_TRANSFERS = ("send", "recv", "send-done", "recv-done")


def hazards_of(program: Program) -> Pairs:
    """The pairs of instructions whose order must stay, by computation.

    The program is as XLA's scheduler left it.
    """
    liveness = Liveness(program)
    found: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    by_computation: dict[str, dict[str, Access]] = defaultdict(dict)
    for one in liveness.accesses:
        # A computation that several instructions call is walked for each; the last stands for all.
        by_computation[one.instruction.computation][one.instruction.name] = one
    for name, accesses in by_computation.items():
        pairs = found[name]
        for pair in _of_buffers(program, accesses.values(), liveness.shared):
            pairs[pair] = None
    for name in by_computation:
        for pair in _of_effects(program.computations[name]):
            found[name][pair] = None
    return {name: tuple(pairs) for name, pairs in found.items()}


def _of_buffers(
    program: Program, accesses: Iterable[Access], shared: Mapping[int, int]
) -> Iterator[tuple[str, str]]:
    wrote: dict[int, str] = {}
    read: dict[int, list[str]] = defaultdict(list)
    for access in accesses:
        name = access.instruction.name
        reads, writes = _touched(program, access, shared)
        for buffer in sorted(reads | writes):
            if buffer in wrote:
                yield name, wrote[buffer]
            if buffer in writes:
                yield from ((name, one) for one in read.pop(buffer, ()))
                wrote[buffer] = name
            else:
                read[buffer].append(name)


def _touched(
    program: Program, access: Access, shared: Mapping[int, int]
) -> tuple[set[int], set[int]]:
    """The buffers that an instruction reads and writes, those of what it runs among them."""
    reads: set[int] = set()
    writes: set[int] = set()
    stack = [access]
    while stack:
        one = stack.pop()
        stack += one.inside
        reads |= {shared[id(buffer)] for buffer in one.reads}
        writes |= {shared[id(buffer)] for buffer in one.writes}
        writes |= {shared[id(buffer)] for buffer in _updated(program, one)}
    return reads, writes


def _updated(program: Program, access: Access) -> Iterator[Buffer]:
    """Operands that an instruction may update in place: of the size of one of its results."""
    one = access.instruction
    if one.opcode in _IN_PLACE or _ALIASING in one.attributes or _has_update(program, one):
        sizes = {buffer.bytes for buffer in access.writes}
        yield from (buffer for buffer in access.reads if buffer.bytes in sizes)


def _has_update(program: Program, one: Instruction) -> bool:
    if not one.opcode.startswith(("fusion", "async")):
        return False
    return any(
        inner.opcode in _UPDATES
        for name in one.called
        if name in program.computations
        for inner in program.computations[name].instructions
    )


def _of_effects(computation: Computation) -> Iterator[tuple[str, str]]:
    """Loops and transfers, and instructions with effects, in the order in which they are."""
    effect = loop = ""
    transfers: list[str] = []
    for one in computation.instructions:
        if one.opcode in _EFFECTS:
            yield from ((one.name, before) for before in (effect,) if before)
            effect = one.name
        elif one.opcode == "while":
            yield from ((one.name, before) for before in transfers)
            loop, transfers = one.name, []
        elif one.opcode in _TRANSFERS:
            yield from ((one.name, before) for before in (loop,) if before)
            transfers.append(one.name)
