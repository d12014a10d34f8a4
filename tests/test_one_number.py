"""One quantity has one value: every command and page against sums made here, event by event.

`Plain` counts with numpy alone, from the events, their kinds and the steps. Each recording is read
once, and every analysis runs once on it, as for a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses.test_collectives import two_hosts
from builders import STEP, hlo, space
from nsys_builder import ExportBuilder, export_of
from recorded import DATA
from slipstream.analyses.collectives import known_chip
from slipstream.analyses.diff.diff import diff
from slipstream.diagnosis.diagnose import diagnose
from slipstream.machines.topology import machine
from slipstream.outputs.html.report import report_json, report_page
from slipstream.outputs.html.report_data import Results, results
from slipstream.outputs.html.sections.ops import key_of, ops_data
from slipstream.outputs.json import ops_json, summary_json
from slipstream.outputs.terminal.collectives import collectives_json
from slipstream.outputs.terminal.compiled.predict import prediction_json
from slipstream.outputs.terminal.diagnose import diagnose_json
from slipstream.outputs.terminal.diff import diff_json
from slipstream.outputs.terminal.gaps import gaps_json
from slipstream.outputs.terminal.hosts import hosts_json
from slipstream.outputs.terminal.network import network_json
from slipstream.outputs.terminal.overlap import overlap_json
from slipstream.outputs.terminal.roofline import roofline_json
from slipstream.profile.profile import Profile
from slipstream.profile.semantics.flops import work
from slipstream.profile.semantics.names import phase_of
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY
from slipstream.serve.range_summary import summary as range_summary
from slipstream.serve.scene import Scene, members_of
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load
from sources.test_load import TPU_PROGRAM, tpu_space

Spans = tuple[np.ndarray, np.ndarray]
Key = tuple[str, str]
"""program, and instruction or (without one) kernel"""


# Counted plainly.


def merged(starts: np.ndarray, ends: np.ndarray) -> Spans:
    """The union of intervals."""
    found: list[list[int]] = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    table = np.array(found, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def length(union: Spans, start: int, end: int) -> int:
    """How much of [start, end) a union covers."""
    starts, ends = union
    return int(np.maximum(np.minimum(ends, end) - np.maximum(starts, start), 0).sum())


@dataclass(frozen=True)
class Span:
    """A part of an event in which nothing inside it runs."""

    row: int
    start: int
    end: int


class Plain:
    """The events of a profile, counted one by one."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.events = profile, profile.events
        lanes = self.events["lane"].tolist()
        self.device = [profile.lanes[lane].device for lane in lanes]
        self.kind = profile.event_kinds.tolist()
        self.rows = len(profile.steps)
        # A TPU's cores spend no time in what runs beside them, from its start to its done.
        self.is_window = [profile.lanes[lane].role == "windows" for lane in lanes]

    @cached_property
    def spans(self) -> list[Span]:
        start = self.events["start_ps"]
        end = start + self.events["duration_ps"]
        found = []
        for lane in np.unique(self.events["lane"]).tolist():
            rows = np.flatnonzero(self.events["lane"] == lane).tolist()
            if self.profile.lanes[lane].role != "ops":
                found += [Span(row, int(start[row]), int(end[row])) for row in rows]
                continue
            # At every moment, the innermost operation is the one that began last.
            marks = np.unique([(start[row], end[row]) for row in rows]).tolist()
            for one, two in zip(marks, marks[1:], strict=False):
                inside = [row for row in rows if start[row] <= one and two <= end[row]]
                if inside:
                    row = max(inside, key=lambda row: (start[row], -end[row]))
                    found.append(Span(row, one, two))
        return found

    def union(self, device: int, *kinds: int, bare: bool = False) -> Spans:
        """When a device ran events of these kinds; `bare`: without an instruction."""
        return self._union(device, kinds, bare)

    @cache  # noqa: B019
    def _union(self, device: int, kinds: tuple[int, ...], bare: bool) -> Spans:
        own = [
            span
            for span in self.spans
            if self.device[span.row] == device
            and self.kind[span.row] in kinds
            and not (bare and self.events["instruction"][span.row])
        ]
        return merged(np.array([s.start for s in own]), np.array([s.end for s in own]))

    @cached_property
    def by_step(self) -> list[dict[str, float]]:
        """The kinds of time of each step of each device, in µs."""
        steps = self.profile.steps
        found = []
        for device, start, end in zip(steps.device, steps.start_ps, steps.end_ps, strict=True):

            def taken(*kinds: int, bare: bool = False, at: Any = (device, start, end)) -> float:
                return length(self.union(int(at[0]), *kinds, bare=bare), int(at[1]), int(at[2]))

            compute, busy = taken(COMPUTE), taken(COMPUTE, COMMUNICATION, COPY)
            working = taken(COMPUTE, COMMUNICATION)
            times = {
                "wall": end - start,
                "compute": compute,
                "communication": taken(COMMUNICATION),
                "exposed_communication": working - compute,
                "copy": taken(COPY),
                "exposed_copy": busy - working,
                "idle": end - start - busy,
                "unattributed": taken(COMPUTE, COMMUNICATION, COPY, bare=True),
            }
            found.append({name: float(ps) / 1e6 for name, ps in times.items()})
        return found

    @property
    def median(self) -> dict[str, float]:
        return {
            name: float(np.median([step[name] for step in self.by_step]))
            for name in self.by_step[0]
        }

    @property
    def mean(self) -> dict[str, float]:
        return {
            name: float(np.mean([step[name] for step in self.by_step])) for name in self.by_step[0]
        }

    def is_counted(self, row: int) -> bool:
        """Whether an event starts in a step."""
        steps = self.profile.steps
        at = int(self.events["start_ps"][row])
        own = steps.device == self.device[row]
        return bool((own & (steps.start_ps <= at) & (at < steps.end_ps)).any())

    def key(self, row: int) -> Key:
        program, instruction, name = (
            self.events.text(column, row) for column in ("program", "instruction", "name")
        )
        return program, instruction or name

    @cached_property
    def ops(self) -> dict[Key, float]:
        """Device time of each op, mean over steps and devices."""
        found: dict[Key, float] = defaultdict(float)
        counted = {row: self.is_counted(row) for row in {span.row for span in self.spans}}
        for span in self.spans:
            if counted[span.row]:
                taken = 0 if self.is_window[span.row] else span.end - span.start
                found[self.key(span.row)] += taken / 1e6 / self.rows
        return found

    @cached_property
    def lasted(self) -> dict[Key, float]:
        """Time of each collective and copy, mean over steps and devices."""
        found: dict[Key, float] = defaultdict(float)
        for span in self.spans:
            if self.is_counted(span.row):
                found[self.key(span.row)] += (span.end - span.start) / 1e6 / self.rows
        return found

    @cached_property
    def attending(self) -> set[Key]:
        """Dones of what has a window."""
        found = set()
        for row in range(len(self.events)):
            program, instruction = self.key(row)
            if self.is_window[row]:
                done = self.profile.programs[program].partner(instruction)
                assert done is not None
                found.add((program, done.name))
        return found

    @cached_property
    def exposed(self) -> dict[Key, float]:
        """Exposed time of each collective and copy, mean over steps and devices."""
        found: dict[Key, float] = defaultdict(float)
        hides = {COMMUNICATION: (COMPUTE,), COPY: (COMPUTE, COMMUNICATION)}
        for span in self.spans:
            kind, device = self.kind[span.row], self.device[span.row]
            if kind == COMPUTE or device is None or not self.is_counted(span.row):
                continue
            if self.key(span.row) in self.attending:
                continue
            hidden = length(self.union(device, *hides[kind]), span.start, span.end)
            found[self.key(span.row)] += (span.end - span.start - hidden) / 1e6 / self.rows
        return found


