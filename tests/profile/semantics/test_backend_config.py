"""What XLA:TPU writes about an instruction: the split between two TensorCores."""

from dataclasses import replace

import pytest

from recorded import DATA
from slipstream.machines.topology import machine
from slipstream.machines.tpu.instructions import tpu_estimate
from slipstream.outputs.terminal.programs import program_json, render_program
from slipstream.profile.program import Program
from slipstream.profile.semantics.backend_config import (
    Megacore,
    backend_config,
    estimated_cycles,
    has_cost_model,
    megacore,
)
from slipstream.profile.semantics.flops import work
from slipstream.sources.hlo.reader import read_program


@pytest.fixture(scope="module")
def fsdp() -> Program:
    return read_program(DATA / "tpu" / "v5p_fsdp.hlo.gz")


def test_an_instruction_is_split_between_two_cores(fsdp: Program) -> None:
    assert megacore(fsdp.instruction("fusion.460")) == Megacore(0)
    # It sums over half of its iterations on each core.
    assert megacore(fsdp.instruction("convert_reduce_fusion.2")) == Megacore(1, 8192)
    assert megacore(fsdp.instruction("copy.176")) is None
    split = [(one, found) for one in fsdp.runnable if (found := megacore(one)) is not None]
    assert len(split) == 136
    assert sum(found.all_reduce_bytes > 0 for _, found in split) == 11
    # The dimension is one of its iterations, not of its shape.
    for one, found in split:
        iterations = backend_config(one, "window_config")["iteration_bounds"]
        assert int(iterations[found.split_dimension]) > 1


def test_cycles_are_those_of_both_cores(fsdp: Program) -> None:
    """A core alone does half of the peak in a cycle; products reach nearly all of it."""
    tpu = machine("v5p:2x2x2").tpu
    peak = tpu.peak_flops["bf16"] / tpu.clock_hz
    shares = {
        one.name: work(fsdp, one).flops / (estimated_cycles(one) or 1) / peak
        for one in fsdp.runnable
        if megacore(one) is not None and has_cost_model(one)
    }
    assert 0.9 < max(shares.values()) <= 1.0


@pytest.mark.parametrize(
    "config",
    [
        "",
        "megacore_config",
        '{"megacore_config":null}',
        '{"megacore_config":{}}',
        '{"megacore_config":{"megacore_split_dim":"-1"}}',
        '{"megacore_config":{"megacore_split_dim":"99999"}}',
    ],
)
def test_what_says_nothing_is_not_split(fsdp: Program, config: str) -> None:
    assert megacore(replace(fsdp.instruction("fusion.460"), backend_config=config)) is None


def test_programs_says_what_runs_on_both_cores(fsdp: Program) -> None:
    assert render_program(fsdp).plain.splitlines()[-3:] == [
        "megacore",
        "  136 instructions on both TensorCores · 14 on one (copy 14)",
        "  11 add up partial results of the cores: 4.26 MB",
    ]
    found = program_json(fsdp)["megacore"]
    assert (found["both_cores"], len(found["one_core"])) == (136, 14)
    assert {"instruction": "fusion.445", "bytes": 262144, "executions": 4} in found["all_reduces"]
    slices = read_program(DATA / "tpu" / "v5e_2slices.hlo.gz")
    assert program_json(slices)["megacore"] is None
    assert "megacore" not in render_program(slices).plain


def test_estimates_say_it(fsdp: Program) -> None:
    on = machine("v5p:2x2x2")
    whys = [
        tpu_estimate(on, fsdp, fsdp.instruction(name)).why for name in ("fusion.460", "fusion.445")
    ]
    assert whys == [
        "154,294 cycles at 1.75 GHz, XLA's estimate, on both cores",
        "872,021 cycles at 1.75 GHz, XLA's estimate, on both cores, which add up 262 kB",
    ]
