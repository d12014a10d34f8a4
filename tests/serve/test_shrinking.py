"""`slipstream serve` as people start it, while its recording is cut short and written again."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from serve.recordings import first_object

PATIENCE_S = 300
SERVE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from slipstream.cli.main import main; main()"
)


class Page:
    """Asks as the viewer's page does."""

    def __init__(self, url: str) -> None:
        self.address = urlsplit(url)
        answer, _ = self.ask(f"/?{self.address.query}")
        self.cookie = answer.getheader("Set-Cookie", "").partition(";")[0]

    def ask(self, path: str):
        connection = HTTPConnection(self.address.hostname, self.address.port, timeout=PATIENCE_S)
        connection.request("GET", path, headers={"Cookie": getattr(self, "cookie", "")})
        answer = connection.getresponse()
        body = answer.read() if path != "/api/events" else answer.readline()
        connection.close()
        return answer, body

    def api(self, path: str) -> tuple[int, dict]:
        answer, body = self.ask(f"/api/{path}")
        return answer.status, json.loads(body)

    def state_with(self, name: str, wanted: object) -> dict:
        """The server's state, once it is as wanted."""
        end = time.monotonic() + PATIENCE_S
        while True:
            state = json.loads(self.ask("/api/events")[1].removeprefix(b"data: "))
            if state[name] == wanted or (wanted is True and state[name]):
                return state
            assert time.monotonic() < end, state
            time.sleep(0.1)


def test_a_recording_cut_short_does_not_end_the_server(tmp_path: Path, data: Path) -> None:
    whole = gzip.decompress((data / "nccl2_lhs_r0.xplane.pb.gz").read_bytes())
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(whole)
    command = [sys.executable, "-c", SERVE, "serve", str(path), "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            page = Page(json.loads(first_object(process.stdout))["url"])
            status, scene = page.api("scene")
            assert status == 200
            # In place, so that what is mapped loses its end. Programs are read when asked for.
            os.truncate(path, 5_000)
            window = f"from_us=0&to_us={scene['end_us']}"
            _, found = page.api(f"search?text=a&{window}")
            hit = found["hits"][0]
            place = f"lane={hit['lane']}&start_us={hit['start_us']}&depth={hit['depth']}"
            assert page.api(f"detail?{place}")[0] in (200, 400, 500)
            state = page.state_with("error", True)
            assert str(path) in state["error"] and state["generation"] == 1
            assert page.api(f"summary?{window}")[0] == 200
            path.write_bytes(whole)
            assert page.state_with("generation", 2)["error"] == ""
            assert page.api(f"detail?{place}")[0] == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
