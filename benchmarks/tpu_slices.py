"""What many slices of TPUs cost, each published model predicted from the three others.

    python benchmarks/tpu_slices.py

Slipstream's loss of several slices (`SLICE_DELAY`, `SLICE_TAIL` of machines/jitter.py) is a power
of the hosts, fitted to two of MaxText's four models.  This fits it again without each model in turn
and compares the fall of its MFU from 1 to 32 slices.  It compiles nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import mean

SLICES = (1, 2, 4, 8, 16, 32)
MFU = {
    # per cent, in billions of parameters: MaxText/configs/v5e/README.md of AI-Hypercomputer/maxtext
    16: (61.10, 59.37, 59.14, 58.27, 56.56, 54.65),
    32: (66.86, 64.81, 64.10, 63.67, 62.26, 60.40),
    64: (59.90, 56.66, 55.85, 54.96, 53.29, 50.18),
    128: (56.06, 55.82, 54.93, 52.93, 50.86, 46.25),
}
HOSTS = 64
"""of a slice of 256 v5e"""


def main() -> None:
    print("model  fitted to            seen  predicted  error  (points of MFU, 1 to 32 slices)")
    errors = []
    for left_out, mfu in MFU.items():
        others = [model for model in MFU if model != left_out]
        seen, predicted = mfu[0] - mfu[-1], mfu[0] - mfu[0] / (1.0 + loss(others))
        errors.append(predicted - seen)
        names = ", ".join(f"{model}B" for model in others)
        print(f"{left_out:>4}B  {names:18} {seen:6.1f} {predicted:10.1f} {errors[-1]:+6.1f}")
    unfitted = mean(mfu[0] - mfu[-1] for mfu in MFU.values())
    print(f"mean of absolute errors: {mean(map(abs, errors)):.1f}; with no loss: {unfitted:.1f}")
    print(f"of the predicted loss, root mean square: {relative_error():.0%}")


def relative_error() -> float:
    """How far the loss of a model is from the one fitted to the others, as a share of this."""
    shares = [
        (mfu[0] / mfu[-1] - 1.0) / loss([model for model in MFU if model != left_out]) - 1.0
        for left_out, mfu in MFU.items()
    ]
    return math.sqrt(mean(share * share for share in shares))


def loss(models: Collection[int]) -> float:
    """What the most slices lose, as a share of the step, fitted to these models."""
    delay, tail = fitted(models)
    return delay * (SLICES[-1] * HOSTS) ** tail


def fitted(models: Collection[int]) -> tuple[float, float]:
    """The power law, factor and exponent, with the least squares to the models' mean loss."""
    hosts = [slices * HOSTS for slices in SLICES[1:]]
    lost = [
        mean(MFU[model][0] / MFU[model][place] - 1.0 for model in models)
        for place in range(1, len(SLICES))
    ]
    fits = []
    for thousandths in range(100, 2000):
        tail = thousandths / 1000
        powers = [count**tail for count in hosts]
        # The best factor for this exponent.
        delay = sum(x * y for x, y in zip(powers, lost, strict=True)) / sum(x * x for x in powers)
        squares = sum((delay * x - y) ** 2 for x, y in zip(powers, lost, strict=True))
        fits.append((squares, delay, tail))
    _, delay, tail = min(fits)
    return delay, tail


if __name__ == "__main__":
    main()
