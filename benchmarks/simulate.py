"""How long it takes to compile, simulate and predict a GPT step, on this machine and with no GPU.

For 8, 64, 512 and 1,024 H200: the compile (the real XLA GPU compiler, not from the cache), and the
simulation of what it made, at the clock that its power cap leaves to it.  Then a step of 100,000
executed instructions, and a whole `slipstream predict` whose compile is in the cache.  `--quick`
leaves out 512 and 1,024.
`--program FILE --on SPEC` adds a row for a program of your own: a step of Llama 3.1 70B on 128 H100
(openxla/xla, xla/tools/benchmarks/hlo) is to take less than a second after its compile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slipstream.compiler.compile import compilation
from slipstream.machines.machine import Estimate
from slipstream.machines.topology import machine
from slipstream.profile.program import Program
from slipstream.simulate.engine import simulation
from slipstream.sources.hlo.reader import program_from_text

TARGET = str(Path(__file__).resolve().parent.parent / "examples" / "gpt.py") + ":build"
SIZES = ("8xH200", "64xH200", "512xH200", "1024xH200")
TURNS, KERNELS = 1000, 98


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--program", help="HLO before optimisation, or FILE.py:FUNCTION")
    parser.add_argument("--on", default="16x8xH100", help="the machine of --program")
    chosen = parser.parse_args()
    sizes = SIZES[:2] if chosen.quick else SIZES
    with tempfile.TemporaryDirectory() as folder:
        # A cache of its own: compiles are timed, not looked up.
        os.environ["XDG_CACHE_HOME"] = folder
        print(f"{'machine':>10}  compile  simulate  executed   step")
        for size in sizes:
            print(row(size), flush=True)
        if chosen.program:
            print(row(chosen.on, chosen.program), flush=True)
        print(f"\n{TURNS * (KERNELS + 2):,} executed instructions: {many():.3f} s")
        print(f"predict, cached: {cached(sizes[0]):.2f} s")


def row(size: str, target: str = TARGET) -> str:
    where = machine(size)
    begin = time.perf_counter()
    compiled = compilation(target, on=where)
    seconds = time.perf_counter() - begin
    if compiled.is_cached:
        raise SystemExit(f"the compile for {size} came from a cache, so its time says nothing")
    program = compiled.program
    begin = time.perf_counter()
    step = simulation(program, where)
    simulated = time.perf_counter() - begin
    events = step.profile.events
    end = int((events["start_ps"][:] + events["duration_ps"][:]).max()) / 1e9
    return (
        f"{size:>10}  {seconds:5.1f} s  {simulated:6.3f} s  "
        f"{sum(step.executions.values()):8,}   {end:.1f} ms"
    )


def many() -> float:
    """A loop of kernels, with collectives beside them, run a thousand times."""
    program = looped()
    estimates = {f"x{i}": Estimate(10.0, "modelled") for i in range(1, KERNELS + 1)}
    estimates |= {f"g{i}": Estimate(200.0, "modelled") for i in range(2)}
    where = machine("8xH200")
    simulation(program, where, estimates=estimates)  # loads the compiled code
    begin = time.perf_counter()
    step = simulation(program, where, estimates=estimates)
    seconds = time.perf_counter() - begin
    if sum(step.executions.values()) != TURNS * (KERNELS + 2):
        raise SystemExit(f"executed {sum(step.executions.values()):,} instructions")
    return seconds


def looped() -> Program:
    state = "(s32[], f32[1024])"
    body = [f"%p = {state} parameter(0)", "%i = s32[] get-tuple-element(%p), index=0"]
    body.append("%x0 = f32[1024] get-tuple-element(%p), index=1")
    for i in range(KERNELS):
        if i % (KERNELS // 2) == 0:
            begun = f"%g{i // (KERNELS // 2)} = (f32[1024], f32[8192]) all-gather-start(%x{i})"
            body.append(f"{begun}, replica_groups={{}}, dimensions={{0}}")
        body.append(f"%x{i + 1} = f32[1024] negate(%x{i})")
    body += [f"%d{i} = f32[8192] all-gather-done(%g{i})" for i in range(2)]
    body.append(f"ROOT %t = {state} tuple(%i, %x{KERNELS})")
    loop = f"while(%a), condition=%c, body=%b, backend_config={{{trip_count()}}}"
    return program_from_text(
        "HloModule many, is_scheduled=true\n\n"
        + f"%b (p: {state}) -> {state} {{\n  " + "\n  ".join(body) + "\n}\n\n"
        + f"%c (q: {state}) -> pred[] {{\n  %q = {state} parameter(0)\n"
        + "  ROOT %k = pred[] constant(true)\n}\n\n"
        + f"ENTRY %main (a: {state}) -> {state} {{\n  %a = {state} parameter(0)\n"
        + f"  ROOT %w = {state} {loop}\n}}\n"
    )  # fmt: skip


def trip_count() -> str:
    return f'"known_trip_count":{{"n":"{TURNS}"}}'


def cached(size: str) -> float:
    """Seconds of the whole command, the fastest of three."""
    command = (
        "from slipstream.cli.main import main; import sys; sys.argv[1:1] = ['predict']; main()"
    )
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", command, TARGET, "--on", size],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    main()
