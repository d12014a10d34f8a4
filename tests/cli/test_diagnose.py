"""`slipstream diagnose`: what it prints of recordings, its options and its documented JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.test_analyses import documented, keys
from slipstream.cli.main import app

DATA = Path(__file__).parents[1] / "data"
OFFLOAD = str(DATA / "off_default.xplane.pb.gz")
NCCL = str(DATA / "nccl2_lhs_r0.xplane.pb.gz")


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["diagnose", *arguments], catch_exceptions=False).output


@pytest.mark.parametrize("recording", [OFFLOAD, NCCL])
def test_it_fits_a_terminal(recording: str) -> None:
    lines = run(recording, "--all").splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 80


def test_the_json_is_documented() -> None:
    found = json.loads(run(NCCL, "--json"))
    assert keys(found) <= documented("diagnose")
    assert not (documented("diagnose") - keys(found)) & set(found)
    assert len(json.loads(run(NCCL, "--json", "--top", "1"))["findings"]) == 1


def test_costs_of_the_run(tmp_path: Path) -> None:
    costs = tmp_path / "costs.pb"
    costs.write_bytes(gzip.decompress((DATA / "nccl2_lhs_r0.pgle.pb.gz").read_bytes()))
    shown = run(OFFLOAD, "--costs", str(costs))
    assert "the PGLE profile does not fit the program" in shown


def test_settings_of_the_run(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        'export XLA_FLAGS="--xla_gpu_pgle_profile_file_or_directory_path=costs.pb"\npython t.py\n'
    )
    assert "much is exposed" in run(NCCL)
    shown = run(NCCL, "--settings", str(script), "--all")
    assert "much is exposed" not in shown
    assert "can't tell  pgle-unused: the run had a PGLE profile" in shown
