"""Unoptimised HLO, as XLA dumps it or people write it."""

import pytest

from slipstream.compiler.compile import compilation
from slipstream.errors import BadInput
from slipstream.profile.semantics.backend_config import call_attributes

SHARDED = """
HloModule published, entry_computation_layout={(bf16[512,512]{1,0},bf16[512,512]{1,0})->bf16[512,512]{1,0}}, num_partitions=8

ENTRY main {
  weights = bf16[512,512]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  batch = bf16[512,512]{1,0} parameter(1), sharding={devices=[8,1]<=[8]}
  same = bf16[512,512]{1,0} copy(weights)
  ROOT out = bf16[512,512]{1,0} dot(batch, same), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""  # noqa: E501
PARTITIONED = """
HloModule partitioned, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[1024]{0} parameter(0)
  id = u32[] partition-id()
  number = f32[] convert(id)
  wide = f32[1024]{0} broadcast(number), dimensions={}
  own = f32[1024]{0} add(x, wide)
  ROOT all = f32[1024]{0} all-reduce(own), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=sum
}
"""  # noqa: E501
FOREIGN = """
HloModule foreign

ENTRY main {
  x = f32[64,64]{1,0} parameter(0)
  ROOT y = f32[64,64]{1,0} custom-call(x), custom_call_target="te_fused_attn_forward_ffi", operand_layout_constraints={f32[64,64]{1,0}}, api_version=API_VERSION_TYPED_FFI, backend_config="{scale = 1.0 : f32}"
}
"""  # noqa: E501
STEPS = """
import jax
import jax.experimental.custom_partitioning
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def made(devices, step, **options):
    mesh = Mesh(np.array(devices), ("x",))
    cut = NamedSharding(mesh, P("x"))
    values = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=cut)
    return jax.jit(step(mesh), in_shardings=(cut, cut), out_shardings=cut), (values, values)


def gathered(devices):
    return made(devices, lambda mesh: lambda x, w: jnp.tanh(x @ w))


def mapped(devices):
    def body(x, w):
        return jax.lax.psum(x @ w.T, "x") + jax.lax.axis_index("x")

    def step(mesh):
        return jax.shard_map(body, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x"))

    return made(devices, step)


def apart(devices):
    return made(devices, lambda mesh: lambda x, w: x * w)


def ruled(devices):
    return made(devices, lambda mesh: rule)


@jax.experimental.custom_partitioning.custom_partitioning
def rule(x, w):
    return x * w


rule.def_partition(
    partition=lambda mesh, shapes, result: (mesh, jnp.multiply, result.sharding, tuple(s.sharding for s in shapes)),
    infer_sharding_from_operands=lambda mesh, shapes, result: shapes[0].sharding,
    sharding_rule="i j, i j -> i j",
)
"""  # noqa: E501


@pytest.fixture
def dumped(tmp_path, quick):
    """A step, compiled, and XLA's dumps of it before optimisation, whole and divided."""

    def run(function):
        source, folder = tmp_path / "steps.py", tmp_path / "dump"
        source.write_text(STEPS)
        flags = {**quick, "xla_dump_to": str(folder)}
        found = compilation(f"{source}:{function}", on="8xH200", flags=flags)
        names = ("before_optimizations", "after_spmd_partitioner")
        whole, divided = (next(folder.glob(f"*.{name}.txt")) for name in names)
        return found, whole, divided

    return run


def kinds(program):
    return [one.collective.kind for one in program.scheduled if one.collective is not None]


def test_text_that_xla_partitions(quick, tmp_path):
    file = tmp_path / "module_0001.before_optimizations.txt"
    file.write_text(SHARDED)
    found = compilation(str(file), on="8xH200", flags=quick)
    assert (found.devices, set(kinds(found.program))) == (8, {"all-gather"})
    silent = compilation(SHARDED.replace(", num_partitions=8", ""), on="8xH200", flags=quick)
    assert silent.program.fingerprint == found.program.fingerprint


@pytest.mark.parametrize("function", ["gathered", "mapped", "apart"])
def test_dumps_before_and_after_partitioning_give_the_same_program(function, dumped, quick):
    found, *files = dumped(function)
    for file in files:
        read = compilation(str(file), on="8xH200", flags=quick)
        assert read.devices == 8
        assert kinds(read.program) == kinds(found.program)
        assert read.memory == found.memory


def test_rules_of_python_are_not_in_a_dump(dumped, quick):
    found, whole, divided = dumped("ruled")
    with pytest.raises(BadInput, match="leaves it to Python how calls are divided") as error:
        compilation(str(whole), on="8xH200", flags=quick)
    assert "after_spmd_partitioner.txt" in str(error.value)
    assert compilation(str(divided), on="8xH200", flags=quick).memory == found.memory


def test_a_proto_gives_the_same_program(quick, tmp_path):
    import jax  # noqa: F401  # jaxlib's parts can't be imported before it
    from jaxlib import _hlo

    parsed = _hlo.hlo_module_from_text(PARTITIONED)
    file = tmp_path / "partitioned.hlo.pb"
    file.write_bytes(parsed.as_serialized_hlo_module_proto())
    text = compilation(PARTITIONED, on="4xH200", flags=quick)
    assert (text.devices, kinds(text.program)) == (4, ["all-reduce"])
    # This proto doesn't say for how many devices it is; its collectives do.
    proto = compilation(str(file), on="4xH200", flags=quick)
    assert proto.devices == 4
    assert proto.program.content_hash == text.program.content_hash


def test_kernels_of_other_libraries_get_a_name_to_call(quick):
    found = compilation(FOREIGN, on="H200", flags=quick)
    (call,) = (one for one in found.program.instructions if one.opcode == "custom-call")
    assert call.custom_call_target == "te_fused_attn_forward_ffi"
    # Models read what the call states.
    assert call_attributes(call) == {"scale": 1.0}


def test_a_program_that_is_compiled_already(data):
    import gzip

    text = gzip.decompress((data / "off_default.hlo.gz").read_bytes()).decode()
    with pytest.raises(BadInput, match="already compiled"):
        compilation(text, on="H200")


def test_what_is_no_program(tmp_path):
    junk = tmp_path / "junk.pb"
    junk.write_bytes(b"\xff" * 40)
    with pytest.raises(BadInput, match="expected an HloProto"):
        compilation(str(junk))
    with pytest.raises(BadInput, match="can't be converted to StableHLO"):
        compilation("HloModule broken\n\nENTRY e {\n  x = f32[] nonsense()\n}\n")
    with pytest.raises(BadInput, match="is not StableHLO that this jaxlib can read"):
        compilation("module {\n  func.func @main( {\n}\n")
