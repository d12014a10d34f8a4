"""`scheduled`, with the real compiler: by our pass where JAX has it, by shaped costs elsewhere."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.compiler.compile import compilation, compiler
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.order import Order, read_order
from slipstream.errors import BadInput, SlipstreamError
from slipstream.jaxhooks.order_pass import is_supported
from slipstream.machines.topology import machine
from slipstream.simulate.prediction import predict

STEP = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SIZE, LAYERS = 4096, 6


def build(devices):
    mesh = Mesh(np.array(devices), ("data",))
    rows, cut = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "data"))

    def step(weights, x):
        def loss(weights):
            hidden = x
            for weight in weights:
                whole = jax.lax.with_sharding_constraint(weight, NamedSharding(mesh, P()))
                hidden = jnp.tanh(hidden @ whole)
            return hidden.astype(jnp.float32).mean()

        return jax.tree.map(lambda w, d: w - d.astype(w.dtype), weights, jax.grad(loss)(weights))

    weight = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16, sharding=cut)
    x = jax.ShapeDtypeStruct((512 * len(devices), SIZE), jnp.bfloat16, sharding=rows)
    weights = [weight] * LAYERS
    return jax.jit(step, out_shardings=[cut] * LAYERS), (weights, x)
"""
ON = "2x8xH200"
QUICK = "--xla_gpu_enable_triton_gemm=false"
WITH_THE_PASS = pytest.mark.skipif(not is_supported(), reason="not installed: JAX 0.11 or newer")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("schedule") / "step.py"
    file.write_text(STEP)
    return f"{file}:build"


@pytest.fixture(scope="module")
def found(target: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """What the command says, and where its files are."""
    folder = tmp_path_factory.mktemp("found")
    files = ("-o", str(folder / "order.json"), "--html", str(folder / "page.html"))
    command = ["schedule", target, "--on", ON, "--flags", QUICK, "--budget", "3s", "--json", *files]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), folder


def test_ours_is_never_worse_and_no_order_beats_the_bound(found):
    said, _ = found
    steps = [said[name]["step_us"] for name in ("xla", "pgle", "ours")]
    assert said["bound_us"] <= steps[2] <= min(steps)
    assert said["ours"]["memory_bytes"] > 0
    assert said["closed"] is None or said["closed"] <= 1


@WITH_THE_PASS
def test_xla_compiles_the_order_that_was_asked_for(found, target):
    said, folder = found
    assert said["how"] == "pass" and said["is_obeyed"]
    assert said["ours"]["step_us"] < said["pgle"]["step_us"]
    assert said["moved"]
    order = read_order(folder / "order.json")
    with compiler(target, on=ON, program_only=True) as session:
        source = session.scheduled(flags=order.flags)
        plain = session.compile(flags=order.flags)
    assert source.program.name == plain.program.name == order.program
    made = compilation(target, on=ON, order=folder / "order.json")
    assert order.is_obeyed(made.program, source.program)
    assert not order.is_obeyed(plain.program, source.program)


@WITH_THE_PASS
def test_an_order_is_refused_for_another_program(found, target, tmp_path):
    _, folder = found
    order = read_order(folder / "order.json")
    with pytest.raises(BadInput, match=f"fingerprint {order.fingerprint}, and this one has"):
        compilation(target, on="8xH200", order=order)
    backwards = {name: one[::-1] for name, one in order.sequences.items()}
    cycle = Order(backwards, order.fingerprint, order.program, order.flags)
    with pytest.raises(BadInput, match="which it needs"):
        compilation(target, on=ON, order=cycle)
    with pytest.raises(BadInput, match="pass one of the two"):
        compilation(target, on=ON, order=order, costs=tmp_path / "costs.pbtxt")


@WITH_THE_PASS
def test_xla_rejects_what_is_impossible_and_the_worker_lives_on(found, target):
    """Nobody checked this one: XLA's own verifier does."""
    _, folder = found
    order = read_order(folder / "order.json")
    with compiler(target, on=ON, program_only=True) as session:
        backwards = {name: one[::-1] for name, one in order.sequences.items()}
        with pytest.raises(CompileFailed):
            session.compile(flags=order.flags, order=backwards)
        assert session.compile(flags=order.flags).program.fingerprint


def test_a_limit_of_memory_that_no_order_keeps(target):
    command = ["schedule", target, "--on", ON, "--flags", QUICK, "--memory", "1MB"]
    result = CliRunner().invoke(app, [*command, "--order-only", "--budget", "1s"])
    assert result.exit_code
    assert " 1 MB" in str(result.exception)
    assert "allow more (--memory)" in str(result.exception)
    assert isinstance(result.exception, SlipstreamError)


def test_a_limit_below_xlas_own_memory(found, target):
    """Ours fits, whether it is faster or not; or the error says that nothing does."""
    said, _ = found
    limit = said["xla"]["memory_bytes"] - 1
    command = ["schedule", target, "--on", ON, "--flags", QUICK, "--memory", f"{limit}", "--json"]
    result = CliRunner().invoke(app, [*command, "--order-only", "--budget", "1s"])
    if result.exit_code:
        assert "allow more (--memory)" in str(result.exception)
    else:
        assert json.loads(result.stdout)["ours"]["memory_bytes"] <= limit


def test_the_file_of_an_order_makes_the_step_that_was_promised(found, target):
    said, folder = found
    order = read_order(folder / "order.json")
    made = compilation(target, on=ON, order=order, program_only=True)
    assert predict(made.program, machine(ON), compilation=made).step_us == said["ours"]["step_us"]
    assert made.memory.peak_bytes == said["ours"]["memory_bytes"]


def test_an_order_without_sequences_belongs_to_one_program_too(target):
    with pytest.raises(BadInput, match="fingerprint beef, and this one has"):
        compilation(target, on=ON, order=Order({}, "beef"), program_only=True)


def test_a_program_that_has_nothing_to_order(tmp_path):
    """It copies its argument, and XLA looks up no cost for that."""
    (tmp_path / "same.py").write_text(
        "import jax\n\ndef build(devices):\n"
        "    return jax.jit(lambda x: x), (jax.ShapeDtypeStruct((8,), 'float32'),)\n"
    )
    command = ["schedule", f"{tmp_path / 'same.py'}:build", "--on", "8xH200", "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    said = json.loads(result.stdout)
    assert said["ours"] == said["xla"] == said["pgle"]
    assert not said["moved"]


@pytest.mark.skipif(is_supported(), reason="not installed: JAX 0.10")
def test_an_older_jax_is_given_costs_that_bring_it_near(found, target):
    said, _ = found
    assert said["how"] == "costs" and not said["is_obeyed"]
    assert said["nearness"] is None or 0 < said["nearness"] <= 1
    with pytest.raises(SlipstreamError, match=r"JAX 0\.11"):
        compilation(target, on=ON, order=Order({"main": ("a",)}, None))


def test_the_page_has_both_orders(found):
    _, folder = found
    page = (folder / "page.html").read_text()
    assert "XLA's with costs" in page and "no order takes less" in page
