"""A built recording of a TPU: a program that XLA:TPU compiled, with the times of its simulation.

Nothing here was recorded. Names and structure of the program are the compiler's; the file has the
planes, lines and stats of a recording of TPU v6e (`tpu_inference_2.xplane.pb` of
github.com/openxla/xprof), and those of Megascale as in `xplane_schema.cc` there:

    XLA Modules     jit_step(7) ───────────────────────────────────────────
    XLA Ops         while.38 ──────────────────────────────   fusion.9 ────     one inside the other
                      copy-start.4 ▌ fusion.7 ─── copy-done.4 ─
    Async XLA Ops     async-copy ───────────────────────────      stat hlo_op: copy-done.4
    /host:CPU           MegaScale: Communication Transport Receive

What a real recording says once for all events of an instruction is in the event's metadata: its
text, category, program, FLOPs, bytes, op name and source. Its events have times only.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from builders import PS, PlaneBuilder, SpaceBuilder, Unsigned, space
from recorded import DATA
from slipstream.machines.machine import Machine
from slipstream.machines.topology import machine
from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.outputs.xplane_writer import as_hlo_proto
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.descriptions import RENDEZVOUS
from slipstream.profile.semantics.flops import work
from slipstream.simulate.engine import Simulation, simulation
from slipstream.sources.hlo.reader import read_program

PROGRAM_ID = 12_190_760_917_235_803_885
"""beyond what a signed number can hold, as many are"""
STEPS = 3
GAP_US = 150.0
"""between two steps"""
START_US = 1_000.0
ISSUE_PS = 5_000
"""how long a core takes to start what runs beside it, or to see that it has ended"""
MODELS = {"v5e": "TPU v5 Lite", "v5p": "TPU v5p", "v6e": "TPU v6 Lite"}
"""names that the profiler gives to chips; JAX has others"""


@dataclass(frozen=True)
class Ran:
    """One event: what ran, and when, in picoseconds from the start of the step."""

    instruction: str
    start_ps: int
    end_ps: int


@dataclass(frozen=True)
class Built:
    """A compiled program and its simulated step, from which recordings are built."""

    source: Path
    program: Program
    machine: Machine
    step: Simulation

    @classmethod
    def of(cls, name: str, on: str) -> Built:
        path, found = DATA / "tpu" / name, machine(on)
        program = read_program(path)
        return cls(path, program, found, simulation(program, found))

    @property
    def name(self) -> str:
        return f"{self.program.name}({PROGRAM_ID})"

    @cached_property
    def ops(self) -> tuple[Ran, ...]:
        """What the cores did, in order, with loops around what ran inside them."""
        return tuple(self._core.ops)

    @cached_property
    def beside(self) -> tuple[Ran, ...]:
        """What ran asynchronously on the device, each under the name of its start."""
        return tuple(self._core.beside)

    @cached_property
    def transfers(self) -> tuple[Ran, ...]:
        """What was sent to other slices."""
        found = self._lane("async")
        return tuple(x for x in found if is_slice_transfer(self.program.instruction(x.instruction)))

    @cached_property
    def _core(self) -> _Core:
        flat = sorted(self._lane("ops"), key=lambda one: (one.start_ps, one.end_ps))
        return _Core(self.program, flat)

    @cached_property
    def step_us(self) -> float:
        return max(one.end_ps for one in (*self.ops, *self.beside)) / PS

    def write(self, folder: Path, slices: int = 1, devices: int = 1) -> Path:
        """One file per slice, with its first host's recording."""
        for number in range(slices):
            path = folder / f"slice-{number}-host-0.xplane.pb"
            self.recording(number, slices, devices).write(path)
        return folder

    def recording(self, number: int = 0, slices: int = 1, devices: int = 1) -> SpaceBuilder:
        """The recording of the first host of a slice."""
        made = space().environment(1_760_000_000_000_000_000)
        made.note(hostname=f"slice-{number}-host-0")
        data = gzip.decompress(self.source.read_bytes())
        made.program(self.name, as_hlo_proto(data))
        for ordinal in range(devices):
            _Plane(self, made, ordinal).write()
        _Host(self, made).write(number, slices)
        return made

    def _lane(self, role: str) -> Iterator[Ran]:
        profile = self.step.profile
        events = profile.events
        for row in range(len(events)):
            if profile.lanes[int(events["lane"][row])].role == role:
                start, length = (int(events[c][row]) for c in ("start_ps", "duration_ps"))
                yield Ran(events.text("instruction", row), start, start + length)


