"""Every reader of files: small valid inputs for it, how to damage them, and how to read them.

The table that the fuzz tests share. A reader of damaged input may succeed or raise a
`SlipstreamError`; anything else is a defect.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from archive_builder import SMALL, as_parquet, write_archive
from builders import STEP, hlo, space
from fuzz.mutations import (
    Damage,
    damage_bytes,
    damage_json,
    damage_proto,
    damage_sqlite,
    damage_text,
    damage_zip,
)
from megascale_builder import Mock, megascale
from nsys_builder import FORMS, export_of
from recorded import DATA, protos

Corpus = Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Reader:
    """One reader of files."""

    name: str
    file: str
    """the name that a file has for this reader"""
    corpus: Corpus
    """small valid inputs"""
    damage: Damage
    read: Callable[[Path], object]

    @property
    def inputs(self) -> tuple[bytes, ...]:
        return _inputs(self.corpus)


@cache
def _inputs(corpus: Corpus) -> tuple[bytes, ...]:
    return tuple(corpus())


# Inputs


def _recording() -> bytes:
    """A GPU's recording with a program, a graph, copies, steps, and versions."""
    made = space()
    names = ("dot.1", "all-reduce-start.1", "dot.2", "all-reduce-done.1", "copy.1")
    made.program(STEP, hlo("jit_step", names)).versions(jax_version="0.10.2")
    made.environment(1_700_000_000_000_000_000).note(warning="buffer dropped", hostname="host-0")
    stream, copies = made.gpu().line("Stream #7(Compute)"), made.gpu().line("Stream #9(MemcpyD2H)")
    thread = made.host().line("python")
    launch = {"kernel_details": "regs:32 static_shared:0 dynamic_shared:0 grid:1,1,1 block:256,1,1"}
    copy = {"memcpy_details": "kind_src:device kind_dst:pinned size:4096 dest:0 async:1"}
    for step in range(3):
        at, first = 1000.0 * step, 10 * step
        thread.annotation(step, at, 900)
        stream.kernel("gemm", at, 100, "dot.1", correlation=first + 1, **launch)
        stream.kernel(
            "ncclKernel", at + 100, 50, "all-reduce-start.1", correlation=first + 2, **launch
        )
        graph = {"cuda_graph_id": 3, **launch}
        stream.kernel("gemm", at + 150, 100, "command_buffer_3", correlation=first + 3, **graph)
        copies.kernel("MemcpyD2H", at + 300, 20, "copy.1", correlation=first + 4, **copy)
        for number in range(1, 5):
            thread.launch(first + number, at - 10 + number)
    return made.bytes()


def _xplanes() -> Iterable[bytes]:
    yield _recording()
    yield megascale(Mock(maps_in_steps=1, copies_in_transfers=1)).bytes()


def _exports() -> Iterable[bytes]:
    from slipstream.sources.load import load

    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "host.xplane.pb"
        recording.write_bytes(_recording())
        profile = load(recording)
        for form in FORMS:
            builder = export_of(profile, form).diagnostic(2, "some events were lost")
            yield builder.write(Path(folder) / f"{form.name}.sqlite").read_bytes()


def _archives() -> Iterable[bytes]:
    dump = "dump/module_0001.jit_f.sm_9.0_gpu_after_optimizations.hlo.pb"
    unoptimised = "dump/module_0001.jit_f.before_optimizations.hlo.pb"
    program = hlo("jit_f", ("dot.1", "all-reduce-start.1"))
    files = {
        dump: program,
        unoptimised: program,
        "system-metadata.parquet": as_parquet({"name": ["Hostname"], "value": ["host"]}),
        "device-metadata.parquet": as_parquet(
            {"cuDevice": [0], "('TARGET_INFO_GPU', 'name')": ["NVIDIA H200"]}
        ),
        "thread-metadata.parquet": as_parquet({"TID": [78], "Name": ["python"]}),
    }
    with tempfile.TemporaryDirectory() as folder:
        yield write_archive(Path(folder) / "run.zip", SMALL, **files).read_bytes()