# The recordings.


def one_gpu(folder: Path) -> Profile:
    return load(DATA / "off_lhs_nocb.xplane.pb.gz")


def graphs_and_loops(folder: Path) -> Profile:
    return load(DATA / "single.xplane.pb.gz")


def two_gpus(folder: Path) -> Profile:
    """Uneven steps on two GPUs: kernels that overlap, a collective half hidden, a copy."""
    built = space().versions(jax_version="0.10.2")
    names = ["dot.1", "add.2", "all-reduce.3", "copy-start.4"]
    built.program(STEP, hlo("jit_step", names))
    for device in range(2):
        plane = built.gpu(device)
        main, side = plane.line("Stream #14(Compute)"), plane.line("Stream #15(Compute)")
        talk, copy = plane.line("Stream #20(Communication)"), plane.line("Stream #30(MemcpyD2H)")
        for step in range(4):
            at = 200 * step + device * 11 * step**2
            slow, first = 7 * step + 5 * device, 10 * step + 1
            main.kernel("dot_1", at, 40 + slow, "dot.1", correlation=first)
            side.kernel("add_2", at + 30, 25, "add.2", correlation=first + 1)
            nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
            talk.kernel(nccl, at + 45, 60, "all-reduce.3", correlation=first + 2)
            copy.kernel("MemcpyD2H", at + 100, 30 + slow, "copy-start.4", correlation=first + 3)
    return load(built.write(folder / "two.xplane.pb"))