class _Core:
    """What one core did, walked through in the order of the schedule, loops unrolled.

    The simulation leaves out what takes no time: starts, and dones of what had already arrived. A
    recording has an event for each, and shows what ran beside the core from its start to the end of
    its done.
    """

    def __init__(self, program: Program, flat: list[Ran]) -> None:
        self.program, self.flat = program, flat
        self.taken = self.now_ps = self.late_ps = 0
        self.ops: list[Ran] = []
        self.beside: list[Ran] = []
        self.begun: dict[str, int] = {}
        self._run(program.entry.name)
        left = flat[self.taken :]
        assert not left, f"{left[0].instruction} did not run where the schedule has it"

    def _run(self, computation: str) -> None:
        for instruction in self.program.computations[computation].instructions:
            if instruction.opcode == "while":
                self._loop(instruction)
                continue
            before = self.taken
            while self._next() == instruction.name:
                self._take()
            if before == self.taken and (instruction.is_start or instruction.is_done):
                self._issue(instruction.name)
            if instruction.is_start:
                self.begun[instruction.name] = self.ops[-1].start_ps
            elif instruction.is_done:
                self._ended(instruction)

    def _next(self) -> str:
        return self.flat[self.taken].instruction if self.taken < len(self.flat) else ""

    def _take(self) -> None:
        one = self.flat[self.taken]
        self.taken += 1
        self.now_ps = one.end_ps + self.late_ps
        self.ops.append(Ran(one.instruction, one.start_ps + self.late_ps, self.now_ps))

    def _issue(self, name: str) -> None:
        self.ops.append(Ran(name, self.now_ps, self.now_ps + ISSUE_PS))
        self.now_ps += ISSUE_PS
        self.late_ps += ISSUE_PS

    def _ended(self, done: Instruction) -> None:
        start = self.program.partner(done.name)
        assert start is not None
        if not is_slice_transfer(start):
            self.beside.append(Ran(start.name, self.begun.pop(start.name), self.now_ps))

    def _loop(self, loop: Instruction) -> None:
        assert loop.trip_count is not None
        place = len(self.ops)
        for _ in range(loop.trip_count):
            for called in reversed(loop.called):
                self._run(called)
        self.ops.insert(place, Ran(loop.name, self.ops[place].start_ps, self.now_ps))


class _Plane:
    """The plane of one device."""

    def __init__(self, built: Built, made: SpaceBuilder, ordinal: int) -> None:
        self.built, self.program = built, built.program
        model = MODELS[built.machine.tpu.name]
        self.plane: PlaneBuilder = made.tpu(ordinal, model).stat(
            peak_teraflops_per_second=built.machine.tpu.peak_flops["bf16"] / 1e12,
            has_megacore=int(built.machine.tpu.cores > 1),
            has_merged_vmem=1,
        )
        self.flow = 0

    def write(self) -> None:
        modules, steps, ops, beside, other = (
            self.plane.line(name)
            for name in ("XLA Modules", "Steps", "XLA Ops", "Async XLA Ops", "XLA TraceMe")
        )
        self.plane.line("TC Overlay")
        for step in range(STEPS):
            start = START_US + step * (self.built.step_us + GAP_US)
            modules.event(
                self.built.name, start, self.built.step_us,
                run_id=Unsigned(step + 1), replica_id=0, queue_id=Unsigned(0),
            )  # fmt: skip
            steps.event(str(step), start, self.built.step_us)
            other.event("barrier-cores", start, 3)
            for one in self.built.ops:
                self._op(ops, one, start)
            for one in self.built.beside:
                self._async(beside, one, start)

    def _op(self, line, one: Ran, start: float) -> None:
        at, us = start + one.start_ps / PS, (one.end_ps - one.start_ps) / PS
        name = self._metadata(one.instruction, one.instruction)
        line.event(
            name, at, us, display=one.instruction,
            device_offset_ps=Unsigned(round(at * PS)), device_duration_ps=Unsigned(round(us * PS)),
        )  # fmt: skip

    def _async(self, line, one: Ran, start: float) -> None:
        done = self.program.partner(one.instruction)
        assert done is not None
        kind = self.program.instruction(one.instruction).opcode.removesuffix("-start")
        label = f"async-{kind}"
        self.flow += 1
        line.event(
            self._metadata(one.instruction, label), start + one.start_ps / PS,
            (one.end_ps - one.start_ps) / PS, display=label, hlo_op=done.name, _a=1,
            flow=Unsigned(self.flow), id=Unsigned(0),
        )  # fmt: skip

    def _metadata(self, instruction: str, display: str) -> str:
        """The name of the event's metadata: the text of the instruction."""
        one = self.program.instruction(instruction)
        operands = ", ".join(f"{found.shape} %{found.name}" for found in self.program.operands(one))
        name = f"%{one.name} = {one.shape} {one.opcode}({operands})"
        done = work(self.program, one)
        stats = {"tf_op": f"{one.op_name}:"} if one.op_name else {}
        if one.source_file:
            stats["source"] = f"{one.source_file}:{one.source_line}"
        self.plane.metadata(
            name, display, hlo_category=one.opcode, program_id=Unsigned(PROGRAM_ID),
            symbol_id=Unsigned(one.position), flops=done.flops, model_flops=done.flops,
            bytes_accessed=done.bytes, shape_with_layout=str(one.shape), **stats,
        )  # fmt: skip
        return name


class _Host:
    """The plane of a host: its threads, and what Megascale received from the other slices."""

    def __init__(self, built: Built, made: SpaceBuilder) -> None:
        self.built = built
        self.plane = made.host()

    def write(self, number: int, slices: int) -> None:
        self.plane.line("python").event("PjitFunction(step)", START_US - 200, 150)
        worker = self.plane.line("MegascaleEM2_Worker/1")
        for step in range(STEPS if slices > 1 else 0):
            start = START_US + step * (self.built.step_us + GAP_US)
            rounds: dict[str, int] = {}
            for one in self.built.transfers:
                send = self.built.program.instruction(one.instruction)
                assert send.collective is not None
                rounds[one.instruction] = rounds.get(one.instruction, -1) + 1
                worker.transfer(
                    start + one.end_ps / PS,
                    round((one.end_ps - one.start_ps) / PS),
                    dcn_label=str(send.attributes[RENDEZVOUS]),
                    dcn_source_slice_id=(number + 1) % slices,
                    dcn_source_per_slice_device_id=0,
                    dcn_destination_slice_id=number,
                    dcn_destination_per_slice_device_id=0,
                    dcn_chunk=0,
                    dcn_loop_index=rounds[one.instruction],
                    payload_size_bytes=send.collective.bytes,
                )
