"""The `slipstream tune` commands: start, show, resume, apply."""

import json
import shlex
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.cli.tune.common import size
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.flags.catalogue.values import flag_value_error
from slipstream.outputs.terminal.compiled.tune import render_tuning
from slipstream.results.tuning import TrialResult, Tuning
from slipstream.tune.apply import winning_settings

GRAPHS = "xla_gpu_enable_command_buffer"
SIZE = "xla_gpu_graph_min_graph_size"


def invoke(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_study_is_started_shown_resumed_and_applied(target, tmp_path):
    study = tmp_path / "study"
    options = f"--only {GRAPHS} --only {SIZE} --jobs 1 --trials 4"
    begun = json.loads(invoke(f"tune {target} --on 1xH200 {options} --study {study} --json"))
    assert {"baseline", "best", "trials", "knobs", "noise_floor", "stopped_because"} <= set(begun)
    keys = {"settings", "status", "step_us", "interval_us", "basis", "same_program_as"}
    assert len(begun["trials"]) == 4 and all(keys <= set(t) for t in begun["trials"])
    assert [knob["name"] for knob in begun["knobs"] if knob["why"]] and begun["left_out"]
    again = json.loads(invoke(f"tune resume {study} --trials 5 --jobs 1 --json"))
    assert [t["number"] for t in again["trials"]][:4] == [t["number"] for t in begun["trials"]]
    page = study.parent / "study.html"
    shown = invoke(f"tune show {study} --html {page}")
    assert "slipstream tune</title>" in page.read_text(encoding="utf-8")
    assert f"{again['distinct_programs']} distinct program" in shown
    assert max(map(len, shown.splitlines())) <= 80
    ranked = invoke(f"tune show {study} --columns step --sort step:desc")
    assert "step" in ranked and ranked != shown
    best = json.loads(invoke(f"tune show {study} --json"))["best"]["settings"]
    for form in ("sh", "dotenv", "json", "python", "slurm", "k8s"):
        written = invoke(f"tune apply {study} --for {form}")
        assert all(f"--{name}={value}" in written for name, value in best.items()), form
    applied = json.loads(invoke(f"tune apply {study} --json"))
    assert {one["name"]: one["value"] for one in applied["settings"]} == best


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("tune x.py:build --budget soon", "'soon' is not a duration"),
        ("tune x.py:build --memory much", "'much' is not a size"),
        ("tune x.py:build --add xla_flag", "has no values"),
        ("tune x.py:build --objective speed", "there is no objective 'speed'"),
        ("tune --on 8xH200 x.py:build", "x.py does not exist"),
        ("tune show nowhere", "holds no study"),
        ("tune x.py:build -- python train.py", "jobs need --measure"),
        ("tune x.py:build --measure --capture 0:1 -- python train.py", "expected START:COUNT"),
        ("tune x.py:build --measure --objective memory", "a run measures the time of a step"),
        ("tune x.mlir --measure", "can't be run: it has no arguments"),
        ("tune x.py:build --measure -- no-such-job", "no-such-job can't be started"),
    ],
)
def test_invalid_input_is_refused_with_the_reason(line, seen, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=seen):
        CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)


def won_by(settings: dict[str, str], machine: str = "8xH200") -> Tuning:
    default, best = (
        TrialResult(0, {}, "ok", "default", 2.0),
        TrialResult(1, settings, "ok", "search", 1.0),
    )
    return Tuning(
        "t", machine, "p", "step", installed_catalogue().jaxlib_version, default, best,
        (default, best), (), {}, (), None, None, "", 0.0, "folder",
    )  # fmt: skip


def test_a_long_winning_value_is_wrapped_and_not_cut():
    members = [f"MEMBER_{number}" for number in range(20)]
    lines = render_tuning(won_by({GRAPHS: ",".join(members)}), 80).plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(any(f"{member}," in f"{line}," for line in lines) for member in members)


def test_applied_settings_are_spelled_for_xla_flags():
    settings = {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"}
    known = installed_catalogue()
    ((name, value),) = winning_settings(won_by(settings)).xla_flags.items()
    assert flag_value_error(known.flags[name], value, known.jaxlib_version) is None


def test_flags_of_tpus_go_into_libtpus_variable():
    settings = {"xla_tpu_rwb_fusion": "false", "xla_latency_hiding_scheduler_rerun": "2"}
    won = won_by(settings, "v5p-8")
    found = winning_settings(won)
    assert (found.xla_flags, found.variables) == (
        {},
        {"LIBTPU_INIT_ARGS": "--xla_tpu_rwb_fusion=false --xla_latency_hiding_scheduler_rerun=2"},
    )
    assert "no step of a TPU was measured" in " ".join(render_tuning(won, 80).plain.split())
    assert "no step of a TPU was measured" not in render_tuning(won_by({}), 80).plain


@pytest.mark.parametrize(
    ("cycles", "said"),
    [
        ((1000, 950, 990), "XLA's own cycles agree: -5.0% for the best"),
        (
            (1000, 1010, 990),
            "XLA's own cycles say +1.0% of the best; the best by both is 2: -10.0% simulated, "
            "-1.0% in cycles",
        ),
        ((1000, 1000, 1001), "XLA's own cycles say +0.0% of the best; no candidate is faster by"),
    ],
)
def test_what_the_tpu_compiler_itself_says_of_the_best(cycles, said):
    won = won_by({"xla_tpu_rwb_fusion": "false"}, "v5p-8")
    other = TrialResult(2, {"xla_tpu_dot_dot_fusion": "true"}, "ok", "search", 1.8, change=-0.1)
    trials = tuple(
        replace(one, compiler_cycles=count)
        for one, count in zip((*won.trials, other), cycles, strict=True)
    )
    won = replace(won, baseline=trials[0], best=trials[1], trials=trials)
    assert said in " ".join(render_tuning(won, 80).plain.split())


@pytest.mark.parametrize(
    ("text", "count"), [("10B", 10), ("10 B", 10), ("10", 10), ("1.9 kB", 1900), ("2GB", 2 * 10**9)]
)
def test_sizes_are_read_as_they_are_printed(text, count):
    assert size(text) == count
