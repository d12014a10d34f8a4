"""How fast a profile becomes a table of ops: Slipstream, XProf and JAX on the same file.

Each tool runs in a process of its own, from start to printed result, the file in the page cache
for all of them. Ours, which takes less than a second, runs three times, and the middle one counts.
Prints seconds, peak memory and ratios; `--quick` uses a tenth of the events.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_recording import DATA

OURS = "from slipstream.cli.main import main; import sys; sys.argv[1:1] = ['ops']; main()"
XPROF = """
import sys
from xprof.convert import raw_to_tool_data
text, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "hlo_stats", {})
print(len(text))
"""
JAX = """
import sys, pathlib
from jax.experimental.profiler import get_profiled_instructions_proto
print(len(get_profiled_instructions_proto(str(pathlib.Path(sys.argv[1]).parent))))
"""
READ = """
import sys, time
import numpy as np
from slipstream.profile.events import Texts
from slipstream.sources.files import open_bytes
from slipstream.sources.xplane.to_profile import to_profile
from slipstream.sources.xplane.reader import read_xspace
from pathlib import Path
path = Path(sys.argv[1])
tiny = Path(sys.argv[2])
to_profile(read_xspace(tiny, open_bytes(tiny)))  # loads the compiled code
begin = time.perf_counter()
with path.open("rb", buffering=0) as file:
    buffer = bytearray(1 << 24)
    while file.readinto(buffer):
        pass
read = time.perf_counter() - begin
begin = time.perf_counter()
profile = to_profile(read_xspace(path, open_bytes(path)))
print(read, time.perf_counter() - begin, len(profile.events))
"""


def run(code: str, *arguments: str) -> tuple[float, float, str]:
    """(seconds, peak memory in MB, standard output) of a fresh Python process."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        out.seek(0)
        text = out.read()
    if status != 0:
        sys.exit(f"a tool failed with status {status}; its output is above")
    return seconds, usage.ru_maxrss / 1024, text


def made(source: Path, target: Path, events: int) -> int:
    """Make a recording in another process: a child's peak memory counts from its parent's."""
    script = Path(__file__).with_name("make_recording.py")
    command = [sys.executable, str(script), str(source), str(target), str(events)]
    count = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    os.sync()  # or the first tool would be measured while the disk is written
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    source = DATA / "off_lhs_nocb.xplane.pb.gz"
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "a", "host.xplane.pb"), Path(folder, "b", "host.xplane.pb")
        small.parent.mkdir()
        large.parent.mkdir()
        count = made(source, small, 3_000_000 // scale)
        size = small.stat().st_size
        print(f"{count:,} device events, {size / 1e6:.0f} MB")
        run(OURS, str(source), "--json")  # compiles, on the first use of this installation
        own = sorted(run(OURS, str(small), "--json") for _ in range(3))
        print("  slipstream, three times:", ", ".join(f"{seconds:.2f} s" for seconds, _, _ in own))
        results = {
            "slipstream ops --json": own[1],
            "XProf hlo_stats": run(XPROF, str(small)),
            "JAX get_profiled_instructions_proto": run(JAX, str(small)),
        }
        ours = results["slipstream ops --json"]
        check(ours[2])
        for name, (seconds, memory, _) in results.items():
            ratio = f"{seconds / ours[0]:6.1f}x  memory {memory / ours[1]:5.1f}x"
            print(f"  {name:36} {seconds:7.2f} s {memory:8.0f} MB   {ratio}")
            figures[f"{name} seconds"], figures[f"{name} MB"] = seconds, memory
        read, decode, _ = (float(x) for x in run(READ, str(small), str(source))[2].split())
        print(f"  reading the file {read:.2f} s, decoding it {decode:.2f} s: {decode / read:.1f}x")
        figures |= {"read seconds": read, "decode seconds": decode, "events": count}
        count = made(source, large, 15_000_000 // scale)
        seconds, memory, text = run(OURS, str(large), "--json")
        check(text)
        share = seconds / results["XProf hlo_stats"][0]
        print(f"{count:,} device events: {seconds:.2f} s, {memory:.0f} MB")
        print(f"  {share:.1%} of the time that XProf takes for a fifth of them")
        figures |= {"large seconds": seconds, "large MB": memory, "large share": share}
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


def check(text: str) -> None:
    """The answer must be the one of the recording that the file repeats."""
    found = json.loads(text)
    assert found["attributed_share"] == 1.0, found["attributed_share"]
    assert found["ops"][0]["instruction"] == "fusion.79", found["ops"][0]


if __name__ == "__main__":
    main()
