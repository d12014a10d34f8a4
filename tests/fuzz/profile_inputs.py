"""A profile whose times and ids may be anything, through analyses, views and exports."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np

from builders import profile
from fuzz.native_inputs import number, numbers
from slipstream.analyses.collectives import collectives
from slipstream.analyses.gaps import gaps
from slipstream.analyses.ops import ops
from slipstream.analyses.overlap import overlap
from slipstream.analyses.slack import slack
from slipstream.analyses.summary import summary
from slipstream.diagnosis.diagnose import diagnose
from slipstream.outputs.perfetto.trace import perfetto_bytes
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile
from slipstream.serve import encoding, range_summary, search
from slipstream.serve.scene import Scene, members_of


@cache
def _three_steps() -> Profile:
    built = profile()
    for step in range(3):
        if step:
            built.execution_of()
        built.kernel("dot.1", 10).all_reduce(6, hidden=2).kernel("dot.1", 3).copy(2)
    return built.host_event("train", 0, 5).host_event("inner", 1, 2).build()


def _changed(column: Array, chance: Random) -> Array:
    """All values replaced, or one, or all of them 0."""
    if chance.random() < 0.1:
        return np.zeros_like(column)
    if chance.random() < 0.5:
        return numbers(chance, len(column))
    made = column.copy()
    made[chance.randrange(len(made))] = number(chance)
    return made


def _recorded(table: Table, chance: Random) -> Table:
    """Readers promise no more of times than that nothing lasts less than 0."""
    arrays = dict(table.arrays)
    for name in ("start_ps", "duration_ps", "correlation"):
        if name in arrays:
            arrays[name] = _changed(arrays[name], chance)
    arrays["duration_ps"] = np.maximum(arrays["duration_ps"], 0)
    return replace(table, arrays=arrays)


def _view(found: Profile, chance: Random) -> object:
    scene = Scene(members_of(["a"], [found], True))
    from_us, to_us = sorted((number(chance) % 2e15 - 1e15, 100 * chance.random()))
    return (
        encoding.slices(scene, from_us, to_us, chance.choice((1, 100, 8000)), range(4)),
        search.search(scene, "dot", from_us, to_us),
        range_summary.summary(scene, from_us, to_us),
    )


_USES: tuple[Callable[[Profile, Random], object], ...] = (
    lambda found, chance: (summary(found), ops(found)),
    lambda found, chance: (overlap(found), gaps(found)),
    lambda found, chance: (collectives(found), slack(found)),
    lambda found, chance: list(perfetto_bytes(found)),
    lambda found, chance: diagnose(found),
    _view,
)


def any_times(chance: Random) -> object:
    base = _three_steps()
    found = replace(
        base,
        events=_recorded(base.events, chance),
        host_events=_recorded(base.host_events, chance),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # sums of such times may wrap
        return chance.choice(_USES)(found, chance)
