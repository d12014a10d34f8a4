"""Profiles without the names that people chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.analyses.ops import ops
from slipstream.cli.main import app
from slipstream.profile.profile import ProfileWarning
from slipstream.profile.redacted import Names, redacted
from slipstream.sources.load import load

CHOSEN = (
    "model.py",
    "dev_nccl",
    "dev_off",
    "off_default",
    "params__",
    "train_step",
    "wqkv",
    "lnf",
    "nccl2_lhs",
    "vm",
)
"""names in the recording, of files, functions, weights and hosts"""


def test_times_stay_and_names_go(data: Path) -> None:
    read = load(data / "nccl2_lhs_r0.xplane.pb.gz")
    before, after = ops(read).ops, ops(redacted(read)).ops
    assert [op.total_us for op in before] == pytest.approx([op.total_us for op in after])
    assert [(op.instruction, op.phase) for op in before] == [
        (o.instruction, o.phase) for o in after
    ]
    assert {op.program for op in after} == {"program1(605)"}
    shown = {op.source.partition(":")[0] for op in before if op.source}
    assert len({op.source.partition(":")[0] for op in after if op.source}) == len(shown)
    texts = " ".join(f"{op.description} {op.source} {op.scope}" for op in after)
    assert not [name for name in CHOSEN[:-1] if name in texts]


@pytest.mark.parametrize("name", ["nccl2_lhs_r0", "off_default"])
def test_a_page_has_none_of_them(name: str, data: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    recording = str(data / f"{name}.xplane.pb.gz")
    command = ["report", recording, "--redact", "-o", str(page)]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "file1.py" in text
    assert not [name for name in CHOSEN[:-1] if name in text]
    assert "·vm" not in text and " vm " not in text


def test_warnings_name_no_file_and_no_host(data: Path) -> None:
    read = load(data / "nccl2_lhs_r0.xplane.pb.gz")
    said = "nccl2_lhs_r0.xplane.pb.gz: vm ran jit_train_step(605) of my_model.py, not nvm/vm"
    hidden = redacted(replace(read, warnings=(ProfileWarning("code", said),)))
    assert [one.message for one in hidden.warnings] == [
        "recording1: host1 ran program1(605) of ***, not ***"
    ]


def test_two_recordings_have_the_same_replacements(data: Path) -> None:
    names, found = Names(), {}
    for name in ("off_default", "nccl2_lhs_r0"):
        read = load(data / f"{name}.xplane.pb.gz")
        pairs = zip(ops(read).ops, ops(redacted(read, names)).ops, strict=True)
        files = {(op.source.partition(":")[0], o.source.partition(":")[0]) for op, o in pairs}
        found[name] = dict(files - {("", "")})
    assert found["off_default"]["model.py"] == found["nccl2_lhs_r0"]["model.py"]
    assert len({*found["off_default"].values(), *found["nccl2_lhs_r0"].values()}) == len(
        {*found["off_default"], *found["nccl2_lhs_r0"]}
    )
