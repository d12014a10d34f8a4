"""Commands that analyse a profile: what they print of recordings, and their documented JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "data"
OFFLOAD = str(DATA / "off_lhs_nocb.xplane.pb.gz")
NCCL = str(DATA / "nccl2_lhs_r0.xplane.pb.gz")
COMMANDS = ("overlap", "collectives", "slack", "gaps", "roofline", "memory", "hosts")


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("recording", [OFFLOAD, NCCL])
def test_it_fits_a_terminal(command, recording):
    lines = run(command, recording).splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80


def documented(command: str) -> set[str]:
    """Every key that the section of docs/json.md names."""
    page = (REPOSITORY / "docs" / "json.md").read_text(encoding="utf-8")
    section = page.partition(f"## {command} --json\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`(\w+)`", section))


def keys(value: object) -> set[str]:
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    if isinstance(value, dict):
        return {*value, *(key for item in value.values() for key in keys(item))}
    return set()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_json_is_documented(command):
    found = json.loads(run(command, NCCL, "--json"))
    # The summary's section has the keys of its step.
    assert keys(found) - {"per_step_us"} <= documented(command) | documented("summary")
    shown = documented(command) - keys(found)
    assert not shown & set(found), "documented under another name"


def test_overlap():
    lines = run("overlap", OFFLOAD, "--top", "2").splitlines()
    assert lines[0] == "step 438 ms · copies 44.6 ms, exposed 22.4 ms (5.1%) · median of 3 steps"
    assert lines[6].split()[0] == "most"
    assert lines[9] == "… and 12 more: --top 14"
    assert "the whole recording" in run("overlap", OFFLOAD, "--all")


def test_overlap_lists_equal_collectives_as_one_unless_flat():
    shown = run("overlap", NCCL)
    same = [line for line in shown.splitlines() if "134 MB" in line and "model.py:25" in line]
    assert [line.split()[:2] for line in same] == [["20", "×"]]
    flat = run("overlap", NCCL, "--flat", "--wide")
    same = [line for line in flat.splitlines() if "134 MB" in line and "model.py:25" in line]
    assert [line.split()[:2] for line in same] == [["4", "×"]] * 5
    assert "all-to-all.19.1" in flat


def test_slack():
    lines = run("slack", OFFLOAD, "--top", "1").splitlines()
    assert lines[0] == "step 2 of GPU:0, 438 ms · 14 collectives and copies · 3 without slack"
    assert "wrapped_dynamic-slice is exposed for 20.3 ms: input_reduce_fusion" in "\n".join(lines)
    assert run("slack", OFFLOAD, "--step", "1").startswith("step 1 of GPU:0")
    with pytest.raises(BadInput, match=r"step 9 is not in this profile \(it has steps 0 to 2\)"):
        run("slack", OFFLOAD, "--step", "9")


def test_collectives():
    assert run("collectives", NCCL, "--top", "6").splitlines() == [
        "35 collectives · NVIDIA H200 · NVLink with NVSwitch 450 GB/s · groups of 2",
        "3 steps",
        "",
        "      collective                     source           ms  exposed  GB/s  link",
        " 4 ×  backward · all-to-all 1.07 GB  model.py:22  1336.2   1334.8  1.62   <1%",
        "20 ×  backward · all-to-all 134 MB   model.py:25   834.9    834.0  1.64   <1%",
        " 4 ×  backward · all-gather 268 MB   model.py:25   289.6    289.4  1.86   <1%",
        "12 ×  backward · all-to-all 67.1 MB  model.py:16   257.4    256.3  1.59   <1%",
        "16 ×  backward · all-to-all 33.6 MB  model.py:22   174.9    170.9  1.63   <1%",
        " 8 ×  backward · all-to-all 33.6 MB  model.py:16    83.4     81.6  1.71   <1%",
        "… and 18 more: --top 24",
    ]
    lines = run("collectives", NCCL, "--filter", "all-reduce.9", "--wide").splitlines()
    assert lines[3:] == [
        "     collective                                instruction   source         ms  exposed"
        "   GB/s  link",
        "4 ×  backward · all-reduce ∂ln2, ∂ln1 8.19 kB  all-reduce.9  model.py:16  14.7     14.7"
        "  <0.01   <1%",
    ]
    assert "no collectives in the steps" in run("collectives", OFFLOAD)


def test_memory_says_that_no_row_matches_only_if_no_table_has_one():
    for pattern in ("temporaries", "wqkv"):
        assert "no row matches" not in run("memory", OFFLOAD, "--filter", pattern)
    assert "no row matches 'nosuch'" in run("memory", OFFLOAD, "--filter", "nosuch")


def test_memory_and_roofline():
    assert "20.8 GB of 150 GB" in run("memory", OFFLOAD)
    assert "MFU 39.6%" in run("roofline", OFFLOAD)


def test_two_processes_as_one_run(external, tmp_path):
    for number in (0, 1):
        name = f"nsysjax_pax_fsdp4_a100_proc{number}.zip"
        (tmp_path / name).symlink_to(external / name)
    lines = run("hosts", str(tmp_path)).splitlines()
    assert lines[0] == "2 processes · 2 devices · clocks aligned by 92 collectives"
    assert max(map(len, lines)) <= 80


def test_tables_are_arranged_as_asked():
    lines = run("collectives", NCCL, "--sort", "bytes:asc", "--columns", "bytes,kind").splitlines()
    assert [line.split() for line in lines[3:5]] == [["bytes", "kind"], ["4", "B", "all-reduce"]]
    lines = run("roofline", OFFLOAD, "--filter", "^backward · softmax").splitlines()
    assert lines[3].startswith("largest loss") and len(lines) == 5
    with pytest.raises(BadInput, match="no column 'lots'; did you mean lost"):
        run("roofline", OFFLOAD, "--sort", "lots")
    with pytest.raises(BadInput, match="--wide arranges tables, and --json prints none"):
        run("roofline", OFFLOAD, "--wide", "--json")
    with pytest.raises(BadInput, match="--sort arranges tables, and --csv prints none"):
        run("query", OFFLOAD, "select 1 as one", "--sort", "one", "--csv")


def test_a_pipe_is_as_wide_as_columns_says(monkeypatch):
    assert max(map(len, run("ops", OFFLOAD).splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "130")
    assert "instruction" in run("ops", OFFLOAD).splitlines()[2]
    assert "instruction" in run("ops", OFFLOAD, "--wide").splitlines()[2]
