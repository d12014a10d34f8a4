"""Traces handed to a browser that fetches them as Perfetto's page does, or that never comes."""

from __future__ import annotations

import re
import socket
import threading
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from free_port import free_port
from slipstream.cli.main import app
from slipstream.cli.profiles import perfetto_ui
from slipstream.errors import Missing

OFFLOAD = str(Path(__file__).parent.parent / "data" / "off_default.xplane.pb.gz")


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Others may use the real one."""
    found = free_port()
    monkeypatch.setattr(perfetto_ui, "PORT", found)
    return found


def test_an_exported_trace_opens_in_a_browser(port, tmp_path, monkeypatch):
    fetched: list[object] = []

    def fetch(url: str) -> None:
        # Somebody who connects and says nothing is in nobody's way.
        with socket.create_connection(("127.0.0.1", port)):
            for wrong, host, status in (
                (url.replace("a%20b", "other"), f"127.0.0.1:{port}", 404),
                (f"http://127.0.0.1:{port}/a%20b.pftrace", f"127.0.0.1:{port}", 404),
                (url, f"evil.example:{port}", 421),
                (url, "evil.example", 421),
                (url, "a b", 400),
            ):
                asked = urllib.request.Request(wrong, headers={"Host": host})
                with pytest.raises(urllib.error.HTTPError, match=str(status)) as refused:
                    urllib.request.urlopen(asked)
                refused.value.close()
            got(url)

    def got(url: str) -> None:
        with urllib.request.urlopen(url) as answer:
            fetched.extend((answer.read(), answer.headers["Access-Control-Allow-Origin"]))

    threads = []

    def browse(link: str) -> bool:
        page, _, url = link.partition("/#!/?url=")
        assert page == "https://ui.perfetto.dev"
        threads.append(threading.Thread(target=fetch, args=(url,)))
        threads[0].start()
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    output = tmp_path / "a b.pftrace"
    arguments = ["export", OFFLOAD, "-o", str(output), "--open"]
    said = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    threads[0].join()
    assert fetched == [output.read_bytes(), "https://ui.perfetto.dev"]
    link = (
        rf"https://ui\.perfetto\.dev/#!/\?url=http://127\.0\.0\.1:{port}/[\w-]{{22}}/a%20b\.pftrace"
    )
    assert re.fullmatch(f"opening {link}", said.splitlines()[1])


def test_a_browser_that_never_comes(port, tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda link: False)
    file = tmp_path / "a.pftrace"
    file.write_bytes(b"trace")
    with pytest.raises(Missing, match="no browser fetched the trace; open .*a.pftrace at https"):
        perfetto_ui.serve_trace(file, print, timeout_s=0)


def test_a_port_that_is_taken(port, tmp_path):
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(Missing, match=rf"cannot use port {port}, .*: Address already in use"),
    ):
        perfetto_ui.serve_trace(tmp_path / "a.pftrace", print)
