"""`slipstream costs` as people type it."""

import json

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput, CheckFailed


def run(*arguments):
    return CliRunner().invoke(app, ["costs", *map(str, arguments)])


@pytest.fixture
def written(data, tmp_path):
    out = tmp_path / "costs.pb"
    done = run(data / "off_default.xplane.pb.gz", "-o", out)
    assert done.exit_code == 0, done.output
    return out, done.output


def test_extract_may_be_left_out(written):
    out, text = written

    assert text.splitlines() == [
        "jit_step(4634) 7733d8da · 131 instructions · policy typical",
        "100% of the device time has a cost",
        f"wrote {out}",
        f"wrote {out}.json",
    ]


def test_show(written):
    out, _ = written

    lines = run("show", out, "--top", 2).output.splitlines()

    assert lines[0].startswith("jit_step(4634) · 7733d8dae4776b1233ab11144bb09097 · 131")
    assert lines[3].split() == ["fusion.79", "4915.1", "24"]
    assert lines[5] == "… and 129 more: --top 131"
    assert max(map(len, lines)) <= 80


def test_check_passes_and_fails(written, data):
    out, _ = written

    good = run("check", out, "--against", data / "off_default.hlo.gz")
    bad = run("check", out, "--against", data / "nccl2_lhs_r0.xplane.pb.gz")

    assert good.exit_code == 0
    assert good.output.startswith("jit_step: 100% of the instructions have a cost")
    assert isinstance(bad.exception, CheckFailed)
    assert "less than the required 95%" in str(bad.exception)


def test_check_json(written, data):
    out, _ = written

    done = run("check", out, "--against", data / "off_default.xplane.pb.gz", "--json")

    found = json.loads(done.output)
    assert found["share"] == 1.0
    assert found.keys() == {
        "program", "share", "basis", "found", "missing", "unused", "stale", "fallback"
    }  # fmt: skip


def test_diff_and_merge(written, data, tmp_path):
    out, _ = written
    other = tmp_path / "other.pb"
    run(data / "off_lhs_nocb.xplane.pb.gz", "-o", other)

    assert "fusion.79" in run("diff", out, other).output
    assert run("merge", out, other, "-o", tmp_path / "both.pb").exit_code == 0
    assert run("diff", out, tmp_path / "both.pb", "--json").exit_code == 0


def test_costs_of_several_recordings_are_merged(written, data, tmp_path):
    one, _ = written
    recordings = [data / f"off_{name}.xplane.pb.gz" for name in ("default", "lhs_nocb")]
    other, both, merged = (tmp_path / f"{name}.pb" for name in ("other", "both", "merged"))
    done = run(*recordings, "-o", both)
    assert done.exit_code == 0 and "100% of the device time has a cost" in done.output
    run(recordings[1], "-o", other)
    run("merge", one, other, "-o", merged)
    assert run("diff", both, merged).output == "131 instructions unchanged\n"


def test_rows_are_chosen_before_they_are_cut(written):
    out, _ = written
    lines = run("show", out, "--filter", "^copy", "--columns", "instruction", "--top", 1).output
    assert lines.splitlines()[2:5] == ["instruction", "copy.77", "… and 1 more: --top 2"]


def test_nothing_useless_is_written(data, tmp_path):
    done = run(data / "off_default.xplane.pb.gz", "-o", tmp_path / "jax.pb", "--policy", "jax")

    assert isinstance(done.exception, BadInput)
    assert "try: --policy typical" in str(done.exception)
    assert not (tmp_path / "jax.pb").exists()


def test_costs_without_a_file_to_write_say_what_to_type():
    for words in (["a run"], ["extract", "a run"]):
        done = run(*words)
        assert isinstance(done.exception, BadInput)
        assert str(done.exception).endswith("type: slipstream costs 'a run' -o costs.pb")
    for words in (["extract"], ["merge", "a.pb"]):
        assert "Missing" in run(*words).output
