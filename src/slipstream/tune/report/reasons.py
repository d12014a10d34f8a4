"""Why a candidate is better or worse, in sentences that its compiled program bears out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.tune.outcome import Outcome
from slipstream.tune.search.program_counts import CollectiveCounts, ProgramCounts
from slipstream.tune.space.program_traits import ProgramTraits
from slipstream.tune.space.space import Space
from slipstream.tune.space.threshold_grid import layer_bytes
from slipstream.units import PS_PER_US, format_bytes, format_time

NOTICEABLE = 0.002
"""minimum change, as a share of the step, that is mentioned"""
_THRESHOLDS = {
    "xla_gpu_all_gather_combine_threshold_bytes": "all-gather",
    "xla_gpu_reduce_scatter_combine_threshold_bytes": "reduce-scatter",
    "xla_gpu_all_reduce_combine_threshold_bytes": "all-reduce",
}
_NOTHING = CollectiveCounts()


def layer_sizes(traits: ProgramTraits, space: Space) -> dict[str, Any]:
    """The size of one layer for each combine threshold, kept in the study's config."""
    layers = traits.layers
    if layers is None or layers.layers is None:
        return {}
    found: dict[str, Any] = {"layers": layers.layers, "basis": layers.layer_weights.basis}
    for flag, kind in _THRESHOLDS.items():
        knob = space.knob(flag)
        if knob is not None:
            size = layer_bytes(kind, traits)
            found[flag] = {"kind": kind, "layer_bytes": size, "default": knob.default}
    return found


def reasons(
    settings: Mapping[str, str], baseline: Outcome, best: Outcome, layers: Mapping[str, Any]
) -> tuple[str, ...]:
    """Why the best is better, the most important first."""
    return (
        *_parts(baseline, best),
        *_clock(baseline, best),
        *_cycles(baseline, best),
        *program_changes(baseline, best),
        *_thresholds(settings, baseline, best, layers),
        *_bound(best),
    )


def program_changes(baseline: Outcome, other: Outcome) -> tuple[str, ...]:
    """What the compiled program of a candidate has, and the default's doesn't; or the reverse."""
    before, after = baseline.counts, other.counts
    if before is None or after is None or other.program == baseline.program:
        return ()
    found = (
        *_collectives(before, after),
        *_matmuls(before, after),
        *_loops(before, after),
        *_at_once(baseline, other),
    )
    if found:
        return found
    if other.work == baseline.work:
        is_launch = other.program.split()[0] == baseline.program.split()[0]
        return (
            "the default's program, launched in another way"
            if is_launch
            else "the instructions of the default's program, in another order",
        )
    return ("as many collectives, matmuls and loops as the default's program",)


def _parts(baseline: Outcome, best: Outcome) -> Iterator[str]:
    before, after = baseline.parts_us or {}, best.parts_us or {}
    step = baseline.step_us or 0.0
    changes = {name: after[name] - before[name] for name in before if name in after}
    for name, change in sorted(changes.items(), key=lambda pair: -abs(pair[1])):
        if step and abs(change) / step >= NOTICEABLE:
            yield f"{name} {_time(before[name])} → {_time(after[name])}"


def _clock(baseline: Outcome, best: Outcome) -> Iterator[str]:
    """A step that waits less draws more power, and may have to run at a lower clock."""
    before, after = baseline.clock_hz, best.clock_hz
    if before and after and abs(after / before - 1) >= NOTICEABLE:
        yield f"clock {before / 1e6:,.0f} → {after / 1e6:,.0f} MHz, as the power cap allows"


def _cycles(baseline: Outcome, best: Outcome) -> Iterator[str]:
    """What the compiler itself says of its operations; it knows nothing of links."""
    before, after = (one.counts.compiler_cycles if one.counts else 0 for one in (baseline, best))
    if before and after and before != after:
        yield f"XLA's own cycles {before:.4g} → {after:.4g}, {after / before - 1:+.1%}"


