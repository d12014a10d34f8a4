"""JAX with its private parts renamed or changed: features turn themselves off, jobs run on."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slipstream.api.optimize import optimize
from slipstream.compiler.failures import explain
from slipstream.compiler.worker.process import WorkerFailed
from slipstream.consensus.consensus import NoConsensus, consensus_for
from slipstream.errors import Missing
from slipstream.jaxhooks import (
    compat,
    compiling,
    custom_partitioning,
    hlo,
    private_api,
    profiler,
)
from slipstream.jaxhooks.compat import (
    NEWEST_TESTED,
    OLDEST_SUPPORTED,
    Feature,
    JaxChanged,
    PrivatePart,
)
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.machines.targets import target_config
from slipstream.machines.topology import machine
from slipstream.run.agent import start as start_module
from slipstream.run.agent.request import LAYOUT, LOWER, PROFILE, Request
from slipstream.run.run_dir import FAILED, STATUS, read_json

pytestmark = pytest.mark.usefixtures("fresh")
PARTS = list(private_api.parts())
FAKES = [(part, "renamed") for part in PARTS]
FAKES += [(part, "changed") for part in PARTS if part.parameters or part.is_called]
FAKES += [(part, "emptied") for part in PARTS if part.attributes]
IN_OPTIMIZE = (Feature.WATCHING, Feature.STABLEHLO, Feature.RECOMPILING, Feature.ADOPTING)
IN_AGENT = (Feature.WATCHING, Feature.STABLEHLO, Feature.RECOMPILING, Feature.GIVING_WAY)
SUPPORTED = f"Slipstream supports JAX {OLDEST_SUPPORTED} to {NEWEST_TESTED}"


def names(fakes):
    return [f"{part.name}-{part.feature.name}-{how}" for part, how in fakes]


def of(*features):
    chosen = [(part, how) for part, how in FAKES if part.feature in features]
    return pytest.mark.parametrize(("part", "how"), chosen, ids=names(chosen))


@pytest.fixture
def fake(monkeypatch):
    """Makes JAX look as if a part were another; JAX itself, which needs the part, keeps it."""
    locate = compat._locate

    def install(part: PrivatePart, how: str) -> None:
        def faked(wanted):
            owner, value = locate(wanted)
            if wanted.name == part.name:
                if how == "renamed":
                    raise AttributeError(wanted.path)
                return owner, (lambda another: None) if how == "changed" else object()
            return owner, value

        monkeypatch.setattr(compat, "_locate", faked)

    return install


def f(x):
    return jnp.tanh(x) * 2


JITTED = jax.jit(f)
X = np.arange(4.0, dtype=np.float32)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_part_is_as_this_jax_has_it(part):
    part.get()
    assert part.purpose.endswith(".") and part in compat._CHECKED


def test_a_part_is_listed_once_for_each_feature():
    rows = [(part.name, part.feature) for part in PARTS]
    assert len(set(rows)) == len(rows)


@of(*Feature)
def test_a_part_that_is_not_as_expected_is_named(part, how, fake):
    fake(part, how)
    with pytest.raises(JaxChanged) as raised:
        part.get()
    text = str(raised.value)
    assert text.startswith(f"{part.feature} is off: {part.name} ")
    assert f" in JAX {jax.__version__}; expected " in text and text.endswith(SUPPORTED)
    assert (
        {"renamed": "is missing", "changed": "takes (another)"}.get(how) or "has no "
    ) in raised.value.seen
    assert raised.value.exit_code == Missing.exit_code == 3


@of(*IN_OPTIMIZE)
def test_optimize_leaves_the_function_as_it_is_and_warns_once(
    part, how, fake, warnings, hook_points
):
    before = hook_points()
    fake(part, how)
    first, second = optimize(JITTED), optimize(JITTED)
    assert np.array_equal(first(X), JITTED(X)) and np.array_equal(second(X), JITTED(X))
    assert hook_points() == before and HOOKS.listeners == []
    (said,) = warnings()
    assert part.name in said and said.endswith("; the function runs as it is")
    assert first.is_settled and first.receipts() == [] and f"slipstream: {first.report()}" == said
    first.close()


@of(Feature.RECOMPILING)
def test_optimize_takes_ahead_of_time_programs_as_they_are(part, how, fake):
    fake(part, how)
    lowered = JITTED.lower(X)
    assert np.array_equal(optimize(lowered)(X), JITTED(X))
    assert np.array_equal(optimize(lowered.compile())(X), JITTED(X))


@of(*IN_AGENT, Feature.LAYOUTS, Feature.DRY_RUN)
def test_the_agent_leaves_the_job_alone_and_says_why(
    part, how, fake, tmp_path, monkeypatch, hook_points
):
    monkeypatch.setattr(start_module, "log_to", lambda path: None)
    before, expected = hook_points(), JITTED(X)
    mode = {Feature.LAYOUTS: LAYOUT, Feature.DRY_RUN: LOWER}.get(part.feature, PROFILE)
    target = target_config(machine("1xH100")) if mode == LOWER else ""
    request = Request(mode, str(tmp_path), target=target).write(tmp_path / "request.json")
    fake(part, how)
    agent = start_module.start(str(request))
    assert np.array_equal(JITTED(X), expected)
    agent.at_exit()
    assert hook_points() == before and HOOKS.listeners == []
    status = read_json(tmp_path / STATUS)
    assert status["state"] == "unsupported" and part.name in status["why"]
    if mode != LAYOUT:
        assert read_json(tmp_path / FAILED)["why"] == status["why"]


@of(Feature.TRACEBACKS)
def test_tracebacks_are_a_nicety(part, how, fake, warnings):
    fake(part, how)
    start_module._hide_from_tracebacks()
    assert part.name in warnings()[0]


@of(Feature.CONSENSUS)
def test_ranks_that_cannot_agree_keep_their_program(part, how, fake, tmp_path):
    fake(part, how)
    program = SimpleNamespace(name="jit_f", processes=(0, 1))
    with pytest.raises(NoConsensus, match="agreement between processes is off"):
        consensus_for(program, tmp_path)


@of(Feature.GIVING_WAY)
def test_the_profiler_is_left_alone(part, how, fake, hook_points):
    before = hook_points()
    fake(part, how)
    with pytest.raises(JaxChanged):
        profiler.before_every_session(lambda: None)
    assert hook_points() == before


@of(Feature.PARTITIONING)
def test_calls_that_python_divides_need_all_of_it(part, how, fake):
    fake(part, how)
    for register in (custom_partitioning.record, custom_partitioning.replay):
        with pytest.raises(JaxChanged, match="dividing cuDNN attention of launched programs"):
            register.__wrapped__()


USES = {
    "GET_COMPILE_OPTIONS": lambda: compiling.compile_options(1, 1, None, {}, None),
    "DEVICE_LIST": lambda: compiling.device_list([]),
    "TOPOLOGY_FOR_DEVICES": lambda: compiling.topology_of([]),
    "LOWERED_TO_COMPILE": lambda: compiling.lowered_for(JITTED.lower(X)),
    "REGISTER_CUSTOM_CALL": lambda: compiling.register_custom_call("f", None, "CUDA"),
    "HLO_TO_STABLEHLO": lambda: hlo.to_stablehlo(b""),
    "HLO_FROM_TEXT": lambda: hlo.proto_from_text(""),
    "HLO_MODULE": lambda: hlo.text_from_proto(b""),
}


@pytest.mark.parametrize("name", USES)
def test_what_compiling_needs_is_named(name, fake):
    fake(getattr(private_api, name), "renamed")
    with pytest.raises(JaxChanged, match="is missing in JAX"):
        USES[name]()


def test_instances_are_checked_too():
    with pytest.raises(JaxChanged, match="has instances without _device_list in JAX"):
        private_api.LOWERING_TO_COMPILE.of(object())


def test_what_a_compiler_process_misses_is_missing_here():
    told = str(JaxChanged("compiling", "jax._src.x", "is missing in JAX 9", "it to be there"))
    answer = {"error": "JaxChanged", "text": told, "line": f"JaxChanged: {told}"}
    failed = WorkerFailed(answer, "log")
    found = explain(failed, "compile", None, None)
    assert type(found) is Missing and str(found) == told


FAKE_JAX = """
from slipstream.jaxhooks import compat

