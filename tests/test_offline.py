"""Nothing leaves the machine: commands, reports and the viewer work without a network."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.outputs.html import page as html_page
from slipstream.serve import page as viewer_page

# An audit hook sees every use of a socket, by whatever Python code, and can't be taken out again.
GUARDED = """
import ipaddress, sys

seen = set()

def only_loopback(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind"):
        address = arguments[1]
        if isinstance(address, tuple) and not ipaddress.ip_address(address[0]).is_loopback:
            raise SystemExit(f"{event} {address}")
        seen.add(event)
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        if arguments[0] not in ("127.0.0.1", "localhost", "::1", None):
            raise SystemExit(f"{event} {arguments[0]}")
    elif event in ("urllib.Request", "webbrowser.open", "http.client.connect"):
        if "127.0.0.1" not in str(arguments):
            raise SystemExit(f"{event} {arguments}")

sys.addaudithook(only_loopback)
"""
COMMANDS = """
from typer.testing import CliRunner
from slipstream.cli.main import app

recording, folder = sys.argv[1:]
for command in (
    ["summary"], ["ops"], ["overlap"], ["collectives"], ["gaps"], ["slack"], ["roofline"],
    ["memory"], ["hosts"], ["network"], ["programs"], ["diagnose"],
    ["report", "-o", f"{folder}/report.html"], ["export", "-o", f"{folder}/trace.pftrace"],
    ["costs", "-o", f"{folder}/costs.pbtxt"],
):
    done = CliRunner().invoke(app, [command[0], recording, *command[1:]])
    assert done.exit_code == 0, (command, done.output, done.exception)
assert not seen, f"a command used the network: {seen}"
"""
SERVE = """
from http.client import HTTPConnection
from slipstream.serve.server import Server
from slipstream.serve.session import ViewerSession

session = ViewerSession([recording])
server = Server(session)
server.start()
session.first_read()
for path in ("/", "/assets/viewer.js", "/api/scene", "/api/summary?from_us=0&to_us=1000"):
    connection = HTTPConnection("127.0.0.1", server.server_port)
    cookie = {"Cookie": f"{server.guard.cookie}={server.guard.token}"}
    connection.request("GET", path, headers=cookie)
    assert connection.getresponse().status == 200, path
    connection.close()
server.close()
assert seen == {"socket.bind", "socket.connect"}, seen
print("all answered")
"""


def test_commands_and_the_viewer_use_no_network(tmp_path: Path, data: Path) -> None:
    recording = data / "nccl2_lhs_r0.xplane.pb.gz"
    code = GUARDED + COMMANDS + SERVE
    command = [sys.executable, "-c", code, str(recording), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "all answered\n"), done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
        "import socket; socket.gethostbyname('example.com')",
        "import urllib.request; urllib.request.urlopen('http://example.com')",
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 53))",
    ],
)
def test_the_guard_sees_what_leaves(use: str) -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED + use], capture_output=True, text=True)
    assert done.returncode == 1
    assert "192.0.2.1" in done.stderr or "example.com" in done.stderr


class Loads(HTMLParser):
    """Addresses that a page loads by itself; links that a person may follow don't count."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        loading = ("src", "srcset", "data", "poster", "action", "background", "ping")
        self.found += [value or "" for name, value in attributes if name in loading]
        if tag != "a":
            self.found += [value or "" for name, value in attributes if name == "href"]


def test_pages_load_nothing_from_elsewhere(tmp_path: Path, data: Path) -> None:
    target = tmp_path / "report.html"
    arguments = ["report", str(data / "nccl2_lhs_r0.xplane.pb.gz"), "-o", str(target)]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    report, viewer = target.read_text(), viewer_page.viewer_page()
    assert [one for one in Loads(report).found if not one.startswith(("#", "data:"))] == []
    own = ("assets/", "data:", "#")
    assert [one for one in Loads(viewer).found if not one.startswith(own)] == []


def test_scripts_and_styles_ask_nobody_else() -> None:
    folder = Path(html_page.__file__).parent / "assets"
    for path in sorted(folder.iterdir()):
        text = path.read_text()
        for loading in ("@import", "url(http", "url(//", "importScripts", "sendBeacon", "WebSocket",
                        "XMLHttpRequest", 'fetch("http', "fetch('http"):  # fmt: skip
            assert loading not in text, f"{path.name} has {loading}"
        # The one address, which opens when a person clicks its button.
        others = {part.split('"')[0].split("/")[0] for part in text.split("https://")[1:]}
        assert others <= {"ui.perfetto.dev", "perfetto.dev"}, path.name
