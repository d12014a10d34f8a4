"""`--compare-layouts`: is the job's step faster with one process per GPU or one for all of them?

    round 1   one process  ·  one per device
    round 2   one per device  ·  one process      … short runs, alternating

Each run starts the job, times some steps, and ends it.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.experiment.receipt import Receipt, bare_receipt, change_json
from slipstream.experiment.stats import Comparison, compare, round_order
from slipstream.outputs.terminal.receipt import verdict_text
from slipstream.run.agent.request import LAYOUT
from slipstream.run.context import (
    Context,
    RunResult,
    Say,
    agent_problem,
    how_far,
    signal_name,
    write_receipt,
)
from slipstream.run.launcher import Job, job_environment, stop_all
from slipstream.run.preflight import Preflight, check_job
from slipstream.run.run_dir import LAYOUTS, REQUEST, STATUS, done_facts, read_json
from slipstream.run.settings import Settings
from slipstream.writing import open_private

LONGEST_RUN_S = 1800.0
GRACE_S = 1.0
"""for a timed run to end by itself"""
VIRTUAL = "xla_force_host_platform_device_count"
_POLL_S = 0.05


@dataclass(frozen=True)
class Layout:
    """How many processes share the devices."""

    name: str
    processes: int


@dataclass(frozen=True)
class Devices:
    """The devices to share out."""

    count: int
    is_virtual: bool = False
    """CPU devices that XLA_FLAGS asks for"""

    def variables(self, processes: int, base: Mapping[str, str]) -> dict[str, str]:
        """Each process creates its own virtual devices."""
        if not self.is_virtual:
            return {}
        each = f"--{VIRTUAL}={self.count // processes}"
        return {"XLA_FLAGS": re.sub(rf"--{VIRTUAL}=\d+", each, base.get("XLA_FLAGS", ""))}

    def of_process(self, process: int, processes: int) -> list[int] | None:
        if self.is_virtual:
            return None
        each = self.count // processes
        return list(range(process * each, (process + 1) * each))


class LayoutRunFailed(Exception):
    """A run without a time; its arguments are the reason and the job's exit code."""


def run_layouts(settings: Settings, say: Say) -> RunResult:
    """Time both layouts, alternating."""
    context = Context(settings, say)
    preflight = check_job(settings)
    devices = devices_here(preflight, os.environ)
    layouts = (Layout("one process", 1), Layout("one process per device", devices.count))
    context.phase_facts["check"] = {"jaxlib": preflight.jaxlib, "gpus": list(preflight.gpus)}
    kind = "virtual CPU devices" if devices.is_virtual else f"× {preflight.gpus[0]}"
    context.say("check", f"{devices.count} {kind} · {settings.rounds} rounds of two short runs")
    for warning in preflight.warnings:
        context.warn(warning)
    with context.run_dir.open(context.warn):
        context.run_dir.clear(context.run_dir.folder / LAYOUTS)
        return _Rounds(context, preflight, devices, layouts).run()


def devices_here(preflight: Preflight, base: Mapping[str, str]) -> Devices:
    """BadInput if there are fewer than two devices."""
    virtual = re.search(rf"--{VIRTUAL}=(\d+)", base.get("XLA_FLAGS", ""))
    if virtual and base.get("JAX_PLATFORMS", "cpu") == "cpu" and int(virtual[1]) > 1:
        return Devices(int(virtual[1]), is_virtual=True)
    visible = base.get("CUDA_VISIBLE_DEVICES")
    count = len(preflight.gpus)
    if visible is not None:
        count = min(count, len([one for one in visible.split(",") if one.strip()]))
    if count > 1:
        return Devices(count)
    have = f"one GPU ({preflight.gpus[0]})" if count == 1 else "no GPU that the job would see"
    raise BadInput(
        f"--compare-layouts needs several GPUs, and this machine has {have}; to try it on a "
        f"CPU: JAX_PLATFORMS=cpu XLA_FLAGS=--{VIRTUAL}=2 slipstream run --compare-layouts …"
    )


