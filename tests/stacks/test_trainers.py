"""The examples for trainers, each with the real library: what they record, and what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from run_jobs import environment
from slipstream.sources.load import load
from stacks.table import MAXTEXT_TINY, STACKS

EXAMPLES = Path(__file__).parents[2] / "examples" / "trainers"
LONGEST_S = 600
RECORDED = {
    # The example, which stack it needs, the program whose executions it records.
    "keras_fit.py": ("Keras", "jit_train_step"),
    "optax_loop.py": ("Optax", "jit_train_step"),
    "flax_nnx.py": ("Flax NNX", "jit_train_step"),
    "equinox_loop.py": ("Equinox", "jit_make_step"),
    "levanter_lm.py": ("Levanter", "jit__train_step"),
}
OPTIMIZED = ("optax_loop.py", "flax_nnx.py", "equinox_loop.py")
STACK = {one.name: one for one in STACKS}
ON_GPUS = "attention=cudnn_flash_jax head_dim=64 vocab_size=512"


def need(name):
    if STACK[name].missing:
        pytest.skip(f"not installed: {', '.join(STACK[name].missing)}; make test-stacks runs it")


def python(folder, *words):
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment(LEVANTER_PALLAS_CE_AUTOTUNE_ON_MISS="0"),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def executions(folder, program):
    profile = load(folder)
    names = [profile.events.texts[int(text)] for text in profile.runs.program]
    return sum(name.startswith(program) for name in names)


# The stack's name is what `make test-stacks` selects by.
@pytest.mark.parametrize(
    "example", [pytest.param(one, id=f"{stack}: {one}") for one, (stack, _) in RECORDED.items()]
)
def test_an_example_records_three_steps(example, tmp_path):
    stack, program = RECORDED[example]
    need(stack)
    said = python(tmp_path, str(EXAMPLES / example))
    assert f"slipstream: recorded {tmp_path}/profiles; see: slipstream summary" in said
    assert executions(tmp_path / "profiles", program) == 3
    if example in OPTIMIZED:
        # Not taken for something that it can't recompile; the verdict takes more steps than these.
        assert list((tmp_path / "optimized").rglob("*.xplane.pb")), said


def test_levanters_own_entry_point_with_our_group_Levanter(tmp_path):
    need("Levanter")
    (tmp_path / "llama.yaml").write_text((EXAMPLES / "levanter.yaml").read_text())
    python(tmp_path, str(EXAMPLES / "levanter_data.py"))
    words = ["-m", "slipstream.levanter", "--config_path", "llama.yaml"]
    python(tmp_path, *words, "--trainer.profiler.dir", "ours", "--trainer.profiler.num_steps", "2")
    assert executions(tmp_path / "ours", "jit__train_step") == 2


def test_a_step_of_MaxText_is_predicted_as_it_is_lowered_by_its_training(tmp_path, monkeypatch):
    need("MaxText")
    from slipstream.compiler.versions import installed_versions
    from slipstream.errors import Missing
    from slipstream.machines.topology import machine
    from slipstream.maxtext import step_target
    from slipstream.plan.search.launched import JobSession

    try:
        installed_versions()
    except Missing as missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DECOUPLE_GCLOUD", "TRUE")
    monkeypatch.chdir(tmp_path)
    text = " ".join(MAXTEXT_TINY).replace("hardware=cpu attention=dot_product", ON_GPUS)
    text = text.replace("head_dim=32", "").replace("vocab_size=256", "")
    config, *settings = text.format(folder=tmp_path, steps=100).split()
    command = (
        sys.executable, "-m", "maxtext.trainers.pre_train.train", config, *settings,
        "hardware=gpu",
    )  # fmt: skip
    from slipstream.compiler.compile import compilation

    ahead = compilation(step_target(config, settings), on="8xH100", program_only=True)
    with JobSession(command, machine("8xH100")) as session:
        trained = session.compile({})
    assert ahead.program.name == trained.program.name == "jit_train_step"
    assert ahead.memory.peak_bytes == pytest.approx(trained.memory.peak_bytes, rel=0.02)
    kinds = [
        sorted(one.opcode for one in found.program.instructions if "all-" in one.opcode)
        for found in (ahead, trained)
    ]
    assert kinds[0] == kinds[1] != []