def two_ranks(folder: Path) -> Profile:
    return two_hosts(late=30.0)


def nsight(folder: Path) -> Profile:
    return load(export_of(load(DATA / "attention_plain.xplane.pb.gz")).write(folder / "a.sqlite"))


def nsight_without_ranges(folder: Path) -> Profile:
    """No steps: the whole recording of two GPUs counts, which are mostly busy with copies."""
    builder = ExportBuilder()
    for device in range(2):
        for number in range(5):
            at = 10**12 + number * 10**6
            common = {"deviceId": device, "globalPid": 1 << 48 | 77 << 24}
            copy = {"start": at, "end": at + 900_000 + device, "streamId": 7}
            copy |= {"copyKind": 1, "bytes": 1 << 20, "srcKind": 1, "dstKind": 2}
            builder.work("MEMCPY", **common, **copy, correlationId=2 * number + 1)
            kernel = {"start": at + 800_000, "end": at + 950_000, "streamId": 8}
            kernel |= {"shortName": builder.string("gemm"), "demangledName": builder.string("gemm")}
            builder.work("KERNEL", **common, **kernel, correlationId=2 * number + 2)
    return load(builder.write(folder / "b.sqlite"))


def tpu(folder: Path) -> Profile:
    return load(tpu_space().program(STEP, TPU_PROGRAM).write(folder / "tpu.xplane.pb"))


RECORDINGS: tuple[Callable[[Path], Profile], ...] = (
    one_gpu,
    graphs_and_loops,
    two_gpus,
    two_ranks,
    nsight,
    nsight_without_ranges,
    tpu,
)


@dataclass(frozen=True)
class Found:
    """A recording, counted plainly and by every analysis."""

    plain: Plain
    results: Results
    said: dict[str, Any]
    """the JSON of each command"""


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda make: make.__name__)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    profile = request.param(tmp_path_factory.mktemp("one"))
    made = results(profile, diagnosis=diagnose(profile))
    assert made.diagnosis is not None
    said = {
        "summary": summary_json(made.summary),
        "ops": ops_json(made.ops),
        "overlap": overlap_json(made.overlap),
        "collectives": collectives_json(made.collectives),
        "gaps": gaps_json(made.gaps),
        "roofline": roofline_json(made.roofline),
        "network": network_json(made.network),
        "hosts": hosts_json(made.hosts),
        "diagnose": diagnose_json(made.diagnosis),
        "report": report_json(made, "report.html", 0),
        "diff": diff_json(diff(profile, profile)),
    }
    return Found(Plain(profile), made, said)


def close(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-6)


# The comparisons.


