"""The demo: a GPT step for eight H200, compiled and predicted on a machine that has none.

1. The real XLA GPU compiler compiles `gpt.py` for 8 H200; no GPU is needed.
2. Its schedule is simulated: how long would the step take, and where would it wait?
3. What every instruction costs goes back to XLA's scheduler (PGLE), which schedules anew.
4. The new schedule is simulated, and both stand side by side.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slipstream.compiler.compile import compilation
from slipstream.costs.extract import extract_costs
from slipstream.errors import SlipstreamError
from slipstream.machines.topology import machine
from slipstream.simulate.prediction import predict

MACHINE = "8xH200"
TARGET = Path(__file__).with_name("gpt.py")

console = Console(highlight=False)


@contextmanager
def phase(text):
    """A line that moves while something takes long, and stays with the time that it took."""
    begin = time.perf_counter()
    status = console.status(text)
    with status:
        yield lambda detail: status.update(f"{text} · {detail}")
    console.print(f"{text:62} {time.perf_counter() - begin:6.1f} s")


def compiled(text, costs=None):
    with phase(text) as update:
        return compilation(f"{TARGET}:build", on=MACHINE, costs=costs, progress=update)


def rows(before, after):
    """(what, XLA's own schedule, with costs) for people who see this for the first time."""

    def ms(us):
        return f"{us / 1000:.2f} ms"

    yield "step", ms(before.step_us), ms(after.step_us)
    yield "  compute", ms(before.compute_us), ms(after.compute_us)
    yield "  communication", ms(before.communication_us), ms(after.communication_us)
    yield (
        "    exposed",
        ms(before.exposed_communication_us),
        ms(after.exposed_communication_us),
    )
    yield (
        "lower bound",
        ms(before.bounds.least_us),
        ms(after.bounds.least_us),
    )
    yield (
        "memory per GPU",
        *(
            f"{p.memory_bytes / 1e9:.2f} of {p.memory_capacity_bytes / 1e9:.0f} GB"
            for p in (before, after)
        ),
    )
    yield "MFU", f"{before.mfu:.0%}", f"{after.mfu:.0%}"


def main() -> None:
    where = machine(MACHINE)
    console.print(f"A GPT's training step on {MACHINE}, predicted on this machine\n")
    first = compiled("1 compile for 8 H200 with the real XLA compiler, no GPU")
    with phase("2 simulate its schedule"):
        before = predict(first.program, where, compilation=first)
    with tempfile.TemporaryDirectory() as folder:
        with phase("3 what each instruction costs, written for XLA's scheduler"):
            costs = Path(folder) / "costs.pb"
            table = extract_costs(before.timeline)
            table.write(costs)
        second = compiled("4 compile again, scheduled by those costs (PGLE)", costs)
    with phase("5 simulate the new schedule"):
        after = predict(second.program, where, compilation=second)

    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    shown.add_column("XLA's estimates", justify="right")
    shown.add_column("with our costs", justify="right")
    for row in rows(before, after):
        shown.add_row(*row)
    console.print()
    console.print(shown)
    moved = (
        before.program != after.program or first.program.content_hash != second.program.content_hash
    )
    change = after.step_us / before.step_us - 1
    console.print()
    console.print(
        f"{len(table)} costs given; the schedule {'changed' if moved else 'is the same'}."
    )
    if abs(change) < 0.005:
        console.print(f"The step would take as long as before ({change:+.1%}).")
    else:
        console.print(f"The step would take {abs(change):.1%} {'less' if change < 0 else 'more'}.")
    console.print("All times are predicted: kernels and links are modelled, nothing ran on a GPU.")
    console.print(
        "\nNext:  slipstream predict examples/gpt.py:build --on 8xH200,64xH200 --waits\n"
        "       slipstream summary PATH      of what jax.profiler wrote on your GPUs"
    )


if __name__ == "__main__":
    try:
        main()
    except SlipstreamError as error:
        console.print(f"error: {error}")
        sys.exit(error.exit_code)
