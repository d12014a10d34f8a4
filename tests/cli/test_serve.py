"""`slipstream serve` as a process: it says where it is, answers, and ends when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from json_contract import check
from serve.recordings import first_object, write_recording

PATIENCE_S = 300
SERVE = [sys.executable, "-m", "slipstream", "serve"]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "host.xplane.pb")


def test_it_answers_and_ends_with_ctrl_c(recording: Path) -> None:
    command = [*SERVE, str(recording), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(url, timeout=PATIENCE_S) as page:
            assert b"<title>Slipstream</title>" in page.read()
        with browser.open(url.partition("?")[0] + "api/scene", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["facts"][0] == "9 device events"
        process.send_signal(signal.SIGINT)
        assert (process.wait(PATIENCE_S), process.stdout.read()) == (0, "")


def test_json_says_where_it_is(recording: Path) -> None:
    command = [*SERVE, str(recording), "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(first_object(process.stdout))
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert set(told) == {"url", "host", "port", "paths"}
    check("serve", json.dumps(told))
    assert (told["host"], told["paths"]) == ("127.0.0.1", [str(recording)])
    assert told["url"].startswith(f"http://127.0.0.1:{told['port']}/?token=")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    command = [*SERVE, str(tmp_path / "nothing"), "--no-open"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=dict(os.environ)
    )
    assert done.returncode == 2
    assert "nothing does not exist" in done.stderr
