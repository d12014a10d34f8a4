"""The machine in an Nsight Systems export: processes, devices, threads, clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Device, Host, Lane, ProfileWarning
from slipstream.sources.nsys.tables import Export

WALL_CLOCK_NS = 10**17
"""times beyond this are wall-clock times, not those of the machine's own clock"""
MOST_NOTES = 8
"""messages of the profiler that are passed on"""

_WARNING, _ERROR = 2, 3
_DROPPED = re.compile(r"drop|lost|lose|overflow|buffer|incomplete|not (been )?collected", re.I)
_PAIR = ("name", "value")
_VERSIONS = {"NvDriverVersion": "driver_version", "CudaDriverVersion": "cuda_driver_version"}
_PROPERTIES = {
    "clockRate": "clock_rate",
    "smCount": "core_count",
    "memoryBandwidth": "memory_bandwidth",
    "totalMemory": "memory_size",
    "computeMajor": "compute_cap_major",
    "computeMinor": "compute_cap_minor",
}


@dataclass(frozen=True)
class ProfiledMachine:
    """The machine that was profiled."""

    source: Path
    name: str
    versions: Mapping[str, str]
    base_ns: int
    """where the profile's times begin"""
    start_ns: int | None
    """the wall-clock time then"""
    gpus: Mapping[int, tuple[str, Mapping[str, int | float | str]]]
    """model and properties of each GPU, by its id"""
    visible: Mapping[tuple[int, int], int]
    """id of a GPU, by process and CUDA's device number there"""
    thread_names: Mapping[int, str]
    process_names: Mapping[int, str]

    @classmethod
    def of(cls, export: Export, source: Path, first_ns: int) -> ProfiledMachine:
        said = dict(export.select("TARGET_INFO_SYSTEM_ENV", *_PAIR, of_any_type=_PAIR))
        versions = {ours: str(said[key]) for key, ours in _VERSIONS.items() if said.get(key)}
        about = dict(export.select("META_DATA_EXPORT", *_PAIR, of_any_type=_PAIR))
        if about.get("EXPORT_PRODUCT_VERSION"):
            versions["nsys_version"] = str(about["EXPORT_PRODUCT_VERSION"])
        base_ns, start_ns = _clock(export, first_ns)
        threads = list(export.select("ThreadNames", "globalTid", "nameId"))
        texts = export.strings(np.array([name for _, name in threads if name is not None], int))
        return cls(
            source,
            str(said.get("Hostname") or source.name.partition(".")[0]),
            versions,
            base_ns,
            start_ns,
            _gpus(export),
            _visible(export),
            {thread: texts.get(name, "") for thread, name in threads},
            {
                process: str(name)
                for process, name in export.select(
                    "PROCESSES", "globalPid", "name", of_any_type=("name",)
                )
            },
        )

    def hosts(self, processes: Array) -> tuple[Host, ...]:
        """One host for each process; if there are several, their ids follow the machine's name."""
        ids = processes.tolist()
        alone = len(ids) < 2
        names = [self.name if alone else f"{self.name}/{_pid(process)}" for process in ids]
        made = (Host(name, str(self.source), self.versions, self.start_ns) for name in names)
        return tuple(made) or (Host(self.name, str(self.source), self.versions, self.start_ns),)

    def devices(self, found: Sequence[tuple[int, int]], processes: Array) -> tuple[Device, ...]:
        """The devices of (index of a process, CUDA's device number) pairs."""
        made = []
        for process, ordinal in found:
            gpu = self.visible.get((_pid(int(processes[process])), ordinal), ordinal)
            model, properties = self.gpus.get(gpu, ("", {}))
            made.append(Device(f"GPU:{ordinal}", process, ordinal, "gpu", model, properties))
        return tuple(made)

    def thread_lanes(self, threads: Array, process: Array) -> tuple[Lane, ...]:
        lanes = []
        for thread, host in zip(threads.tolist(), process.tolist(), strict=True):
            name = self.thread_names.get(thread) or "thread"
            lanes.append(Lane(f"{name}/{thread & 0xFFFFFF}", host, None, "thread"))
        return tuple(lanes)


def diagnostics(export: Export, source: Path) -> Iterator[ProfileWarning]:
    """Warnings and errors of the profiler itself."""
    said: dict[str, int] = {}
    rows = export.select("DIAGNOSTIC_EVENT", "severity", "text", of_any_type=("text",))
    for severity, text in rows:
        if severity in (_WARNING, _ERROR) and text:
            said.setdefault(" ".join(str(text).split()), severity)
    for text, severity in list(said.items())[:MOST_NOTES]:
        code = "profiler-error" if severity == _ERROR else "profiler-warning"
        yield ProfileWarning(
            "dropped-events" if _DROPPED.search(text) else code, f"{source.name}: {text}"
        )
    if len(said) > MOST_NOTES:
        yield ProfileWarning(
            "profiler-warning",
            f"{source.name}: Nsight Systems reported {len(said) - MOST_NOTES} more problems; "
            "see the table DIAGNOSTIC_EVENT",
        )


def _pid(process: int) -> int:
    return (process >> 24) & 0xFFFFFF


def _clock(export: Export, first_ns: int) -> tuple[int, int | None]:
    """(where times start, the wall-clock time then)."""
    began = next(export.select("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "systemClockNs"), ())
    wall, own = began if began else (None, None)
    if first_ns > WALL_CLOCK_NS:
        base = wall if wall is not None and wall <= first_ns else first_ns
        return base, base
    if own is None:
        own = next((one for (one,) in export.select("ANALYSIS_DETAILS", "startTime")), None)
    # If the export shifted its times, the session's own clock does not apply.
    base = own if own is not None and 0 <= own <= first_ns else 0
    return base, wall


def _gpus(export: Export) -> dict[int, tuple[str, Mapping[str, int | float | str]]]:
    found: dict[int, tuple[str, Mapping[str, int | float | str]]] = {}
    free = ("name", *_PROPERTIES)
    for number, name, *values in export.select("TARGET_INFO_GPU", "id", *free, of_any_type=free):
        if number is None:
            continue
        stated = zip(_PROPERTIES.values(), values, strict=True)
        properties = {key: value for key, value in stated if isinstance(value, int | float | str)}
        found[number] = (str(name or ""), {"gpu_device_name": str(name or ""), **properties})
    return found


def _visible(export: Export) -> dict[tuple[int, int], int]:
    rows = export.select("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    return {(p, c): g for p, c, g in rows if None not in (p, c, g)}