def test_the_step_and_its_parts_are_medians_over_steps_and_devices(found: Found) -> None:
    said, median = found.said, found.plain.median
    for command in ("summary", "overlap", "gaps"):
        assert said[command]["per_step_us"] == close(median), command
    steps = {
        "summary": said["summary"]["steps"]["median_us"],
        "diff before": said["diff"]["before"]["step_us"],
        "diff after": said["diff"]["after"]["step_us"],
        **{name: said[name]["step_us"] for name in ("roofline", "network", "diagnose", "report")},
    }
    assert steps == close(dict.fromkeys(steps, median["wall"]))
    for part in said["diff"]["parts"]:
        assert (part["before_us"], part["after_us"]) == close((median[part["name"]],) * 2)
    for key in ("exposed_communication_us", "exposed_copy_us"):
        assert said["gaps"][key] == close(median[key.removesuffix("_us")])


def test_every_command_counts_the_same_steps(found: Found) -> None:
    steps = found.plain.profile.steps
    count = 0 if steps.basis == "recording" else len(np.unique(steps.number))
    said = {name: found.said[name]["steps"] for name in found.said if "steps" in found.said[name]}
    said["summary"] = said["summary"]["count"]
    said["diff"] = found.said["diff"]["before"]["steps"]
    assert said == dict.fromkeys(said, count)
    assert len(said) == 9


def test_each_step_and_each_device(found: Found) -> None:
    plain, steps = found.plain, found.plain.profile.steps
    for step, times in zip(found.said["overlap"]["by_step"], plain.by_step, strict=True):
        names = ("wall", "communication", "exposed_communication", "copy", "exposed_copy")
        assert [step[f"{name}_us"] for name in names] == close([times[name] for name in names])
    for device, row in enumerate(found.said["hosts"]["rows"]):
        own = [times for times, at in zip(plain.by_step, steps.device, strict=True) if at == device]
        for key, name in (("step_us", "wall"), ("compute_us", "compute"), ("idle_us", "idle")):
            assert row[key] == close(float(np.median([times[name] for times in own])))


def test_idle_time_by_cause_is_a_mean(found: Found) -> None:
    said, mean = found.said["gaps"], found.plain.mean
    assert (said["wall_us"], said["idle_us"]) == close((mean["wall"], mean["idle"]))
    assert sum(said["by_cause_us"].values()) == close(mean["idle"])


def test_device_time_of_ops_is_a_mean_with_counts_of_the_same_base(found: Found) -> None:
    plain, ops = found.plain, found.results.ops
    times = {key_of(op): op.per_step_us for op in ops.ops}
    assert times == close({key: us for key, us in plain.ops.items() if key in times})
    assert {key for key, us in plain.ops.items() if us} <= times.keys()
    assert ops.total_us == close(sum(plain.ops.values()) * plain.rows)
    for op in ops.ops:
        assert (op.per_step_us, op.per_step_count) == close(
            (op.total_us / plain.rows, op.count / plain.rows)
        )
    assert sum(op.share for op in ops.ops) == close(1.0)
    phases = found.said["summary"]["phases_us"]
    assert sum(phases.values()) == close(sum(times.values()))
    shown = {op["instruction"] for op in found.said["summary"]["top"]}
    assert shown <= {op["instruction"] for op in found.said["ops"]["ops"]}
    page = ops_data(found.results)
    assert [(op["us"], op["count"]) for op in page] == [
        (op.per_step_us, op.per_step_count) for op in ops.ops
    ]
    by_name = {(op.program, op.instruction): op for op in ops.ops}
    for row in found.said["roofline"]["ops"]:
        op = by_name[row["program"], row["instruction"]]
        assert (row["per_step_us"], row["count"]) == (op.per_step_us, op.count)


