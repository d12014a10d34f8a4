"""Why the best is better, in sentences: how the step changed, and what its settings mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.tune.outcome import Outcome
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
    """Sentences, the most important first."""
    return (
        *_parts(baseline, best),
        *_collectives(baseline, best),
        *_thresholds(settings, baseline, best, layers),
    )


def _parts(baseline: Outcome, best: Outcome) -> Iterator[str]:
    before, after = baseline.parts_us or {}, best.parts_us or {}
    step = baseline.step_us or 0.0
    changes = {name: after[name] - before[name] for name in before if name in after}
    for name, change in sorted(changes.items(), key=lambda pair: -abs(pair[1])):
        if step and abs(change) / step >= NOTICEABLE:
            yield (
                f"{name} {'falls' if change < 0 else 'rises'} from {_time(before[name])} to "
                f"{_time(after[name])}"
            )


def _collectives(baseline: Outcome, best: Outcome) -> Iterator[str]:
    before, after = baseline.collectives or {}, best.collectives or {}
    for kind in sorted({*before, *after}):
        count_before, bytes_before = before.get(kind, (0, 0))
        count, size = after.get(kind, (0, 0))
        if count != count_before:
            yield (
                f"{count} {kind}s per step instead of {count_before}, "
                f"{format_bytes(size / max(count, 1))} each on average instead of "
                f"{format_bytes(bytes_before / max(count_before, 1))}"
            )


def _thresholds(
    settings: Mapping[str, str], baseline: Outcome, best: Outcome, layers: Mapping[str, Any]
) -> Iterator[str]:
    for flag, kind in _THRESHOLDS.items():
        facts, made = layers.get(flag), (best.collectives or {}).get(kind)
        if flag not in settings or facts is None or made is None:
            continue
        before = (baseline.collectives or {}).get(kind)
        yield threshold_sentence(settings[flag], facts, layers["layers"], made, before)


def threshold_sentence(
    value: str,
    facts: Mapping[str, Any],
    layers: int | None,
    made: tuple[int, int],
    before: tuple[int, int] | None,
) -> str:
    """What the compiled program has with a threshold, beside the size of one of its layers.

    `made` and `before` are the number and the bytes of its collectives, with and without it. What
    a threshold ought to do is not claimed: XLA combines only what its other rules allow.
    """
    kind, (count, size) = facts["kind"], made
    counted = "one device's share of a layer's gradients" if kind == "reduce-scatter" else (
        "a layer's gradients" if kind == "all-reduce" else "a layer's weights"
    )  # fmt: skip
    layer = f"{counted}: {format_bytes(facts['layer_bytes'])}, {layers} layers"
    with_it = f"with the {kind} threshold of {format_bytes(int(value))}"
    if made == before:
        return f"{with_it}, the program has the same {kind}s as without it ({layer})"
    each = format_bytes(size / max(count, 1))
    return f"{with_it}, the program has {count} {kind}s per step of {each} on average ({layer})"


def _time(us: float) -> str:
    return format_time(us * PS_PER_US)
