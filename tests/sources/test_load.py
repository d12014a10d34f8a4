"""`load`: files and folders, hosts and clocks, GPUs, TPUs, CPUs and the network between slices."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import plain_decoder
from builders import PS, STEP, Ref, SpaceBuilder, Unsigned, hlo, space
from slipstream.analyses.ops import ops
from slipstream.analyses.summary import StepTimes, summary
from slipstream.errors import BadInput
from slipstream.profile.profile import Profile
from slipstream.profile.validation import validate
from slipstream.sources.load import load

RECORDINGS = (
    "attention_graphs",
    "attention_plain",
    "convolution_graphs",
    "convolution_plain",
    "nccl2_lhs_r0",
    "nccl2_nolhs_r0",
    "off_default",
    "off_lhs_nocb",
    "off_nolhs",
    "off_pgle_nocb",
    "single",
)
YEAR_2024 = 1_704_067_200 * 10**9


def gpu_space(hostname: str = "", start_ns: int = 0, op: str = "dot.1") -> SpaceBuilder:
    """One kernel at 10 µs, in a program that holds nothing but its instruction."""
    built = space()
    built.gpu().line("Stream #1(Kernel)").kernel("kernel", 10, 5, op, correlation=7)
    built.program(STEP, hlo("jit_step", [op]))
    built.note(hostname=hostname or None)
    return built.environment(start_ns) if start_ns else built


def loaded(built: SpaceBuilder, tmp_path: Path) -> Profile:
    found = load(built.write(tmp_path / "built.xplane.pb"))
    validate(found)
    return found


def texts(found: Profile, column: str) -> list[str]:
    return [found.events.text(column, row) for row in range(len(found.events))]


# Finding files.


def test_a_file_and_the_same_file_gzipped(tmp_path: Path) -> None:
    path = gpu_space("a").write(tmp_path / "a.xplane.pb")
    packed = tmp_path / "a.xplane.pb.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for one in (path, packed, str(path)):
        found = load(one)
        validate(found)
        assert (texts(found, "name"), texts(found, "instruction")) == (["kernel"], ["dot.1"])
        assert found.hosts[0].source == str(one)


def test_a_run_folder_has_a_file_for_each_host(tmp_path: Path) -> None:
    gpu_space("a").write(tmp_path / "a.xplane.pb")
    gpu_space("b").write(tmp_path / "b.xplane.pb")
    (tmp_path / "a.trace.json.gz").write_bytes(b"something else")
    found = load(tmp_path)
    validate(found)
    assert [host.name for host in found.hosts] == ["a", "b"]
    assert [(device.name, device.host) for device in found.devices] == [("GPU:0", 0), ("GPU:0", 1)]
    assert [found.lanes[i].device for i in found.events["lane"].tolist()] == [0, 1]


def test_of_several_runs_the_newest_or_the_one_that_was_named(tmp_path: Path) -> None:
    for run, op in (("2024_01_02_03_04_05", "dot.1"), ("2024_11_02_03_04_05", "dot.2")):
        gpu_space(op=op).write(tmp_path / "plugins" / "profile" / run / "h.xplane.pb")
    assert texts(load(tmp_path), "op") == ["dot.2"]
    assert texts(load(tmp_path, run="2024_01_02_03_04_05"), "op") == ["dot.1"]
    assert texts(load(tmp_path / "plugins" / "profile"), "op") == ["dot.2"]
    assert texts(load(tmp_path / "plugins"), "op") == ["dot.2"]
    with pytest.raises(BadInput) as caught:
        load(tmp_path, run="2025")
    assert str(caught.value) == (
        f"{tmp_path} has no run '2025'; its runs are: 2024_01_02_03_04_05, 2024_11_02_03_04_05"
    )


def test_what_a_folder_holds_and_was_not_read_is_said(tmp_path: Path) -> None:
    def said(path: Path, **options: str) -> list[str]:
        return [w.message for w in load(path, **options).warnings if w.code == "not-read"]

    log = tmp_path / "plugins" / "profile"
    gpu_space().write(log / "2024_01_02" / "h.xplane.pb")
    assert said(tmp_path) == []
    gpu_space().write(log / "2024_01_03" / "h.xplane.pb")
    assert said(tmp_path) == [
        f"{tmp_path} holds one more run; 2024_01_03 was read. To read another one: --run NAME "
        "(2024_01_02)"
    ]
    assert said(tmp_path, run="2024_01_02") == []
    assert said(log / "2024_01_03") == []
    other = log / "2024_01_03" / "nsys.sqlite"
    other.write_bytes(b"SQLite format 3\0")
    (log / "2024_01_03" / "h.nsys-rep").write_bytes(b"the same recording, not exported")
    assert said(log / "2024_01_03") == [
        f"{log / '2024_01_03'} also holds nsys.sqlite, not read; to read a file, name it"
    ]
    assert said(log / "2024_01_03" / "h.xplane.pb") == []


def test_processes_that_have_their_own_folders_are_one_run(tmp_path: Path) -> None:
    """As `slipstream.capture` writes them; the second capture of each is newest."""
    for number, runs in enumerate((("2024_01_01", "2024_01_03"), ("2024_01_02", "2024_01_04"))):
        for run in runs:
            folder = tmp_path / f"process{number}" / "plugins" / "profile" / run
            gpu_space(f"{number}-{run}").write(folder / "h.xplane.pb")
    found = load(tmp_path)
    assert [host.name for host in found.hosts] == ["0-2024_01_03", "1-2024_01_04"]
    (warning,) = (w for w in found.warnings if w.code == "not-read")
    assert "holds 2 more runs; 2024_01_03, 2024_01_04 was read" in warning.message


def test_without_a_host_name_the_file_name_says_it(tmp_path: Path) -> None:
    assert load(gpu_space().write(tmp_path / "node7.xplane.pb")).hosts[0].name == "node7"


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = gpu_space().write(tmp_path / "a.xplane.pb")
    seen: list[tuple[int, int]] = []
    load(path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert all(0 <= done <= size == total for done, total in seen)


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        load(path)
    return str(caught.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    gpu_space().write(tmp_path / "train.xplane.pb")
    path = tmp_path / "trian.xplane.pb"
    assert refusal(path) == f"{path} does not exist; did you mean train.xplane.pb?"
    path = tmp_path / "logs" / "a.xplane.pb"
    assert refusal(path) == f"{path} does not exist (nor does its folder {tmp_path / 'logs'})"


def test_what_is_no_profile(tmp_path: Path) -> None:
    empty = tmp_path / "empty.xplane.pb"
    empty.write_bytes(b"")
    assert refusal(empty) == f"{empty} is empty; was the profiler stopped? record it again"
    packed = tmp_path / "empty.xplane.pb.gz"
    packed.write_bytes(gzip.compress(b""))
    assert refusal(packed).startswith(f"{packed} contains no XPlane: 0 bytes without a plane; ")
    packed.write_bytes(gzip.compress(gpu_space().bytes())[:-20])
    assert refusal(packed).startswith(f"{packed} is not a complete gzip file (")
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    assert refusal(other) == (
        f"{other} is not a profile that Slipstream can read; expected *.xplane.pb as jax.profiler "
        "writes it or the folder above it, an Nsight Systems export (.sqlite) or report "
        "(.nsys-rep), or an nsys-jax archive (.zip)"
    )
    folder = tmp_path / "nothing"
    folder.mkdir()
    assert refusal(folder).startswith(f"{folder} contains no profile: expected *.xplane.pb in it")


# Real recordings.


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_of_gpus_hold_what_the_plain_decoder_reads(data: Path, name: str) -> None:
    path = data / f"{name}.xplane.pb.gz"
    found = load(path)
    validate(found)
    assert_like_the_plain_decoder(found, gzip.decompress(path.read_bytes()))


def test_a_recording_of_eight_mi300(external: Path) -> None:
    path = external / "jax_mi300_8gpu.xplane.pb"
    found = load(path)
    validate(found)
    assert [device.name for device in found.devices] == [f"GPU:{i}" for i in range(8)]
    counts = np.bincount(found.event_devices, minlength=8).tolist()
    assert counts == [60, 25, 25, 25, 25, 25, 25, 25]
    assert_like_the_plain_decoder(found, path.read_bytes())


def assert_like_the_plain_decoder(found: Profile, data: bytes) -> None:
    """Every device event: where it ran, how long, and what the profiler said of it."""
    told = [e for e in plain_decoder.events(data) if e.plane.startswith("/device:GPU")]
    told = [e for e in told if e.line.startswith("Stream")]
    lanes = [found.lanes[i] for i in found.events["lane"].tolist()]
    devices = [found.devices[lane.device or 0] for lane in lanes]
    assert [f"/device:{d.name}" for d in devices] == [e.plane for e in told]
    assert [lane.name for lane in lanes] == [e.line for e in told]
    assert texts(found, "name") == [e.name for e in told]
    assert texts(found, "op") == [e.text("hlo_op") or "" for e in told]
    modules = [name.partition("(")[0] for name in texts(found, "program")]
    assert modules == [e.text("hlo_module") or "" for e in told]
    kinds = ("kernel_details", "memcpy_details", "memset_details")
    assert texts(found, "details") == [e.text(*kinds) or "" for e in told]
    assert found.events["start_ps"].tolist() == [e.start_ps for e in told]
    assert found.events["duration_ps"].tolist() == [e.duration_ps for e in told]
    launches = found.events["correlation"].tolist()
    assert launches == [e.number("correlation_id") or 0 for e in told]
    per_kernel: dict[str, int] = defaultdict(int)
    for event in told:
        per_kernel[event.name] += event.duration_ps
    for op in ops(found, by="kernel", whole=True).ops:
        per_kernel[op.instruction] -= round(op.total_us * PS)
    assert set(per_kernel.values()) == {0}


def test_host_events_that_name_an_op_are_no_device_where_there_is_a_gpu(tmp_path: Path) -> None:
    built = space()
    built.host().line("python").event("Thunk", 0, 5, hlo_op=Ref("dot.1"), hlo_module="jit_step")
    built.gpu().line("Stream #1(Kernel)").kernel("kernel", 1, 5, "dot.1")
    found = loaded(built, tmp_path)
    assert [device.name for device in found.devices] == ["GPU:0"]
    assert texts(found, "name") == ["kernel"]


def test_planes_of_other_tools_are_no_devices(tmp_path: Path) -> None:
    built = gpu_space()
    built.plane("/device:CUSTOM:MOSAIC:0").line("warp 0").event("wgmma", 0, 5)
    built.plane("/device:CUSTOM:Megascale").line("DCN").event("transfer", 0, 5)
    assert [device.name for device in loaded(built, tmp_path).devices] == ["GPU:0"]


def test_lines_that_xprof_derives_are_not_counted_twice(tmp_path: Path) -> None:
    built = gpu_space()
    for name in ("XLA Modules", "XLA Ops", "Steps", "Framework Ops", "Source code"):
        built.gpu().line(name).event("kernel", 10, 5)
    assert texts(loaded(built, tmp_path), "name") == ["kernel"]


def test_what_the_device_says_of_itself(tmp_path: Path) -> None:
    built = gpu_space()
    stats = {"device_vendor": Ref("AMD"), "compute_cap_major": 9, "compute_cap_minor": 4}
    built.plane("/device:GPU:3", **stats)
    found = loaded(built.versions(jax_version="0.11.2", jaxlib_version="0.11.1"), tmp_path)
    models = [(d.name, d.ordinal, d.kind, d.model) for d in found.devices]
    assert models == [
        ("GPU:0", 0, "gpu", "NVIDIA H200"),
        ("GPU:3", 3, "gpu", "AMD GPU, compute 9.4"),
    ]
    assert found.hosts[0].versions == {"jax_version": "0.11.2", "jaxlib_version": "0.11.1"}
    assert summary(found).versions == {"jax": "0.11.2", "jaxlib": "0.11.1"}


def test_a_program_id_that_several_modules_claim(tmp_path: Path) -> None:
    """The module's name decides where the id names a program of another name."""
    built = space()
    line = built.gpu().line("Stream #1(Kernel)")
    line.kernel("a", 0, 1, "dot.1", "jit_step(1)").kernel("b", 2, 1, "dot.1", "jit_eval(1)")
    line.kernel("c", 4, 1, "dot.1", "jit_step(9)").event("d", 6, 1)
    built.program(STEP, hlo("jit_step", ["dot.1"]))
    found = loaded(built, tmp_path)
    assert texts(found, "program") == ["jit_step(1)", "jit_eval(1)", "jit_step(9)", ""]