PROGRAM = """\
HloModule jit_step, is_scheduled=true, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }, frontend_attributes={fingerprint_before_lhs="0123456789abcdef0123456789abcdef"}

FileNames
1 "train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused_sum (q: f32[8,8]) -> f32[8] {
  %q = f32[8,8]{1,0} parameter(0)
  %nought = f32[] constant(0)
  ROOT %r = f32[8]{0} reduce(%q, %nought), dimensions={1}, to_apply=%add
}

%body (t: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %t = (s32[], f32[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %v = f32[8,8]{1,0} get-tuple-element(%t), index=1
  %dot.1 = f32[8,8]{1,0} dot(%v, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot" stack_frame_id=1}
  ROOT %out = (s32[], f32[8,8]{1,0}) tuple(%i, %dot.1)
}

%condition (u: (s32[], f32[8,8])) -> pred[] {
  %u = (s32[], f32[8,8]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%u), index=0
  %limit = s32[] constant(4)
  ROOT %less = pred[] compare(%j, %limit), direction=LT
}

ENTRY %main (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0:S(5)} parameter(0)
  %zero = s32[] constant(0)
  %pair = (s32[], f32[8,8]{1,0}) tuple(%zero, %p)
  %while.1 = (s32[], f32[8,8]{1,0}) while(%pair), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"4"}}
  %got = f32[8,8]{1,0} get-tuple-element(%while.1), index=1
  %all-reduce-start.1 = f32[8,8]{1,0} all-reduce-start(%got), channel_id=1, replica_groups=[1,2]<=[2], use_global_device_ids=true, to_apply=%add
  %gemm = f32[8,8]{1,0} custom-call(%got, %got), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %image = f32[1,8,8,1]{3,2,1,0} reshape(%got)
  %conv = (f32[1,8,8,1]{3,2,1,0}, u8[0]{0}) custom-call(%image, %image), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"
  %blur = f32[1,8,8,1]{3,2,1,0} convolution(%image, %image), window={size=8x8 pad=4_3x4_3 rhs_dilate=1x1}, dim_labels=b01f_01io->b01f
  %attention = (f32[1,8,8,1]{3,2,1,0}, u8[0]{0}) custom-call(%image, %image, %image), custom_call_target="__cudnn$fmhaSoftmax", backend_config={"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":["1","1","8","8"]},"mask_type":"CAUSAL"}}
  %window = f32[1,8,8,1]{3,2,1,0} reduce-window(%image, %zero), window={size=1x3x3x1 pad=0_0x1_1x1_1x0_0}, to_apply=%add
  %reduced = f32[8]{0} reduce(%got, %zero), dimensions={1}, to_apply=%add
  %sliced = f32[4,8]{1,0} slice(%got), slice={[0:4], [0:8]}
  %fusion.1 = f32[8]{0} fusion(%got), kind=kCustom, calls=%fused_sum, backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"output_tiles":[{"sizes":["4"]}],"num_warps":"4"}}}
  %all-reduce-done.1 = f32[8,8]{1,0} all-reduce-done(%all-reduce-start.1)
  ROOT %fused = f32[8,8]{1,0} add(%all-reduce-done.1, %gemm)
}
"""  # noqa: E501


def _programs() -> Iterable[bytes]:
    yield PROGRAM.encode()


def _program_protos() -> Iterable[bytes]:
    yield hlo("jit_f", ("dot.1", "while.1", "all-reduce-start.1", "all-reduce-done.1"),
              {"while.1": (3, ("dot.2",))})  # fmt: skip
    # The smallest program of a real recording.
    yield min(protos("single").values(), key=len)


def _unscheduled() -> Iterable[bytes]:
    from slipstream.sources.proto_schema import message

    program = message("HloProto").FromString(hlo("jit_f", ("dot.1", "all-reduce-start.1")))
    program.hlo_module.ClearField("schedule")
    yield program.SerializeToString()