class _Rounds:
    """All runs, and their receipt."""

    def __init__(
        self, context: Context, preflight: Preflight, devices: Devices, layouts: tuple[Layout, ...]
    ) -> None:
        self.context = context
        self.preflight = preflight
        self.devices = devices
        self.layouts = layouts
        self.times_s: dict[str, list[float]] = {layout.name: [] for layout in layouts}
        self.facts: dict[str, dict[str, Any]] = {}

    def run(self) -> RunResult:
        code, problem = 0, None
        try:
            for number in range(self.context.settings.rounds):
                for layout in round_order(self.layouts, number):
                    self.context.say("compare…", f"round {number + 1}: {layout.name}")
                    self.times_s[layout.name].append(self._time(layout, number))
        except LayoutRunFailed as failed:
            problem, code = failed.args
        receipt = self._receipt(problem)
        timed = " + ".join(str(len(times)) for times in self.times_s.values())
        names = ", ".join(layout.name for layout in self.layouts)
        self.context.say("compare", f"{timed} runs, alternating: {names}")
        self.context.say("verdict", verdict_text(receipt.to_json()))
        write_receipt(receipt, self.context.run_dir.folder)
        return RunResult(code, receipt)

    def _time(self, layout: Layout, number: int) -> float:
        """Seconds per step in one run, of its slowest process."""
        folder = self.context.run_dir.folder / LAYOUTS / f"round{number}-{layout.processes}"
        coordinator = f"localhost:{_free_port()}"
        jobs: list[Job] = []
        with ExitStack() as stack:
            stack.callback(stop_all, jobs, GRACE_S)
            ranks = [folder / f"rank{process}" for process in range(layout.processes)]
            for process, rank in enumerate(ranks):
                rank.mkdir(parents=True)
                place = {
                    "coordinator": coordinator,
                    "processes": layout.processes,
                    "process": process,
                    "devices": self.devices.of_process(process, layout.processes),
                }
                log = stack.enter_context(open_private(rank / "log.txt"))
                jobs.append(self._start(layout, rank, place, log))
            return self._await(layout, jobs, ranks)

    def _start(self, layout: Layout, rank: Path, place: Mapping[str, Any], log: Any) -> Job:
        settings = self.context.settings
        request = self.context.write_request(LAYOUT, rank, layout=place)
        base = {**os.environ, **self.preflight.environment}
        more = {**self.preflight.environment, **self.devices.variables(layout.processes, base)}
        environment = job_environment(os.environ, request, more)
        return Job(settings.command, environment, log, log, ends_with_us=True)

    def _await(self, layout: Layout, jobs: list[Job], ranks: list[Path]) -> float:
        end = time.monotonic() + LONGEST_RUN_S
        while not all(found := [done_facts(rank) for rank in ranks]):
            codes = [job.poll() for job in jobs]
            for code, rank in zip(codes, ranks, strict=True):
                if code is not None and done_facts(rank) is None:
                    raise LayoutRunFailed(self._why(layout, rank, code), code)
                if not (rank / REQUEST).exists():
                    why = (
                        f"{layout.name}: the time could not be written to {rank}; is the disk full?"
                    )
                    raise LayoutRunFailed(why, 1)
            if time.monotonic() > end:
                raise LayoutRunFailed(
                    f"{layout.name}: no step was timed in {LONGEST_RUN_S:.0f} s", 1
                )
            time.sleep(_POLL_S)
        facts = [one for one in found if one is not None]
        for one in facts:
            if one["processes"] != layout.processes:
                raise LayoutRunFailed(
                    f"{layout.name}: the job runs as {one['processes']} process, not as "
                    f"{layout.processes}; it has to call jax.distributed.initialize()", 1
                )  # fmt: skip
        self.facts[layout.name] = facts[0]
        return max(float(one["step_s"]) for one in facts)

    def _why(self, layout: Layout, rank: Path, code: int) -> str:
        status = read_json(rank / STATUS) or {}
        ended = f"was ended by {signal_name(code)}" if code > 128 else f"ended with code {code}"
        command = self.context.settings.command
        why = agent_problem(rank) or status.get("why") or how_far(rank, command)
        return (
            f"{layout.name}: the job {ended} before its steps were timed: {why}; see {rank}/log.txt"
        )

    def _receipt(self, problem: str | None) -> Receipt:
        before, after = (self.times_s[layout.name] for layout in self.layouts)
        found = compare(before, after)
        contents = {facts["content"] for facts in self.facts.values()}
        if problem is None and len(contents) > 1:
            problem = "the layouts run different programs, so their steps can't be compared"
        verdict, why = (found.verdict, found.why) if problem is None else ("can't tell", problem)
        bare = bare_receipt(why, verdict)
        has_times = bool(before and after)
        return replace(
            bare,
            chosen=self.layouts[1 if verdict == "faster" else 0].name,
            step_us={
                "before": found.before_us if has_times else None,
                "after": found.after_us if has_times else None,
            },
            change=change_json(found) if has_times and problem is None else None,
            pgle={"applied": None, "why": "not tried: --compare-layouts compares layouts only"},
            arms=tuple(self._arm(layout, found) for layout in self.layouts),
            program={"name": next((f["program"] for f in self.facts.values()), None)},
            devices=tuple(next((f["devices"] for f in self.facts.values()), ())),
            repeat={**bare.repeat, **self.context.settings.repeat()},
            notes=(*bare.notes, *self.context.notes),
            phases={**self.context.phase_facts, "layouts": dict(self.times_s)},
        )

    def _arm(self, layout: Layout, found: Comparison) -> dict[str, Any]:
        times = sorted(self.times_s[layout.name])
        content = self.facts.get(layout.name, {}).get("content")
        is_second = layout is self.layouts[1]
        return {
            "name": layout.name, "flags": {}, "uses_costs": False, "processes": layout.processes,
            "fingerprint": None, "content": content, "same_program_as": None, "error": None,
            "memory_bytes": None, "rounds": len(times),
            "step_us": times[len(times) // 2] * 1e6 if times else None,
            "comparison": asdict(found) if is_second and times else None,
        }  # fmt: skip


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return int(server.getsockname()[1])
