"""What a fusion does, told from its operations."""

from __future__ import annotations

import pytest

from slipstream.machines.kernel_features import kernel_features
from slipstream.sources.hlo.reader import program_from_text

SLICE = """HloModule slices, is_scheduled=true

slice {
  buffer = bf16[8,64,1024]{2,1,0} parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  ROOT s = bf16[1,64,1024]{2,1,0} dynamic-slice(buffer, i, zero, zero), SIZES
}

ENTRY main {
  x = bf16[8,64,1024]{2,1,0} parameter(0)
  i = s32[] parameter(1)
  ROOT f = bf16[1,64,1024]{2,1,0} fusion(x, i), KIND
}
""".replace("SIZES", "dynamic_slice_sizes={1,64,1024}")


def test_a_slice_that_xla_copies_without_a_kernel_is_a_copy() -> None:
    """Seen on an H200: 134 MB in 37 µs, where a loop takes 50."""
    config = '{"kind":"__custom_fusion","custom_fusion_config":{"name":"dynamic_slice_fusion"}}'
    custom = f'kind=kCustom, calls=slice, backend_config={{"fusion_backend_config":{config}}}'
    kinds = {}
    for kind in (custom, "kind=kLoop, calls=slice"):
        program = program_from_text(SLICE.replace("KIND", kind))
        found = kernel_features(program, program.instruction("f"))
        kinds[kind] = (found.kind, found.bytes)
    moved = 2 * 64 * 1024 * 2
    assert kinds[custom] == ("copy", pytest.approx(moved, rel=0.01))
    assert kinds["kind=kLoop, calls=slice"] == ("loop", pytest.approx(moved, rel=0.01))