def test_programs_with_ids_beyond_the_signed_range(tmp_path: Path) -> None:
    name = f"jit_step({2**64 - 5})"
    built = space().program(name, hlo("jit_step", ["dot.1"]))
    line = built.gpu().line("Stream #1(Kernel)")
    labels = {"hlo_op": Ref("dot.1"), "hlo_module": Ref("jit_step")}
    line.event("a", 0, 1, **labels, program_id=Unsigned(2**64 - 5))
    line.event("a", 0, 1, **labels, program_id=-5)
    assert texts(loaded(built, tmp_path), "program") == [name, name]


# Several hosts.


def test_hosts_share_one_clock(tmp_path: Path) -> None:
    gpu_space("late", YEAR_2024 + 3000).write(tmp_path / "a.xplane.pb")
    gpu_space("early", YEAR_2024).write(tmp_path / "b.xplane.pb")
    found = load(tmp_path)
    validate(found)
    assert [host.start_ns for host in found.hosts] == [YEAR_2024 + 3000, YEAR_2024]
    assert found.events["start_ps"].tolist() == [13 * PS, 10 * PS]


def test_wall_clock_timestamps_count_from_where_the_profile_began(tmp_path: Path) -> None:
    """Some files hold times since the profile began, some wall-clock times: both mean the same."""
    for name, stamp in (("a", 0), ("b", YEAR_2024)):
        built = space().environment(YEAR_2024).note(hostname=name)
        built.gpu().line("Stream #1(Kernel)", stamp + 2000).kernel("k", 10, 5, "dot.1")
        built.host().line("python", stamp + 1000).event("f", 0, 5)
        built.write(tmp_path / f"{name}.xplane.pb")
    found = load(tmp_path)
    validate(found)
    assert found.events["start_ps"].tolist() == [12 * PS, 12 * PS]
    assert found.host_events["start_ps"].tolist() == [1 * PS, 1 * PS]


