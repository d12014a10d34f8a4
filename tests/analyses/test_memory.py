"""Memory of programs: known answers, and XLA's own figures for a program it compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import profile
from slipstream.analyses.memory import memory, program_memory
from slipstream.sources.hlo.reader import program_from_proto, program_from_text
from slipstream.sources.load import load

KB = 4 * 256
CHAIN = """\
HloModule jit_step, is_scheduled=true{aliases}

ENTRY main {{
  p = f32[256]{{0}} parameter(0)
  q = f32[256]{{0}} parameter(1)
  a = f32[256]{{0}} exponential(p)
  b = f32[512]{{0}} concatenate(a, q), dimensions={{0}}
  c = f32[256]{{0}} slice(b), slice={{[0:256]}}
  d = f32[256]{{0}} add(c, a)
  ROOT t = (f32[256]{{0}}, f32[256]{{0}}) tuple(d, q)
}}
"""
LAYERS = """\
HloModule jit_step, is_scheduled=true

ENTRY main {
  p = f32[256]{0} parameter(0), metadata={op_name="params['layers'][0]['w']"}
  q = f32[256]{0} parameter(1), metadata={op_name="params['layers'][1]['w']"}
  r = f32[256]{0} parameter(2), metadata={op_name="state['first']['layers'][0]['w']"}
  a = f32[256]{0} exponential(p), metadata={op_name="jit(step)/h.0/exp"}
  b = f32[256]{0} exponential(q), metadata={op_name="jit(step)/h.1/exp"}
  c = f32[256]{0} exponential(b), metadata={op_name="jit(step)/h.2/exp"}
  ROOT d = f32[768]{0} concatenate(a, b, c), dimensions={0}
}
"""


def test_the_whole_memory_of_a_small_program():
    found = program_memory(program_from_text(CHAIN.format(aliases="")), "jit_step(1)")
    assert (found.program, found.arguments_bytes) == ("jit_step(1)", 2 * KB)
    # One result is made, the other is an argument as it came.
    assert (found.results_bytes, found.aliased_bytes) == (2 * KB, KB)
    # `a` is needed to the end, `b` until `c` is sliced from it.
    assert (found.temporaries_bytes, found.peak_at) == (4 * KB, "c")
    assert found.peak_bytes == 2 * KB + KB + 4 * KB
    live = dict(found.timeline)
    assert [live[name] // KB for name in "abcd"] == [1, 3, 4, 2]
    makers = [(maker.instruction, maker.bytes // KB, maker.kind) for maker in found.makers]
    assert sorted(makers) == [
        ("a", 1, "temporary"), ("b", 2, "temporary"), ("c", 1, "temporary"),
        ("d", 1, "result"), ("p", 1, "argument"), ("q", 1, "argument"),
    ]  # fmt: skip
    last = {maker.instruction: maker.last_use for maker in found.makers}
    assert (last["a"], last["b"], last["p"]) == ("d", "c", "")


def test_equal_buffers_are_one_line():
    found = program_memory(program_from_text(LAYERS))
    shown = [(g.description, len(g.instructions), g.bytes // KB, g.kind) for g in found.groups]
    assert shown == [
        ("concatenate", 1, 3, "result"),
        ("exponential", 3, 3, "temporary"),
        ("params.layers.*.w", 2, 2, "argument"),
        ("state.first.layers.0.w", 1, 1, "argument"),
    ]
    assert {name for group in found.groups for name in group.instructions} == {
        maker.instruction for maker in found.makers
    }


def test_a_donated_argument_takes_a_result():
    text = CHAIN.format(aliases=", input_output_alias={ {0}: (0, {}, may-alias) }")
    found = program_memory(program_from_text(text))
    assert (found.results_bytes, found.aliased_bytes) == (2 * KB, 2 * KB)
    assert found.peak_bytes == 2 * KB + 4 * KB


LOOP = program_from_text("""\
HloModule jit_loop, is_scheduled=true

