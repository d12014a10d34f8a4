"""What `slipstream serve` holds: many pages on one large recording, for minutes.

Starts the command on a recording of 15 million events and lets 50 clients use it, each as the page
does: one connection listens for changes, another asks for the lanes, then for slices and a summary
of one window after another; some windows bring a search and the details of a slice. A client waits
a while between two windows (`--pause`), as people do. Every answer is checked.

Prints a line a minute: requests per second, latency (median, 99% below, longest), errors, and the
server's memory. Exits with 1 if there was an error or memory did not stay flat.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from decode import made
from make_recording import DATA
from served import served

PIXELS = 1300
SEARCHES = ("fusion", "dot", "copy", "all-gather", "nothing like it")


@dataclass
class Tally:
    """What clients saw since the last line of the table."""

    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def row(self, seconds: float) -> list[str]:
        found = sorted(self.latencies_s) or [0.0]
        times = (statistics.median(found), found[int(0.99 * (len(found) - 1))], found[-1])
        per_second = len(self.latencies_s) / seconds
        return [f"{per_second:.0f}", *(f"{1000 * s:.0f}" for s in times), str(len(self.errors))]


class Client:
    """One page: its connections, and what it asks for."""

    def __init__(self, url: str, number: int, tally: Tally, pause_s: float) -> None:
        self.address = urlsplit(url)
        self.chance = random.Random(number)
        self.tally = tally
        self.pause_s = pause_s
        self.cookie = ""

    async def first_view(self) -> dict:
        """Open the page; returns what it shows."""
        head, _ = await self.ask(f"/?{self.address.query}", expected=303)
        self.cookie = head.partition("Set-Cookie: ")[2].partition(";")[0]
        for path in ("/", "/assets/viewer.js", "/assets/viewer.css"):
            await self.ask(path)
        scene = json.loads((await self.ask("/api/scene"))[1])
        await self.look(scene, 0.0, scene["end_us"])
        return scene

    async def use(self) -> None:
        """Open the page, then move about in it until cancelled."""
        scene = await self.first_view()
        listener = asyncio.create_task(self.listen())
        try:
            while True:
                await asyncio.sleep(self.chance.expovariate(1 / self.pause_s))
                span = scene["end_us"] / 10 ** (6 * self.chance.random())
                begin = self.chance.random() * (scene["end_us"] - span)
                await self.look(scene, begin, begin + span)
        finally:
            listener.cancel()

    async def look(self, scene: dict, from_us: float, to_us: float) -> None:
        """One window, as the page asks for it."""
        window = {"from_us": from_us, "to_us": to_us, "generation": scene["generation"]}
        lanes = {
            name: ",".join(str(lane["id"]) for lane in scene["lanes"] if lane["collapsed"] is only)
            for name, only in (("lanes", False), ("tops", True))
        }
        found = await self.api("slices", **window, pixels=PIXELS, **lanes)
        header = json.loads(found[8 : 8 + int.from_bytes(found[:8], "little")])
        if len(header["lanes"]) != len(scene["lanes"]):
            self.tally.errors.append(f"{len(header['lanes'])} of {len(scene['lanes'])} lanes")
        await self.api("summary", **window)
        if self.chance.random() < 0.1:
            text = self.chance.choice(SEARCHES)
            found = json.loads(await self.api("search", text=text, **window))
            for hit in found["hits"][:1]:
                place = {"lane": hit["lane"], "start_us": hit["start_us"], "depth": hit["depth"]}
                await self.api("detail", **place, generation=scene["generation"])

    async def api(self, name: str, **parameters: object) -> bytes:
        return (await self.ask(f"/api/{name}?{urlencode(parameters)}"))[1]

    async def ask(self, path: str, expected: int = 200) -> tuple[str, bytes]:
        """Head and body of an answer; anything unexpected is an error of the tally."""
        began = time.perf_counter()
        try:
            if not hasattr(self, "streams"):
                self.streams = await self.connected()
            head, body = await self.answer(*self.streams, path)
            status = int(head.split()[1])
            if status != expected:
                raise ValueError(f"status {status}: {body[:200]!r}")
        except (OSError, EOFError, ValueError, IndexError) as error:
            self.tally.errors.append(f"{path}: {type(error).__name__}: {error}")
            if hasattr(self, "streams"):
                self.streams[1].close()
                del self.streams
            raise
        self.tally.latencies_s.append(time.perf_counter() - began)
        return head, body

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str
    ) -> tuple[str, bytes]:
        self.request(writer, path)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0])
        return head, await reader.readexactly(length)

    async def listen(self) -> None:
        """The page's connection for changes; there are none, so only its end is news."""
        reader, writer = await self.connected()
        self.request(writer, "/api/events")
        while await reader.readline():
            pass
        self.tally.errors.append("/api/events ended")

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.address.hostname, self.address.port)

    def request(self, writer: asyncio.StreamWriter, path: str) -> None:
        host = f"{self.address.hostname}:{self.address.port}"
        fields = f"Host: {host}\r\nCookie: {self.cookie}\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())


async def persistent(client: Client) -> None:
    """A client that goes on after an error, which its tally has."""
    while True:
        try:
            await client.use()
        except (OSError, EOFError, ValueError, IndexError):
            await asyncio.sleep(1)


async def load(url: str, pid: int, options: argparse.Namespace) -> tuple[list[float], list[str]]:
    """Let clients use a server; (memory at the end of each interval, all errors)."""
    # The first answer waits until the recording has been read.
    await Client(url, 0, Tally(), options.pause).first_view()
    tally = Tally()
    clients = [Client(url, number, tally, options.pause) for number in range(options.clients)]
    tasks = [asyncio.create_task(persistent(client)) for client in clients]
    memories, errors = [memory_mb(pid)], []
    print(f"{'minute':>6} {'requests/s':>10} {'p50 ms':>7} {'p99 ms':>7} {'max ms':>7} "
          f"{'errors':>6} {'memory MB':>9}", flush=True)  # fmt: skip
    for minute in range(1, options.minutes + 1):
        began = time.perf_counter()
        await asyncio.sleep(options.minute_s)
        row = tally.row(time.perf_counter() - began)
        memories.append(memory_mb(pid))
        print(f"{minute:6} {row[0]:>10} {row[1]:>7} {row[2]:>7} {row[3]:>7} {row[4]:>6} "
              f"{memories[-1]:9.0f}", flush=True)  # fmt: skip
        errors += tally.errors
        tally.latencies_s.clear()
        tally.errors.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return memories, errors


def memory_mb(pid: int) -> float:
    """Memory of a process that is its own: pages of files can be dropped at any time."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=15_000_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=int, default=10, help="lines of the table")
    parser.add_argument("--minute-s", type=float, default=60.0, help="seconds of a line")
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between windows")
    parser.add_argument(
        "--flat", type=float, default=0.05, help="by how much memory may grow after minute two"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "host.xplane.pb")
        count = made(DATA / "off_lhs_nocb.xplane.pb.gz", path, options.events)
        size_mb = path.stat().st_size / 1e6
        print(f"{count:,} device events, {size_mb:.0f} MB; {options.clients} clients")
        with served(path) as (process, url, _):
            memories, errors = asyncio.run(load(url, process.pid, options))
    for error in errors[:10]:
        print(error)
    # Names and searches are prepared when somebody first asks for them.
    growth = memories[-1] / memories[min(2, len(memories) - 1)] - 1
    print(f"{len(errors)} errors; memory {growth:+.1%} since the second minute")
    if errors or growth > options.flat:
        sys.exit(1)


if __name__ == "__main__":
    main()
