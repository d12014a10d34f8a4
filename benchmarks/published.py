"""Steps of 8 to 512 GPUs that others measured and published, predicted with no GPU.

    python benchmarks/published.py [FOLDER] [--only TEXT]

FOLDER has the programs and a `rows.json` with machine and measured seconds of each; by default
tests/data/published, whose README names the sources.  An error is predicted / measured - 1.  No
constant of the models was fitted to any of these rows, so leaving one out changes nothing: every
error is that of a row never seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from published_parts import layer  # noqa: E402

from slipstream.compiler.compile import compilation
from slipstream.machines.topology import machine
from slipstream.results.prediction import Prediction
from slipstream.simulate.prediction import predict

ROOT = Path(__file__).resolve().parent.parent
MEAN_GOAL, WORST_GOAL = 0.05, 0.08


@dataclass(frozen=True)
class Row:
    name: str
    machine: str
    seconds: float
    prediction: Prediction
    simulated_s: float
    """how long the prediction took after the compile"""

    @property
    def error(self) -> float:
        return self.prediction.step_us / 1e6 / self.seconds - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=str(ROOT / "tests/data/published"))
    parser.add_argument("--only", default="", help="rows whose name or file has this text")
    options = parser.parse_args()
    folder = Path(options.folder)
    everything = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    stated = everything["steps"]
    print(HEAD)
    rows = []
    for facts in stated:
        if options.only in facts["name"] or options.only in facts["file"]:
            rows.append(row(folder, facts))
            print(line(rows[-1]), flush=True)
    if not rows:
        raise SystemExit(f"no row has {options.only!r}; there are: {[f['name'] for f in stated]}")
    errors = [abs(one.error) for one in rows]
    print(f"\nmean of absolute errors {sum(errors) / len(errors):.1%} (goal {MEAN_GOAL:.0%})")
    print(f"worst                   {max(errors):.1%} (goal {WORST_GOAL:.0%})")
    if "layer" in everything and not options.only:
        print("\n" + "\n".join(layer.page(folder, everything["layer"])))


def row(folder: Path, facts: dict[str, Any]) -> Row:
    where = machine(facts["machine"])
    compiled = compilation(str(folder / facts["file"]), on=where)
    begin = time.perf_counter()
    prediction = predict(compiled.program, where, compilation=compiled)
    taken = time.perf_counter() - begin
    return Row(facts["name"], facts["machine"], facts["seconds"], prediction, taken)


HEAD = (
    f"{'':22}{'machine':>10}{'measured':>10}{'predicted':>11}{'error':>8}"
    f"{'compute':>10}{'exposed':>9}{'default':>9}{'took':>8}"
)


def line(one: Row) -> str:
    found = one.prediction
    return (
        f"{one.name:22}{one.machine:>10}{one.seconds:>8.3f} s{found.step_us / 1e6:>9.3f} s"
        f"{one.error:>+8.1%}{found.compute_us / 1e6:>8.3f} s"
        f"{found.exposed_communication_us / 1e6:>7.3f} s{found.basis.get('default', 0.0):>9.1%}"
        f"{one.simulated_s:>6.2f} s"
    )


if __name__ == "__main__":
    main()