body {
  b = (s32[], f32[256]{0}, f32[4,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  x = f32[256]{0} get-tuple-element(b), index=1
  w = f32[4,256]{1,0} get-tuple-element(b), index=2
  big = f32[2048]{0} broadcast(i), dimensions={}
  y = f32[256]{0} slice(big), slice={[0:256]}
  row = f32[1,256]{1,0} bitcast(y)
  dus = f32[4,256]{1,0} dynamic-update-slice(w, row, i, i)
  ROOT t = (s32[], f32[256]{0}, f32[4,256]{1,0}) tuple(i, y, dus)
}

condition {
  c = (s32[], f32[256]{0}, f32[4,256]{1,0}) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  ROOT less = pred[] compare(j, j), direction=LT
}

ENTRY main {
  p = f32[256]{0} parameter(0)
  z = s32[] parameter(1)
  copy.1 = f32[256]{0} copy(p)
  zeros = f32[4,256]{1,0} broadcast(z), dimensions={}
  t0 = (s32[], f32[256]{0}, f32[4,256]{1,0}) tuple(z, copy.1, zeros)
  while.1 = (s32[], f32[256]{0}, f32[4,256]{1,0}) while(t0), condition=condition, body=body
  last = f32[4,256]{1,0} get-tuple-element(while.1), index=2
  ROOT sum = f32[1024]{0} bitcast(last)
}
""")


def test_a_loop_keeps_what_it_carries_in_one_place():
    found = program_memory(LOOP)
    # `zeros`, its updates and the loop's result are one buffer, and the program's result.
    assert found.results_bytes == 4 * KB
    # `copy.1` and `y` are one; beside it only `big` is alive.
    assert (found.temporaries_bytes, found.peak_at) == (9 * KB, "big")
    assert {m.instruction for m in found.makers if m.kind == "temporary"} == {"copy.1", "big"}


ASYNC = program_from_text("""\
HloModule jit_step, is_scheduled=true

ENTRY main {
  p = f32[256]{0} parameter(0)
  a = f32[256]{0} exponential(p)
  s = (f32[256]{0}, f32[512]{0}) all-gather-start(a), dimensions={0}
  x = f32[256]{0} exponential(p)
  y = f32[256]{0} exponential(x)
  d = f32[512]{0} all-gather-done(s)
  h = f32[512]{0:S(5)} copy(d)
  ROOT r = f32[256]{0} add(y, y)
}
""")


def test_what_an_asynchronous_operation_reads_stays_until_its_end():
    found = program_memory(ASYNC)
    live = dict(found.timeline)
    # `a` and the gathered value, `x`, `y`; values in host memory are counted apart.
    assert [live[name] // KB for name in "asxyd"] == [1, 3, 4, 5, 4]
    assert found.host_bytes == 2 * KB


def test_a_profile_says_which_programs_it_lacks():
    built = profile(known=False).kernel("dot.1", 10)
    found = memory(built.build())
    assert (found.programs, found.capacity_bytes) == ((), 150_109_880_320)
    assert found.notes == ("the profile does not contain jit_step(1)",)


def test_the_offloading_step_keeps_its_residuals_on_the_host(data: Path):
    found = memory(load(data / "off_default.xplane.pb.gz"))
    step = found.programs[0]
    # Eight layers of [16, 1024, 4096] in bfloat16.
    assert step.host_bytes == 8 * 16 * 1024 * 4096 * 2
    assert step.arguments_bytes == pytest.approx(6.71e9, rel=0.01)
    assert step.results_bytes - step.aliased_bytes == 4


COMPILE = """
import json, sys, jax, jax.numpy as jnp
from pathlib import Path
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
target, out = sys.argv[1:]
topology = topologies.get_topology_desc(
    topology_name="", platform="cuda", topology="1x1x1", target_config=Path(target).read_text())
def loss(params, batch):
    def block(x, w):
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"], None
    x, _ = jax.lax.scan(jax.checkpoint(block) if REMAT else block, batch, params)
    return jnp.mean(x.astype(jnp.float32) ** 2)
def step(params, batch):
    value, gradients = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), value
found = []
for REMAT, donated in ((False, ()), (True, (0,))):
    where = SingleDeviceSharding(topology.devices[0])
    make = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=where)
    params = {"up": make(6, 512, 2048), "down": make(6, 2048, 512)}
    lowered = jax.jit(step, donate_argnums=donated).lower(params, make(16, 256, 512))
    compiled = lowered.compile()
    said = compiled.memory_analysis()
    module = compiled.runtime_executable().hlo_modules()[0]
    name = f"{out}/{len(found)}.pb"
    Path(name).write_bytes(module.as_serialized_hlo_module_proto())
    found.append([said.argument_size_in_bytes, said.output_size_in_bytes,
                  said.alias_size_in_bytes, said.temp_size_in_bytes])
Path(f"{out}/said.json").write_text(json.dumps(found))
"""


def test_memory_is_what_xla_plans(data: Path, tmp_path: Path):
    """A training step with and without remat and donation, compiled with no GPU."""
    pytest.importorskip("jax")
    import os

    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", COMPILE, str(data / "h200_target.txtpb"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads((tmp_path / "said.json").read_text())
    for number, (arguments, outputs, aliased, temporaries) in enumerate(said):
        program = program_from_proto((tmp_path / f"{number}.pb").read_bytes())
        found = program_memory(program)
        assert found.arguments_bytes == arguments
        # XLA counts the table of pointers that a tuple is, and rounds small buffers up.
        assert found.results_bytes == pytest.approx(outputs, abs=1024)
        assert found.aliased_bytes == aliased
        assert found.temporaries_bytes == pytest.approx(temporaries, rel=0.05)


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(size, first operand, second operand) of instructions; operands are earlier ones, or p."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        before = st.integers(-1, number - 1)
        found.append((draw(st.integers(1, 9)), draw(before), draw(before)))
    return found


@given(chains())
def test_temporaries_are_those_of_a_plain_look_at_every_instruction(made):
    """Calls of somebody else's code, which can't write where they read."""
    names = ["p"] + [f"v{number}" for number in range(len(made))]
    lines = [
        f"  v{number} = f32[{256 * size}]{{0}} custom-call({names[one + 1]}, {names[other + 1]}), "
        'custom_call_target="f"'
        for number, (size, one, other) in enumerate(made)
    ]
    lines[-1] = "  ROOT " + lines[-1].strip()
    text = "HloModule jit_f, is_scheduled=true\n\nENTRY main {\n  p = f32[256]{0} parameter(0)\n"
    found = program_memory(program_from_text(text + "\n".join(lines) + "\n}\n"))
    live = []
    for now in range(len(made)):
        alive = 0
        for number, (size, _, _) in enumerate(made[:-1]):
            used = [at for at, (_, one, other) in enumerate(made) if number in (one, other)]
            alive += size * KB * (number <= now <= max(used, default=number))
        live.append(alive)
    told = dict(found.timeline)
    assert [told[name] for name in names[1:]] == live
    assert found.temporaries_bytes == max(live)
    assert (found.arguments_bytes, found.results_bytes) == (KB, made[-1][0] * KB)
