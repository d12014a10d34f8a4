"""Whether predictions put the settings of one model in the order that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from accuracy_parts.measuring import goal, rank_correlation, signed, table
from slipstream.experiment.stats import compare

TEXT = """Ranks. Most settings change a step by less than its noise, and no prediction can rank what
the measurement cannot. So only pairs that the interleaved wall-clock steps distinguish are counted,
by the rule with which `slipstream.optimize` calls a program faster: the whole 95% interval of the
paired ratio (Hodges-Lehmann) is on one side of zero. Each pair is predicted from the costs of every
setting. The correlation over such pairs is Goodman and Kruskal's gamma: correct minus wrong pairs,
divided by all. Spearman's covers all settings of a model, noise included, averaged over the sources
of the costs.
"""


@dataclass(frozen=True)
class Timed:
    """One model's interleaved step times by setting, and its predicted steps by (costs of, of)."""

    name: str
    wall_ms: Mapping[str, Sequence[float]]
    predicted_ms: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Order:
    """One pair of settings that the measurement tells apart, predicted from one setting's costs."""

    model: str
    faster: str
    slower: str
    source: str
    measured: float
    """how much longer the slower one takes"""
    predicted: float

    @property
    def is_right(self) -> bool:
        return self.predicted > 0


def orders(model: Timed) -> Iterator[Order]:
    sources = list(dict.fromkeys(source for source, _ in model.predicted_ms))
    for one, other in combinations(model.wall_ms, 2):
        found = compare(*([t / 1e3 for t in model.wall_ms[name]] for name in (one, other)))
        if found.verdict not in ("faster", "slower"):
            continue
        slow, fast = (other, one) if found.verdict == "slower" else (one, other)
        change = found.change if found.verdict == "slower" else 1 / (1 + found.change) - 1
        for source in sources:
            ours = model.predicted_ms[source, slow] / model.predicted_ms[source, fast] - 1
            yield Order(model.name, fast, slow, source, change, ours)


def section(models: Sequence[Timed]) -> list[str]:
    rows, gammas, everything, spearmans = [], [], [], []
    for model in models:
        found = list(orders(model))
        everything += found
        pairs = len({(o.faster, o.slower) for o in found})
        settings = len(model.wall_ms)
        gamma = _gamma(found)
        gammas += [gamma] if gamma is not None else []
        spearman = _spearman(model)
        spearmans.append(spearman)
        rows.append([
            model.name, f"{pairs} of {settings * (settings - 1) // 2}",
            f"{max((o.measured for o in found), default=0.0):.1%}",
            f"{sum(o.is_right for o in found)} of {len(found)}",
            f"{gamma:.2f}" if gamma is not None else "–", f"{spearman:.2f}",
        ])  # fmt: skip
    heads = ["model", "pairs told apart", "largest difference", "predicted in the right order",
             "gamma", "Spearman, all settings"]  # fmt: skip
    right, mean = sum(o.is_right for o in everything), float(np.mean(gammas))
    return [
        TEXT,
        table(heads, rows),
        "",
        goal(
            "rank correlation within a model over what can be told apart, mean over models "
            "(goal 0.9)",
            f"{mean:.2f}",
            mean >= 0.9,
        ),
        f"- such pairs in the right order: **{right} of {len(everything)}**",
        f"- Spearman's over all settings, noise included, mean over models: "
        f"**{np.mean(spearmans):.2f}**",
        "",
        *_failures([o for o in everything if not o.is_right]),
    ]


def _gamma(found: Sequence[Order]) -> float | None:
    right = sum(o.is_right for o in found)
    return (2 * right - len(found)) / len(found) if found else None


def _spearman(model: Timed) -> float:
    settings = list(model.wall_ms)
    measured = [float(np.median(model.wall_ms[one])) for one in settings]
    sources = list(dict.fromkeys(source for source, _ in model.predicted_ms))
    return float(np.mean([
        rank_correlation([model.predicted_ms[source, one] for one in settings], measured)
        for source in sources
    ]))  # fmt: skip


def _failures(wrong: Sequence[Order]) -> list[str]:
    if not wrong:
        return ["None is in the wrong order.", ""]
    heads = ["in the wrong order", "costs of", "slower by, measured", "predicted"]
    rows = [
        [f"{o.model}: {o.slower} against {o.faster}", o.source, signed(o.measured),
         signed(o.predicted)]
        for o in wrong
    ]  # fmt: skip
    return [table(heads, rows), ""]