def missing(part, locate=compat._locate):
    if part.path == {path!r}:
        raise AttributeError(part.path)
    return locate(part)

compat._locate = missing
"""


@pytest.fixture
def fake_jax(tmp_path):
    """The environment of processes whose JAX lacks a part."""

    def environment(path: str) -> dict[str, str]:
        (tmp_path / "sitecustomize.py").write_text(FAKE_JAX.format(path=path))
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("SLIPSTREAM", "XLA_"))}
        return {**keep, "PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"}

    return environment


def test_a_job_runs_as_it_is_and_its_receipt_says_why(fake_jax, tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        "import jax\nstep = jax.jit(lambda x: x + 1)\nx = 0\n"
        "for _ in range(20):\n    x = step(x)\nprint(x)\n"
    )
    command = [sys.executable, "-m", "slipstream", "run", "--out", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [*command, sys.executable, str(job)], env=fake_jax("compile_or_get_cached"),
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "20\n"), done.stderr
    receipt = json.loads((tmp_path / "run" / "receipt.json").read_text())
    why = f"jax._src.compiler.compile_or_get_cached is missing in JAX {jax.__version__}"
    assert receipt["why"].startswith(f"{Feature.WATCHING} is off: {why}; expected the parameters")
    assert receipt["why"].endswith(SUPPORTED) and why in " ".join(done.stderr.split())


def test_a_compile_says_what_is_missing_and_exits_with_3(fake_jax, tmp_path):
    program = tmp_path / "f.stablehlo"
    program.write_text(JITTED.lower(X).as_text())
    command = [sys.executable, "-m", "slipstream", "compile", str(program), "--on", "H100"]
    done = subprocess.run(
        command, env=fake_jax("get_compile_options"), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 3, done.stderr
    told = " ".join(done.stderr.split())
    assert "jax._src.compiler.get_compile_options is missing in JAX" in told and SUPPORTED in told
