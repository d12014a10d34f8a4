import pytest

from slipstream.machines.topology import machine
from slipstream.machines.tpu.instructions import tpu_estimate
from slipstream.sources.hlo.reader import program_from_text

TEXT = """
HloModule f, is_scheduled=true, num_partitions=4

fused (a: bf16[8,128]) -> bf16[8,128] {
  a = bf16[8,128]{1,0} parameter(0)
  ROOT b = bf16[8,128]{1,0} add(a, a)
}

ENTRY main (x: bf16[4096,8192], i: s32[1024]) -> bf16[4096,8192] {
  x = bf16[4096,8192]{1,0:T(8,128)(2,1)} parameter(0)
  i = s32[1024]{0:T(1024)} parameter(1)
  part = bf16[8,128]{1,0:T(8,128)(2,1)S(1)} slice(x), slice={[0:8], [0:128]}
  known = bf16[8,128]{1,0} fusion(part), kind=kLoop, calls=fused, \
backend_config={"window_config":{"estimated_cycles":"1750000","cost_model_type":"CLASSIC"}}
  adding = bf16[4096,8192]{1,0:T(8,128)(2,1)} add(x, x), \
backend_config={"window_config":{"estimated_cycles":"999999","cost_model_type":\
"COST_MODEL_TYPE_INVALID"}}
  quick = bf16[4096,8192]{1,0:T(8,128)(2,1)} add(x, x), \
backend_config={"window_config":{"estimated_cycles":"17500","cost_model_type":\
"COST_MODEL_TYPE_INVALID"}}
  fetch = (bf16[4096,8192]{1,0:T(8,128)(2,1)S(1)}, bf16[4096,8192]{1,0:T(8,128)(2,1)}, u32[]) \
copy-start(x)
  fetched = bf16[4096,8192]{1,0:T(8,128)(2,1)S(1)} copy-done(fetch)
  within = (bf16[4096,8192]{1,0:T(8,128)(2,1)}, bf16[4096,8192]{1,0:T(8,128)(2,1)}, u32[]) \
copy-start(x)
  done = bf16[4096,8192]{1,0:T(8,128)(2,1)} copy-done(within)
  out = (bf16[4096,8192]{1,0:T(8,128)(2,1)S(5)}, bf16[4096,8192]{1,0:T(8,128)(2,1)}, u32[]) \
copy-start(x)
  gone = bf16[4096,8192]{1,0:T(8,128)(2,1)S(5)} copy-done(out)
  rows = bf16[1024,8192]{1,0} gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,8192}
  stated = bf16[4096,8192]{1,0} custom-call(x), custom_call_target="tpu_custom_call", \
backend_config={"custom_call_config":{"cost_estimate":{"flops":"459000000000",\
"bytes_accessed":"1000"}}}
  silent = bf16[4096,8192]{1,0} custom-call(x), custom_call_target="tpu_custom_call"
  scalar = s32[]{:T(128)S(6)} partition-id()
  ROOT r = bf16[4096,8192]{1,0} copy(silent), \
backend_config={"window_config":{"estimated_cycles":"9"}}
}
"""
SIZE = 4096 * 8192 * 2
HBM, PCIE = 2.765e12, 16e9


@pytest.mark.parametrize(
    ("name", "us", "basis", "kind"),
    [
        ("known", 1000, "compiler", "fusion"),
        ("fetch", SIZE / HBM * 1e6, "modelled", "copy"),
        ("within", 2 * SIZE / HBM * 1e6, "modelled", "copy"),
        ("out", SIZE / PCIE * 1e6, "modelled", "copy"),
        ("rows", 2 * 1024 * 8192 * 2 / HBM / 0.9 * 1e6, "default", "fusion"),
        # Cycles without a model are at most what an operation takes.
        ("adding", 3 * SIZE / HBM / 0.9 * 1e6, "modelled", "fusion"),
        ("quick", 10, "compiler", "fusion"),
        ("stated", 1000, "modelled", "kernel"),
        ("silent", 2 * SIZE / HBM * 1e6, "default", "kernel"),
        ("scalar", 0, "modelled", "fusion"),
    ],
)
def test_instructions(name: str, us: float, basis: str, kind: str) -> None:
    program = program_from_text(TEXT)
    found = tpu_estimate(machine("v5p:2x2x1"), program, program.instruction(name))
    assert (found.basis, found.kind) == (basis, kind)
    # Besides, what the smallest operation takes: about 1 µs.
    assert us <= found.us <= us + 1.3
    assert found.why