def _collectives(before: ProgramCounts, after: ProgramCounts) -> Iterator[str]:
    """`all-gathers per step 62 → 4, the largest 27 MB → 1.7 GB, asynchronous 60 → 3`."""
    for kind in sorted({*before.collectives, *after.collectives}):
        old, new = before.collectives.get(kind, _NOTHING), after.collectives.get(kind, _NOTHING)
        if old == new:
            continue
        if not new.count:
            yield f"no {kind}s instead of {old.count} per step"
            continue
        combined = f" of {new.arrays} arrays" if new.arrays > new.count else ""
        largest = _change(format_bytes(old.largest_bytes), format_bytes(new.largest_bytes))
        parts = [
            f"{kind}s per step {_change(old.count, new.count)}{combined}",
            f"the largest {largest}",
            f"asynchronous {_change(old.asynchronous, new.asynchronous)}",
        ]
        if old.in_loops != new.in_loops:
            parts.append(f"in loops {_change(old.in_loops, new.in_loops)}")
        if old.bytes != new.bytes:
            parts.append(f"together {_change(format_bytes(old.bytes), format_bytes(new.bytes))}")
        yield ", ".join(parts)


def _matmuls(before: ProgramCounts, after: ProgramCounts) -> Iterator[str]:
    old, new = before, after
    if old.triton_matmuls != new.triton_matmuls:
        yield f"matmuls by Triton per step {_change(old.triton_matmuls, new.triton_matmuls)}"
    if old.library_matmuls != new.library_matmuls:
        yield f"matmuls by libraries per step {_change(old.library_matmuls, new.library_matmuls)}"


def _loops(before: ProgramCounts, after: ProgramCounts) -> Iterator[str]:
    if before.loops != after.loops:
        yield f"iterations of its loops {_change(_trips(before.loops), _trips(after.loops))}"


def _at_once(baseline: Outcome, other: Outcome) -> Iterator[str]:
    if None not in (baseline.at_once, other.at_once) and baseline.at_once != other.at_once:
        yield f"collectives in flight at once, at most {_change(baseline.at_once, other.at_once)}"


def _trips(loops: tuple[int, ...]) -> str:
    return " + ".join(str(count or "?") for count in loops) or "none"


def _change(before: object, after: object) -> str:
    return f"{before} → {after}" if before != after else f"{after}"


def _thresholds(
    settings: Mapping[str, str], baseline: Outcome, best: Outcome, layers: Mapping[str, Any]
) -> Iterator[str]:
    """What each threshold came to, beside the size of a layer."""
    for flag, kind in _THRESHOLDS.items():
        facts = layers.get(flag)
        if flag not in settings or facts is None or best.counts is None:
            continue
        made = best.counts.collectives.get(kind, _NOTHING)
        before = baseline.counts.collectives.get(kind) if baseline.counts is not None else None
        yield threshold_sentence(settings[flag], facts, layers["layers"], made, before)


def threshold_sentence(
    value: str,
    facts: Mapping[str, Any],
    layers: int,
    made: CollectiveCounts,
    before: CollectiveCounts | None,
) -> str:
    """What the compiled program has with a threshold, beside the size of one of its layers."""
    kind = facts["kind"]
    counted = "one device's share of a layer's gradients" if kind == "reduce-scatter" else (
        "a layer's gradients" if kind == "all-reduce" else "a layer's weights"
    )  # fmt: skip
    layer = f"{counted}: {format_bytes(facts['layer_bytes'])}, {layers} layers"
    threshold = f"the {kind} threshold of {format_bytes(int(value))}"
    if made == before:
        return f"{threshold} leaves the program's {kind}s as they are ({layer})"
    each = format_bytes(made.bytes / max(made.count, 1))
    return (
        f"with {threshold}, the program has {made.count} {kind}s per step, "
        f"{made.count / layers:.3g} for each layer, {each} on average ({layer})"
    )


def _bound(best: Outcome) -> Iterator[str]:
    if best.least_us:
        yield f"no schedule of its program takes less than {_time(best.least_us)}"


def _time(us: float) -> str:
    return format_time(us * PS_PER_US)