def test_collectives_and_copies_have_one_time_and_one_exposed_time(found: Found) -> None:
    plain = found.plain
    names = {(op["program"], op["instruction"]): op for op in found.said["overlap"]["ops"]}
    assert {key: op["exposed_us"] for key, op in names.items()} == close(dict(plain.exposed))
    assert {key: op["per_step_us"] for key, op in names.items()} == close(
        {key: plain.lasted[key] for key in names}
    )
    rows = {(row["program"], row["instruction"]): row for row in
            found.said["collectives"]["collectives"]}  # fmt: skip
    talking = {key for key, op in names.items() if op["kind"] == "communication"}
    assert rows.keys() == talking
    for key, row in rows.items():
        assert (row["per_step_us"], row["exposed_us"], row["count"]) == close(
            (plain.lasted[key], plain.exposed[key], names[key]["count"])
        )
    for row in (*names.values(), *rows.values()):
        assert row["per_step_count"] == close(row["count"] / plain.rows)
    page = {key_of(op): data for op, data in
            zip(found.results.ops.ops, ops_data(found.results), strict=True)}  # fmt: skip
    for key, us in plain.exposed.items():
        assert page[key]["exposed"] == close(us)


def test_what_takes_most_of_the_time_is_diagnosed(found: Found) -> None:
    """Copies that keep the devices from computing are never "no problems found"."""
    median, diagnosis = found.plain.median, found.said["diagnose"]
    if median["exposed_copy"] < 0.5 * median["wall"]:
        return
    (finding,) = diagnosis["findings"]
    assert (finding["rule"], finding["gain"]["high_us"]) == (
        "transfers",
        close(median["exposed_copy"]),
    )


def test_the_page_does_not_contradict_itself_about_clocks(found: Found) -> None:
    page = report_page(found.results)
    assert "Clocks agree" not in page and "clocks agree" not in page
    if found.results.collectives.alignment_us is not None:
        assert "Clocks were aligned by the ends of collectives" in page


def test_one_definition_of_mfu(found: Found) -> None:
    """Floating-point operations without recomputation, over the step and the peak."""
    plain, said, profile = found.plain, found.said["roofline"], found.plain.profile
    total = again = 0.0
    for row in said["ops"]:
        program = profile.programs[row["program"]]
        instruction = program.instruction(row["instruction"])
        flops = work(program, program.starter(instruction.name) or instruction).flops
        done = flops * row["count"] / plain.rows
        total += done
        again += done if phase_of(program, instruction) == "remat" else 0.0
    assert (said["flops"], said["remat_flops"]) == close((total, again))
    model = profile.devices[0].model
    hardware = known_chip(model)
    if not total or hardware is None:
        assert said["mfu"] is None
        return
    peak = hardware.peak_flops[said["dtype"]]
    assert said["mfu"] == close((total - again) / peak / (plain.median["wall"] * 1e-6))
    assert said["hfu"] == close(total / peak / (plain.median["wall"] * 1e-6))


def test_the_viewer_sums_over_streams_and_averages_over_devices(found: Found) -> None:
    plain, profile = found.plain, found.plain.profile
    scene = Scene(members_of(["one"], [profile], True))
    (said,) = range_summary(scene, -1e12, 1e12)["members"]
    devices = len(set(plain.device))
    by_kind = {"compute": 0.0, "communication": 0.0, "copy": 0.0}
    ops: dict[str, float] = defaultdict(float)
    for span in plain.spans:
        us = 0 if plain.is_window[span.row] else (span.end - span.start) / 1e6 / devices
        by_kind[list(by_kind)[plain.kind[span.row]]] += us
        ops[plain.key(span.row)[1]] += us
    assert (said["devices"], said["events"]) == (devices, len(profile.events))
    assert said["by_kind"] == close(by_kind)
    for op in said["ops"]:
        assert op["us"] == close(ops[op["name"]])


def test_a_prediction_says_what_its_timeline_says() -> None:
    program = read_program(DATA / "off_default.hlo.gz")
    prediction = predict(program, machine("H200"))
    said = prediction_json([prediction])
    assert prediction.timeline is not None
    made = results(prediction.timeline)
    median = Plain(prediction.timeline).median
    assert said["step_us"] == close(median["wall"])
    names = ("compute", "communication", "exposed_communication", "copy", "exposed_copy", "idle")
    for name in names:
        assert said[f"{name}_us"] == close(median[name])
        assert summary_json(made.summary)["per_step_us"][name] == close(median[name])
    assert said["mfu"] == made.roofline.mfu is not None
