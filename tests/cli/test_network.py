"""`slipstream network` on a recording and on the mock of a Megascale profile."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from megascale_builder import GBPS, HEALTHY, PROBLEMS, megascale
from slipstream.cli.main import app
from slipstream.errors import BadInput
from slipstream.outputs.terminal.network import sparkline

DATA = Path(__file__).parent.parent / "data"
OFFLOAD = str(DATA / "off_lhs_nocb.xplane.pb.gz")


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["network", *arguments], catch_exceptions=False).output


def test_a_recording():
    lines = run(OFFLOAD).splitlines()
    assert lines[0] == "links over time · 3 steps · 438 ms · 1x1xH200"
    assert any(line.startswith("host memory, to host · bars up to ") for line in lines)
    (row,) = (line for line in lines if "dynamic-slice" in line)
    assert row.split()[-2:] == ["GB/s", "83%"]
    assert max(map(len, lines)) <= 80


def test_json():
    found = json.loads(run(OFFLOAD, "--json"))
    assert list(found) == [
        "steps",
        "step_us",
        "bin_us",
        "machine",
        "series",
        "regions",
        "latency",
        "collectives",
        "troubles",
        "guide",
        "notes",
    ]
    assert [len(series["rates"]) for series in found["series"]] == [240, 240]
    assert found["latency"] is None


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_trouble_and_its_remedy_are_shown(name, tmp_path):
    path = str(megascale(PROBLEMS[name]).write(tmp_path / "host-0.xplane.pb"))
    shown = run(path, "--slice-gbps", str(GBPS))
    assert "\n! " in shown and "  → " in shown and "https://openxla.org/x" in shown
    assert max(map(len, shown.splitlines())) <= 84


def test_a_healthy_one_says_so(tmp_path):
    path = str(megascale(HEALTHY).write(tmp_path / "host-0.xplane.pb"))
    page = tmp_path / "page.html"
    shown = run(path, "--html", str(page))
    assert page.read_text(encoding="utf-8").count("<small>recorded</small>") == 7
    assert shown.count("\n✓ ") == 7 and "\n! " not in shown and "\n? " not in shown
    assert "--slice-gbps" in shown
    data = json.loads(run(path, "--json", "--slice-gbps", "100"))
    assert data["guide"][1].keys() == {
        "code", "question", "verdict", "basis", "evidence", "remedy", "per_step_us", "source",
    }  # fmt: skip
    assert data["troubles"] == [] and data["collectives"][0]["stall_us"] > 0
    assert data["latency"]["all"]["p50_us"] == 120


def test_an_unknown_machine():
    with pytest.raises(BadInput, match="there is no GPU 'H20O'"):
        run(OFFLOAD, "--on", "8xH20O")


def test_sparklines():
    assert sparkline([0, 1, 2, 8], 4, 8) == " ▁▂█"
    assert sparkline([1, 1, 8, 8], 2, 8) == "▁█"
    assert sparkline([], 3, 1) == "   "
