"""How far a simulated ranking goes: differences below the simulator's own error are ties.

The figures are those of docs/accuracy.md: the mean error over all recordings that were also
predicted. It is the error of a step, not of a ranking.
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.results.tuning import ErrorMargin, TrialResult

MODELLED_ERROR = 0.036
"""with no profile at all"""
MEASURED_ERROR = 0.013
"""with the costs of another setting of the same program"""


def trust_of(
    trials: Sequence[TrialResult], best: TrialResult | None, has_costs: bool
) -> ErrorMargin | None:
    """The margin for simulated steps; None where nothing was simulated."""
    if best is None or best.basis != "simulated" or best.change is None:
        return None
    margin = MEASURED_ERROR if has_costs else MODELLED_ERROR
    what = "costs of another setting" if has_costs else "modelled costs only"
    basis = f"mean error of predicted steps with {what}, docs/accuracy.md"
    least = best.change
    ties = [
        tried
        for tried in trials
        if tried.status == "ok" and tried.number != best.number and tried.change is not None
        if (1 + tried.change) / (1 + least) - 1 < margin
    ]
    return ErrorMargin(margin, basis, len(ties))
