"""The profiles of hundreds of hosts: `summary`, `hosts` and `costs` in bounded memory.

Builds recordings of a fleet from a real one (a GPU each, the same step, clocks that differ, one
host that comes late), runs each command on them in processes of its own, and prints the time, the
events per second, and the peak memory of the parent and of its largest worker; then XProf's
overview on 1, 4, 16, … of the same recordings, as many as it manages within `--xprof-minutes`, and,
with `--ray local`, the same summary on a Ray cluster of this machine, one of whose workers is
killed on the way. The recordings are deleted at the end unless `--keep`.

    python benchmarks/fleet.py --hosts 256 --events 336000 --folder /tmp/fleet    # about 10 GB
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from make_recording import make_recording

from host_recordings import START_NS, host_space
from slipstream.sources.proto_schema import message

SLIPSTREAM = (sys.executable, "-P", "-m", "slipstream")
XPROF = """
import sys
from xprof.convert import raw_to_tool_data
text, _ = raw_to_tool_data.xspace_to_tool_data(sys.argv[1:], "overview_page", {})
print(len(text))
"""
VARIANTS = 8
"""speeds of hosts"""
PERIOD_PS = 10_500 * 10**9
"""after which steps repeat: the same on all hosts"""
LATE = 17
"""the host that comes late"""


def build(folder: Path, hosts: int, events: int) -> int:
    """Write the recordings; returns their device events."""
    folder.mkdir(parents=True, exist_ok=True)
    made = 0
    with tempfile.TemporaryDirectory() as temporary:
        for variant in range(min(VARIANTS, hosts)):
            own = range(variant, hosts, VARIANTS)
            whole, count = _repeated(Path(temporary), events, 0.9 + variant / 200, variant * 0.2)
            for number in own:
                if number != LATE:
                    _write_as(folder, number, whole)
            made += count * sum(number != LATE for number in own)
        if hosts > LATE:
            whole, count = _repeated(Path(temporary), events, 1.0, 60.0)
            _write_as(folder, LATE, whole)
            made += count
    return made


def _repeated(folder: Path, events: int, compute: float, late_us: float) -> tuple[bytes, int]:
    """A recording with that many events, and their number."""
    source, target = folder / "source.gz", folder / "target"
    space = host_space("vm", late_us=late_us, compute=compute)
    source.write_bytes(gzip.compress(space.SerializeToString(), 1))
    count = make_recording(source, target, events, PERIOD_PS)
    return target.read_bytes(), count


def _write_as(folder: Path, number: int, whole: bytes) -> None:
    """The recording under the name of another host, whose clock is some microseconds ahead."""
    name = f"node-{number:04d}"
    start = _varint(START_NS)
    assert whole.count(start) == 1 and whole.endswith(b"\x22\x02vm")
    moved = whole[:-4].replace(start, _varint(START_NS + number * 1_000))
    tail = message("XSpace")(hostnames=[name]).SerializeToString()
    (folder / f"{name}.xplane.pb").write_bytes(moved + tail)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


class Peak:
    """Peak memory of a process and of the largest of those below it, sampled; their CPU time."""

    def __init__(self, pid: int) -> None:
        self.parent = self.worker = self.together = 0
        self.cpu_s = 0.0
        self._pid, self._is_done = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_done.wait(0.05):
            own, others = _rss(self._pid), [_rss(pid) for pid in _below(self._pid)]
            self.parent = max(self.parent, own)
            self.worker = max(self.worker, *others, 0)
            self.together = max(self.together, own + sum(others))

    def stop(self) -> None:
        self._is_done.set()
        self._thread.join()


def _below(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        threads = [p for p in Path(f"/proc/{pid}/task").iterdir() if p.name != str(pid)]
        text += " ".join((thread / "children").read_text() for thread in threads)
    except OSError:
        return []
    found = [int(word) for word in text.split()]
    return found + [other for one in found for other in _below(one)]


def _cpu_s() -> float:
    """CPU time of the processes that have ended, with those below them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _rss(pid: int) -> int:
    """Bytes of anonymous and file memory that a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run(command: list[str], environment: dict[str, str] | None = None, limit_s: float = 3600.0):
    """(seconds, peak memory, standard output, standard error); None if it failed."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        before = _cpu_s()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        peak = Peak(process.pid)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        peak.stop()
        peak.cpu_s = _cpu_s() - before
        seconds = time.perf_counter() - begin
        out.seek(0)
        err.seek(0)
        output, errors = out.read(), err.read()
    if code:
        print(f"  failed with {code} after {seconds:.0f} s: {errors.strip()[-200:]}")
        return None
    return seconds, peak, output, errors


def commands(folder: Path, events: int, jobs: int) -> None:
    """Each command on all hosts."""
    print("\ncommand          time  events/s  CPU time    parent  largest worker  together")
    with tempfile.TemporaryDirectory() as place:
        lines = {
            "summary": ["summary", str(folder)],
            "hosts": ["hosts", str(folder)],
            "costs": ["costs", "extract", str(folder), "-o", f"{place}/costs.pb"],
            "diagnose": ["diagnose", str(folder)],
            "report": ["report", str(folder), "-o", f"{place}/report.html"],
        }
        for name, line in lines.items():
            found = run([*SLIPSTREAM, *line, "--fleet", "--jobs", str(jobs), "--json"])
            if found is not None:
                _row(name, events, found[0], found[1])
                _checked(name, found[2])