def test_programs_of_one_name_and_other_content_carry_their_host(tmp_path: Path) -> None:
    for name, op in (("a", "dot.1"), ("b", "dot.2"), ("c", "dot.1"), ("d", "dot.3")):
        gpu_space(name, YEAR_2024, op).write(tmp_path / f"{name}.xplane.pb")
    found = load(tmp_path)
    validate(found)
    names = [STEP, f"{STEP}@b", STEP, f"{STEP}@d"]
    assert texts(found, "program") == names
    assert texts(found, "instruction") == ["dot.1", "dot.2", "dot.1", "dot.3"]
    assert sorted(found.programs) == sorted(set(names))
    assert all("dot.2" in found.programs[n] for n in found.programs if n.endswith("@b"))


# XLA:CPU.


def test_a_recording_of_the_cpu_made_here(tmp_path: Path) -> None:
    """A train step under `scan`, recorded while the test runs."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def loss(weights, x):
        hidden, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return (hidden**2).mean()

    @jax.jit
    def step(weights, x):
        value, grads = jax.value_and_grad(loss)(weights, x)
        return weights - 1e-3 * grads, value

    weights, x = jnp.full((3, 32, 32), 0.01), jnp.ones((16, 32))
    weights, _ = jax.block_until_ready(step(weights, x))
    with jax.profiler.trace(tmp_path):
        for number in range(5):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                weights, _ = jax.block_until_ready(step(weights, x))
    found = load(tmp_path)
    validate(found)
    (path,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    told = [e for e in plain_decoder.events(path.read_bytes()) if e.text("hlo_op")]

    assert [(d.name, d.kind) for d in found.devices] == [("CPU:0", "cpu")]
    assert found.warnings == ()
    assert texts(found, "instruction") == [e.text("hlo_op") for e in told]
    runs = [e.number("run_id") for e in told]
    order = list(dict.fromkeys(run for _, run in sorted(zip(map(_start, told), runs, strict=True))))
    assert found.events["execution"].tolist() == [order.index(run) for run in runs]
    assert found.steps.basis == "annotations"
    assert set(found.steps.number.tolist()) <= set(range(5))

    expected: dict[str, int] = defaultdict(int)
    for event, own in _own_times(told):
        expected[event.text("hlo_op") or ""] += own
    by_op = {op.instruction: round(op.total_us * PS) for op in ops(found, whole=True).ops}
    assert by_op == expected
    counts = {op.instruction: op.count for op in ops(found, whole=True).ops}
    loops = [name for name in counts if name.startswith("while")]
    assert loops and all(counts[name] == 5 for name in loops)
    assert {counts[name] for name in counts} <= {5, 15, 20}

    (program,) = summary(found).programs
    assert (program.name.partition("(")[0], program.executions) == ("jit_step", 5)
    assert round(program.device_us * PS) == sum(expected.values())
    times = summary(found).per_step
    assert 0 < times.compute_us <= times.wall_us
    assert times.communication_us == times.unattributed_us == 0


def _start(event: plain_decoder.Event) -> int:
    return event.start_ps


def _own_times(told: list[plain_decoder.Event]) -> list[tuple[plain_decoder.Event, int]]:
    """Each event's time less its children's, by looking at all pairs of a thread."""
    found = []
    for outer in told:
        inside = [
            e
            for e in told
            if e.line == outer.line
            and e is not outer
            and outer.start_ps <= e.start_ps
            and e.start_ps + e.duration_ps <= outer.start_ps + outer.duration_ps
            and e.duration_ps < outer.duration_ps
        ]
        marks = sorted({e.start_ps for e in inside} | {e.start_ps + e.duration_ps for e in inside})
        covered = sum(
            b - a
            for a, b in zip(marks, marks[1:], strict=False)
            if any(e.start_ps <= a and b <= e.start_ps + e.duration_ps for e in inside)
        )
        found.append((outer, outer.duration_ps - covered))
    return found


def test_operations_of_one_run_in_any_order_are_one_execution(tmp_path: Path) -> None:
    built = space()
    built.program(STEP, hlo("jit_step", ["dot.1", "dot.2", "add.3"]))
    threads = [built.host().line(f"tf_XLAEigen/{i}") for i in range(2)]

    def op(thread: int, name: str, start: float, run: int) -> None:
        labels = {"hlo_op": Ref(name), "hlo_module": Ref("jit_step"), "program_id": 1}
        threads[thread].event(name, start, 5, **labels, run_id=run)

    for number, run in enumerate((-77, -76, 12)):
        at = 100 * number
        op(0, "dot.2", at, run)
        op(1, "dot.1", at + 3, run)
        op(1, "add.3", at + 10, run)
    found = loaded(built, tmp_path)
    assert found.events["execution"].tolist() == [0, 1, 2, 0, 0, 1, 1, 2, 2]
    assert [(op.instruction, op.count) for op in ops(found, whole=True).ops] == [
        ("add.3", 3),
        ("dot.1", 3),
        ("dot.2", 3),
    ]


# TPUs, and the network between slices.


def tpu_space() -> SpaceBuilder:
    """Three steps of 100 µs.

    XLA Ops        while.1 ──────────────────────────╮  all-gather-done.4  dot.6
                   │ dot.2 (×2)   all-reduce.3 (×2)  │
                   0 ... 60                             60 ... 70          70 ... 90
    Async XLA Ops        all-gather-start.4  50 ... 70
    """
    built = space()
    tpu = built.tpu()
    tpu.stat_id("step_num")  # the plane knows the stat, its `Steps` line does not use it
    steps, modules = tpu.line("Steps"), tpu.line("XLA Modules")
    lanes = {"ops": tpu.line("XLA Ops"), "async": tpu.line("Async XLA Ops")}

    def op(lane: str, name: str, start: float, us: float) -> None:
        text = f"%{name} = f32[8]{{0}} {name.partition('.')[0]}(f32[8]{{0}} %p)"
        tpu.metadata(text, name, program_id=Unsigned(1))
        lanes[lane].event(text, start, us, name)

    for number in range(3):
        at = 100 * number
        steps.event(str(number + 40), at, 100)
        modules.event(STEP, at, 95)
        op("ops", "while.1", at, 60)
        for iteration in range(2):
            op("ops", "dot.2", at + 30 * iteration, 15)
            op("ops", "all-reduce.3", at + 30 * iteration + 15, 10)
        op("async", "all-gather-start.4", at + 50, 20)
        op("ops", "all-gather-done.4", at + 60, 10)
        op("ops", "dot.6", at + 70, 20)
    return built


TPU_PROGRAM = hlo(
    "jit_step",
    ["while.1", "all-gather-start.4", "all-gather-done.4", "dot.6"],
    {"while.1": (2, ["dot.2", "all-reduce.3"])},
)


@pytest.mark.parametrize("with_program", [True, False])
def test_a_tpu_number_by_number(tmp_path: Path, with_program: bool) -> None:
    built = tpu_space()
    if with_program:
        built.program(STEP, TPU_PROGRAM)
    found = loaded(built, tmp_path)
    assert [(d.name, d.kind, d.model) for d in found.devices] == [("TPU:0", "tpu", "TPU v5p")]
    roles = {lane.name: lane.role for lane in found.lanes}
    assert roles == {
        "Steps": "steps",
        "XLA Modules": "modules",
        "XLA Ops": "ops",
        "Async XLA Ops": "windows",
    }
    steps = found.steps
    assert (steps.basis, steps.rule) == ("annotations", "the device's own step markers")
    assert steps.number.tolist() == [40, 41, 42]
    assert steps.start_ps.tolist() == [0, 100 * PS, 200 * PS]
    assert steps.end_ps.tolist() == [100 * PS, 200 * PS, 300 * PS]
    # 0 ─ while: dot, all-reduce, own, dot, all-reduce, own ─ 60 ─ done ─ 70 ─ dot ─ 90 ─ idle
    assert summary(found).per_step == StepTimes(
        wall_us=100,
        compute_us=15 + 5 + 15 + 5 + 20,
        communication_us=10 + 10 + 20 - 5,
        exposed_communication_us=10 + 10 + 10,
        copy_us=0,
        exposed_copy_us=0,
        idle_us=10,
        unattributed_us=0,
    )
    table = {op.instruction: (op.count, op.total_us) for op in ops(found).ops}
    assert table == {
        "while.1": (3, 30.0),
        "dot.2": (6, 90.0),
        "all-reduce.3": (6, 60.0),
        "all-gather-start.4": (3, 0.0),  # the core only waits for its done
        "all-gather-done.4": (3, 30.0),
        "dot.6": (3, 60.0),
    }
    if with_program:
        (program,) = summary(found).programs
        assert (program.name, program.executions, program.device_us) == (STEP, 3, 270.0)


def test_what_all_events_of_a_name_share_is_said_once(tmp_path: Path) -> None:
    """A TPU's plane says instruction and program with the name, unless an event says its own."""
    built = space().program(STEP, hlo("jit_step", ["dot.1", "add.2"]))
    built.program("jit_eval(2)", hlo("jit_eval", ["dot.1"], program_id=2))
    tpu = built.tpu()
    tpu.metadata("%x = f32[8] dot(%p)", "x", hlo_op=Ref("dot.1"), program_id=Unsigned(1))
    line = tpu.line("XLA Ops").event("%x = f32[8] dot(%p)", 0, 5, "x")
    line.event("%x = f32[8] dot(%p)", 10, 5, "x", hlo_op=Ref("add.2"))
    line.event("%x = f32[8] dot(%p)", 20, 5, "x", program_id=2)
    found = loaded(built, tmp_path)
    assert texts(found, "instruction") == ["dot.1", "add.2", "dot.1"]
    assert texts(found, "program") == [STEP, STEP, "jit_eval(2)"]


