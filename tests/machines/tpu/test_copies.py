"""Copies between a TPU and its host, as XLA:TPU writes the offload of activations in a loop."""

from slipstream.analyses.network.network import network
from slipstream.machines.topology import machine
from slipstream.machines.tpu.instructions import tpu_estimate
from slipstream.machines.tpu.links import HOST_IN, HOST_OUT, tpu_loads
from slipstream.profile.semantics.descriptions import describe
from slipstream.simulate.engine import simulate
from slipstream.sources.hlo.reader import program_from_text

SAVED = "bf16[8,1024,8192]{2,1,0:T(8,128)(2,1)S(5)}"
LAYER = "bf16[1,1024,8192]{2,1,0:T(8,128)(2,1)}"
PROGRAM = program_from_text(
    f"""HloModule step, is_scheduled=true

ENTRY main {{
  saved = {SAVED} parameter(0)
  layer = {LAYER} parameter(1)
  i = s32[] parameter(2)
  out = (({SAVED}, {LAYER}, s32[], s32[], s32[]), {SAVED}, u32[]) dynamic-update-slice-start(saved, layer, i, i, i)
  written = {SAVED} dynamic-update-slice-done(out)
  in = (({SAVED}, s32[], s32[], s32[]), {LAYER}, u32[]) dynamic-slice-start(written, i, i, i), dynamic_slice_sizes={{1,1024,8192}}
  read = {LAYER} dynamic-slice-done(in)
  ROOT both = ({SAVED}, {LAYER}) tuple(written, read)
}}
"""  # noqa: E501
)
LAYER_BYTES = 2 * 1024 * 8192


def test_a_layer_of_a_buffer_on_the_host_moves_alone() -> None:
    on = machine("v5e-1")
    host = on.tpu.host_bandwidth
    for name, link, said in (("out", HOST_OUT, "to host"), ("in", HOST_IN, "from host")):
        start = PROGRAM.instruction(name)
        estimate = tpu_estimate(on, PROGRAM, start)
        assert 0 <= estimate.us - LAYER_BYTES / host * 1e6 < 2
        assert estimate.why == "16.8 MB over the host's link"
        assert tpu_loads(on, PROGRAM, start) == [(link, LAYER_BYTES, LAYER_BYTES / host * 1e6)]
        assert describe(PROGRAM, start) == f"copy {said} 16.8 MB"


def test_the_network_shows_both_directions_of_the_host_link() -> None:
    found = network(simulate(PROGRAM, machine("v5e-1")))
    assert {one.per_step_bytes for one in found.series} == {LAYER_BYTES}
    assert len(found.series) == 2