_MANIFEST = {
    "policy": "typical",
    "jax_version": "0.10.2",
    "topology": {"hosts": 1, "devices": 1},
    "flags": {"xla_gpu_graph_level": "0"},
    "sources": [{"name": "a.xplane.pb", "sha256": "00"}],
    "programs": [
        {
            "program": "jit_step(1)",
            "fingerprint": "0123456789abcdef0123456789abcdef",
            "instructions": 2,
            "executions": {"dot.1": 3, "all-reduce-start.1": 3},
            "communication": ["all-reduce-start.1"],
        }
    ],
}
_COSTS = 'costs { name: "dot.1" cost_us: 12.5 }\ncosts { name: "all-reduce-start.1" cost_us: 3 }\n'


def _cost_protos() -> Iterable[bytes]:
    yield gzip.decompress((DATA / "off.pb.gz").read_bytes())


MACHINE = """\
hosts = 2
gpus_per_host = 8
[gpu]
base = "H200"
name = "mine"
memory_bandwidth = 4.0e12
compute_capability = [9, 0]
[gpu.peak_flops]
bf16 = 9.0e14
f32 = 6.0e13
[network]
base = "ethernet"
gbps = 200
latency_us = 5.0
[[calibration.collectives]]
kind = "all-reduce"
group = 8
hosts = 1
bytes = [1024, 1048576]
us = [10.0, 40.0]
[calibration.kernels.scales]
gemm = 1.1
"""

NCCL_TESTS = """\
# nThread 1 nGpus 8 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid  1 on host-0 device  0 [0x0a] NVIDIA H200
#  Rank  1 Group  0 Pid  1 on host-0 device  1 [0x0b] NVIDIA H200
# all_reduce_perf
     1048576        262144     float     sum      -1    45.1   23.2   40.7      0    44.9   23.3   40.8      0
     2097152        524288     float     sum      -1    60.1   34.9   61.0      0    59.9   35.0   61.2      0
"""  # noqa: E501

SHELL = """\
#!/bin/bash
#SBATCH --export=ALL,XLA_FLAGS=--xla_gpu_graph_level=0
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true ${XLA_FLAGS:-} \\
  --xla_gpu_all_gather_combine_threshold_bytes=$((1 << 20))"
JAX_ENABLE_PGLE=true NCCL_DEBUG='INFO' srun python train.py --steps 3 <<EOF2
export NCCL_ALGO=Ring
EOF2
"""
PYTHON = """\
import os
import jax
os.environ["XLA_FLAGS"] = (
    "--xla_gpu_enable_latency_hiding_scheduler=true "
    f"--xla_gpu_graph_level={0} " + os.environ.get("XLA_FLAGS", "")
)
os.environ.setdefault("NCCL_DEBUG", "INFO")
jax.jit(lambda x: x, compiler_options={"xla_gpu_graph_level": 0, "xla_gpu_autotune_level": "4"})
"""
YAML = """\
env: &common
- name: XLA_FLAGS
  value: >-
    --xla_gpu_graph_level=0
    --xla_gpu_enable_latency_hiding_scheduler=true
- {name: NCCL_DEBUG, value: "INFO"}
job:
  env: *common
  environment: {JAX_ENABLE_PGLE: "true", LIBTPU_INIT_ARGS: '--xla_tpu_x=1'}
  args: ["-c", "XLA_FLAGS=--xla_gpu_graph_level=1 python train.py"]
"""


# Reading


def read_recording(path: Path) -> None:
    """Load a profile and run what every command would run on it."""
    from slipstream.costs.extract import extract_costs
    from slipstream.diagnosis.diagnose import diagnose
    from slipstream.errors import SlipstreamError
    from slipstream.outputs.html.report import report_page
    from slipstream.outputs.html.report_data import results
    from slipstream.profile.validation import validate
    from slipstream.sources.load import load

    profile = load(path)
    validate(profile)
    for use in (
        lambda: report_page(results(profile, diagnosis=diagnose(profile))),
        lambda: extract_costs(profile),
    ):
        try:
            use()
        except SlipstreamError:
            continue