def test_megascale_transfers(tmp_path: Path) -> None:
    """The event is recorded when the transfer ends: it began its duration earlier."""
    built = gpu_space()
    line = built.host().line("MegascaleEM2_Worker/1", 1000)
    ids = {
        "dcn_source_slice_id": 1,
        "dcn_source_per_slice_device_id": 2,
        "dcn_destination_slice_id": 3,
        "dcn_destination_per_slice_device_id": 4,
    }
    line.event("before", 1, 1)
    line.transfer(
        100, 30, dcn_label=Ref("all-reduce.1"), **ids, dcn_chunk=5, dcn_loop_index=6,
        payload_size_bytes=Unsigned(4096),
    )  # fmt: skip
    line.transfer(200, 10, "Send Finished", dcn_label="all-gather.2")
    line.event("MegaScale: Reduction", 300, 7)
    found = loaded(built, tmp_path)
    names = [found.lanes[i].name for i in found.transfers["lane"].tolist()]
    assert names == ["MegascaleEM2_Worker/1"] * 3
    table = found.transfers.to_pandas().drop(columns="lane").to_dict("list")
    assert table == {
        "start_ps": [71 * PS, 191 * PS, 301 * PS],
        "duration_ps": [30 * PS, 10 * PS, 7 * PS],
        "name": [
            "MegaScale: Communication Transport Receive",
            "MegaScale: Send Finished",
            "MegaScale: Reduction",
        ],
        "label": ["all-reduce.1", "all-gather.2", ""],
        "source_slice": [1, 0, 0],
        "source_device": [2, 0, 0],
        "destination_slice": [3, 0, 0],
        "destination_device": [4, 0, 0],
        "chunk": [5, 0, 0],
        "loop_index": [6, 0, 0],
        "bytes": [4096, 0, 0],
        "has_ids": [True, False, False],
    }
    assert [found.host_events.text("name", i) for i in range(len(found.host_events))] == ["before"]