def _row(name: str, events: int, seconds: float, peak: Peak, elsewhere: bool = False) -> None:
    """A line of the table; what processes of a cluster need is not known here."""
    speed = f"{name:12} {seconds:6.1f} s  {events / seconds / 1e6:6.2f} M"
    if elsewhere:
        print(f"{speed}         – {peak.parent / 1e6:6.0f} MB", flush=True)
        return
    print(
        f"{speed} {peak.cpu_s:7.1f} s "
        f"{peak.parent / 1e6:6.0f} MB {peak.worker / 1e6:12.0f} MB {peak.together / 1e6:6.0f} MB",
        flush=True,
    )


def _checked(name: str, output: str) -> None:
    """The late host must be found."""
    found = json.loads(output)
    if name == "hosts":
        late = max(found["rows"], key=lambda row: row["caused_us"] or 0)
        print(f"  {found['hosts']} hosts, {found['matched']} collectives matched; the others wait "
              f"most for {late['host']}: {late['caused_us'] / 1e3:.2f} ms per step")  # fmt: skip
    if name == "summary":
        print(f"  step {found['steps']['median_us'] / 1e3:.3f} ms, {len(found['hosts'])} hosts")


def xprof(folder: Path, minutes: float, events: int) -> None:
    """XProf's overview on as many recordings as it manages."""
    files = sorted(map(str, folder.glob("*.xplane.pb")))
    count, end = 1, time.monotonic() + 60 * minutes
    while count <= len(files) and time.monotonic() < end:
        with tempfile.TemporaryDirectory() as place:
            # XProf writes its caches beside the recordings.
            linked = [str(Path(place) / Path(file).name) for file in files[:count]]
            for file, link in zip(files, linked, strict=False):
                os.link(file, link) if _same_disk(file, place) else shutil.copy(file, link)
            found = run([sys.executable, "-c", XPROF, *linked], limit_s=end - time.monotonic())
        if found is None:
            return
        seconds, peak = found[0], found[1]
        _row(f"xprof on {count}", events * count // len(files), seconds, peak)
        count *= 4


def _same_disk(file: str, place: str) -> bool:
    return os.stat(file).st_dev == os.stat(place).st_dev


def on_ray(folder: Path, events: int) -> None:
    """The summary on a Ray cluster of this machine, and again with one of its workers killed."""
    script = Path(__file__).resolve().parents[1] / "tests" / "ray_cluster.py"
    temporary = tempfile.mkdtemp(prefix="ray-")
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": temporary,
                   "RAY_IGNORE_UNHANDLED_ERRORS": "1"}  # fmt: skip
    cluster = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    try:
        nodes = json.loads(cluster.stdout.readline())
        line = [*SLIPSTREAM, "summary", str(folder), "--ray", nodes["address"], "--json"]
        plain = run(line, environment)
        if plain is None:
            return
        _row("ray", events, plain[0], plain[1], elsewhere=True)
        killer = threading.Thread(target=_kill_one, args=(nodes["raylets"], plain[0] / 3))
        killer.start()
        again = run(line, environment)
        killer.join()
        if again is not None:
            _row("ray, killed", events, again[0], again[1], elsewhere=True)
            print("  " + again[3].strip().replace("\n", "\n  "))
            print(f"  the same result: {json.loads(again[2]) == json.loads(plain[2])}")
    finally:
        cluster.stdin.close()
        cluster.wait(120)
        shutil.rmtree(temporary, ignore_errors=True)


def _kill_one(raylets: list[int], after_s: float) -> None:
    """End a worker of a node that reads a recording, some seconds into the run."""
    time.sleep(after_s)
    while True:
        for pid in (pid for raylet in raylets for pid in _below(raylet)):
            try:
                if b"remote_digest" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    print(f"  killed worker {pid}", flush=True)
                    return
            except OSError:
                continue
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--events", type=int, default=40_000, help="of each host")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="where the recordings are, or will be")
    parser.add_argument("--keep", action="store_true", help="don't delete the recordings")
    parser.add_argument("--only-build", action="store_true")
    parser.add_argument("--xprof-minutes", type=float, default=1.0)
    parser.add_argument("--ray", choices=["local"])
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fleet-"))
    begin = time.perf_counter()
    known = folder / "events.json"
    if not known.exists():
        made = build(folder, given.hosts, given.events)
        known.write_text(json.dumps(made))
    events = json.loads(known.read_text())
    files = list(folder.glob("*.xplane.pb"))
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} recordings, {size / 1e9:.2f} GB, {events / 1e6:.1f} million device events "
          f"({time.perf_counter() - begin:.0f} s to build)", flush=True)  # fmt: skip
    if given.only_build:
        return
    try:
        commands(folder, events, given.jobs)
        if given.ray:
            on_ray(folder, events)
        xprof(folder, given.xprof_minutes, events)
    finally:
        if not given.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
