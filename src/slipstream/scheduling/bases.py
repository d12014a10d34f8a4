"""Programs in which an order can do more: XLA makes them with flags of its own.

as it is                                order alone
up to two, up to four at once           collectives on several streams: a small one need not
                                        wait for a large one
collectives apart                       those that XLA combined, one by one: a part is there
                                        before the whole is
collectives one turn earlier            XLA's pipelining: what a turn of a loop gathers is
                                        started in the one before
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.profile.program import Program
from slipstream.simulate.streams import OVERLAP_LIMIT, overlap_limit

_PIPELINED = (
    "xla_gpu_enable_pipelined_all_gather",
    "xla_gpu_enable_pipelined_reduce_scatter",
    "xla_gpu_enable_pipelined_all_reduce",
)
_COMBINED = (
    "xla_gpu_all_gather_combine_threshold_bytes",
    "xla_gpu_reduce_scatter_combine_threshold_bytes",
    "xla_gpu_all_reduce_combine_threshold_bytes",
)
AS_IT_IS = "XLA's program"
AT_ONCE = (2, 4)


@dataclass(frozen=True)
class Base:
    """Flags, and what they do, in words."""

    name: str
    flags: Mapping[str, str]


def bases_of(program: Program) -> Iterator[Base]:
    """The programs worth a search: those whose flags exist and can matter here."""
    yield Base(AS_IT_IS, {})
    if not any(True for _ in _collectives(program)):
        return
    several = [
        Base(f"up to {count} collectives at once", {OVERLAP_LIMIT: str(count)})
        for count in AT_ONCE
        if _exists(OVERLAP_LIMIT) and count > overlap_limit(program)
    ]
    yield from several
    apart = {}
    if any(is_combined(program, name) for name in _collectives(program)):
        apart = {name: "1" for name in _COMBINED if _exists(name)}
        yield Base("collectives apart", apart)
        for one in several[:1]:
            yield Base(f"collectives apart, {one.name}", apart | dict(one.flags))
    earlier = {name: "true" for name in _PIPELINED if _exists(name)}
    if earlier and any(program.loop_of(name) is not None for name in _collectives(program)):
        yield Base("collectives one turn earlier", earlier)
        for one in several:
            yield Base(f"collectives one turn earlier, {one.name}", earlier | dict(one.flags))
        for one in several[:1] if apart else ():
            flags = apart | earlier | dict(one.flags)
            yield Base(f"collectives apart and one turn earlier, {one.name}", flags)


def _collectives(program: Program) -> Iterator[str]:
    for one in program.scheduled:
        if one.is_start and program.collective_of(one) is not None:
            yield one.name


def is_combined(program: Program, start: str) -> bool:
    """Whether a collective moves several arrays, which XLA put together."""
    return len(program.instruction(start).operands) > 1


def _exists(flag: str) -> bool:
    return flag in installed_catalogue().flags
