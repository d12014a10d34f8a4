"""How long each analysis takes on three million device events, beside reading them alone.

Two recordings, made from real ones: host copies on one GPU (`off`), and NCCL's collectives
(`nccl`).  `command` is a whole `slipstream COMMAND FILE --json`, the best of several; `within` is
the analysis itself, of a profile that is read, its steps and programs known.  `--events` takes
another number, `--quick` one round of each.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_recording import DATA, make_recording

from slipstream.profile.profile import Profile
from slipstream.sources.load import load

SOURCES = {"off": "off_lhs_nocb", "nccl": "nccl2_lhs_r0"}
ANALYSES = (
    "summary", "ops", "overlap", "collectives", "slack", "gaps", "roofline", "memory", "hosts",
    "network", "diff",
)  # fmt: skip
READING = "from slipstream.sources.load import load; import sys; load(sys.argv[1]).steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    rounds = 1 if given.quick else 5
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, source in SOURCES.items():
            files[name] = Path(folder) / f"{name}.xplane.pb"
            made = make_recording(DATA / f"{source}.xplane.pb.gz", files[name], given.events)
            print(f"{name}: {made:,} events, {files[name].stat().st_size / 1e6:,.0f} MB")
        print(f"\n{'seconds':<14}" + "".join(f"{name:>10}{'within':>10}" for name in files))
        read = [best(lambda f=file: reading(f), rounds) for file in files.values()]
        print(f"{'reading alone':<14}" + "".join(f"{seconds:>10.2f}{'':>10}" for seconds in read))
        profiles = {name: load(file) for name, file in files.items()}
        for analysis in ANALYSES:
            cells = []
            for name, file in files.items():
                cells.append(f"{best(lambda a=analysis, f=file: command(a, f), rounds):>10.2f}")
                cells.append(
                    f"{best(lambda a=analysis, n=name: within(a, profiles[n]), rounds):>10.3f}"
                )
            print(f"{analysis:<14}" + "".join(cells), flush=True)


def best(measure, rounds: int) -> float:
    """The shortest of several: the rest is what else the machine did."""
    measure()  # machine code is compiled once
    return min(measure() for _ in range(rounds))


def reading(file: Path) -> float:
    return timed([sys.executable, "-c", READING, str(file)])


def command(analysis: str, file: Path) -> float:
    files = [str(file)] * (2 if analysis == "diff" else 1)
    script = str(Path(sys.executable).with_name("slipstream"))
    return timed([script, analysis, *files, "--json"])


def timed(words: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def within(analysis: str, profile: Profile) -> float:
    run = getattr(importlib.import_module(f"slipstream.analyses.{analysis}"), analysis)
    fresh = profile.with_events(profile.events)
    others = [fresh] if analysis != "diff" else [fresh, profile.with_events(profile.events)]
    for one in others:
        # What reading has found already stays; what analyses find of it is found anew.
        assert one.steps and one.runs
    begin = time.perf_counter()
    run(*others)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