def _read_program(path: Path) -> None:
    """Read a program, simulate it and list what it is made of."""
    from slipstream.analyses.memory import program_memory
    from slipstream.errors import BadInput
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.compiled.predict import prediction_json, render_predictions
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo.reader import read_program

    program = read_program(path)
    for instruction in program.scheduled:
        str(instruction.shape), instruction.shape.bytes
    try:
        program_memory(program)
        predictions = [predict(program, machine("2xH200"))]
    except BadInput:
        return
    prediction_json(predictions)
    render_predictions(predictions, 80, True)


def _read_costs(path: Path) -> None:
    """Read costs and simulate a program with them."""
    from slipstream.costs.coverage import check_program
    from slipstream.costs.files import read_costs
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.costs import render_table, table_json
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo.text import program_from_text

    table = read_costs(path)
    table_json(table, None)
    render_table(table, 80, 20)
    program = program_from_text(PROGRAM)
    check_program(table, program, "")
    predict(program, machine("2xH200"), table)


def _read_manifest(path: Path) -> None:
    path.rename(path.with_name("costs.pbtxt.json"))
    costs = path.with_name("costs.pbtxt")
    costs.write_text(_COSTS)
    _read_costs(costs)


def _read_archived(path: Path) -> None:
    from slipstream.compiler.archive import read_archived

    read_archived(path)


def _read_target(path: Path) -> None:
    from slipstream.compiler.targets import identify

    identify(str(path))


def _read_machine(path: Path) -> None:
    from slipstream.machines.collectives import overview
    from slipstream.machines.files import read_machine
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.machines import overview_json, render_overview
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo.text import program_from_text

    read_machine(path)
    found = machine(str(path))
    shown = overview(found)
    overview_json(shown)
    render_overview(shown, 80)
    predict(program_from_text(PROGRAM), found)


def _read_nccl_tests(path: Path) -> None:
    from slipstream.machines.calibrate import counts_of, device_of, machine_data, nccl_tests
    from slipstream.machines.calibrate import read_text as read_output
    from slipstream.machines.topology import machine

    device_of([str(path)])
    curves = nccl_tests(read_output(str(path)), path.name)
    machine_data("H200", curves, counts_of(curves, machine("H200")))


def _read_settings(path: Path) -> None:
    from slipstream.flags.settings import read_settings

    read_settings(path)


READERS = (
    Reader("xplane", "host.xplane.pb", _xplanes, damage_proto, read_recording),
    Reader("nsys", "run.sqlite", _exports, damage_sqlite, read_recording),
    Reader("archive", "run.zip", _archives, damage_zip, read_recording),
    Reader("archived program", "run.zip", _archives, damage_zip, _read_archived),
    Reader("hlo text", "step.hlo", _programs, damage_text, _read_program),
    Reader("hlo proto", "step.hlo.pb", _program_protos, damage_proto, _read_program),
    Reader("compile target", "step.pb", _unscheduled, damage_proto, _read_target),
    Reader("costs", "costs.pb", _cost_protos, damage_proto, _read_costs),
    Reader("costs text", "costs.pbtxt", lambda: [_COSTS.encode()], damage_text, _read_costs),
    Reader(
        "manifest", "m.json", lambda: [json.dumps(_MANIFEST).encode()], damage_json, _read_manifest
    ),
    Reader("machine", "mine.toml", lambda: [MACHINE.encode()], damage_text, _read_machine),
    Reader("nccl-tests", "out.txt", lambda: [NCCL_TESTS.encode()], damage_text, _read_nccl_tests),
    Reader("shell", "run.sh", lambda: [SHELL.encode()], damage_text, _read_settings),
    Reader("python", "train.py", lambda: [PYTHON.encode()], damage_text, _read_settings),
    Reader("yaml", "job.yaml", lambda: [YAML.encode()], damage_text, _read_settings),
    Reader("any file", "unknown", _xplanes, damage_bytes, read_recording),
)
"""every reader, with the widest use of what it returns"""
