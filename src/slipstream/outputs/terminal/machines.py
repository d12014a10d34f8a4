"""`slipstream machines` as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.machines.collectives import CollectiveCurve, CollectiveSample, MachineOverview
from slipstream.machines.machine import Fabric, Gpu, Machine, Tpu
from slipstream.machines.measured_calls import MeasuredCall, rows_of
from slipstream.outputs.formatting import plural, time_text
from slipstream.outputs.terminal.layout import TextColumn, paragraph, table, wrap
from slipstream.units import format_bytes

LINKS = {"nvswitch": "NVSwitch, NVLS", "nvlink": "NVLink", "pcie": "PCIe"}


def list_json(
    gpus: Mapping[str, Gpu], tpus: Mapping[str, Tpu], networks: Mapping[str, Fabric]
) -> dict[str, Any]:
    """What `machines list --json` prints."""
    return {
        "gpus": [asdict(gpu) for gpu in gpus.values()],
        "tpus": [asdict(tpu) for tpu in tpus.values()],
        "networks": [{"key": key, **asdict(network)} for key, network in networks.items()],
    }


def overview_json(found: MachineOverview) -> dict[str, Any]:
    """What `machines show --json` prints."""
    machine = found.machine
    return {
        "spec": machine.spec,
        "slices": machine.slices,
        "hosts": machine.hosts,
        "gpus_per_host": machine.gpus_per_host,
        "devices": machine.devices,
        "topology": machine.topology,
        "link_domain": machine.link_domain,
        machine.kind: asdict(machine.chip),
        "torus": asdict(machine.torus) if machine.torus is not None else None,
        "network": asdict(machine.network),
        "calibrated": [str(key) for key in machine.calibration],
        "collectives": [
            {
                "kind": sample.kind,
                "group": sample.group,
                "bytes": sample.bytes,
                "us": sample.estimate.us,
                "basis": sample.estimate.basis,
                "why": sample.estimate.why,
            }
            for sample in found.samples
        ],
    }


def calibration_json(
    curves: Sequence[CollectiveCurve],
    kernels: Mapping[str, float],
    path: str,
    calls: Sequence[MeasuredCall] = (),
) -> dict[str, Any]:
    """What `machines calibrate --json` prints."""
    return {
        "file": path,
        "kernels": dict(kernels),
        "calls": rows_of(calls),
        "collectives": [
            {
                "kind": curve.kind,
                "group": curve.group.size,
                "hosts": curve.group.domains,
                "bytes": list(curve.bytes),
                "us": list(curve.us),
                "source": curve.source,
            }
            for curve in curves
        ],
    }


def render_list(
    gpus: Mapping[str, Gpu],
    tpus: Mapping[str, Tpu],
    networks: Mapping[str, Fabric],
    width: int = 80,
) -> Text:
    """All known GPUs, TPUs and networks."""
    rows = [
        [
            gpu.name,
            format_bytes(gpu.memory_bytes),
            f"{gpu.memory_bandwidth / 1e12:.1f}",
            f"{gpu.peak_flops['bf16'] / 1e12:.0f}",
            f"{gpu.peak_flops['f8'] / 1e12:.0f}" if "f8" in gpu.peak_flops else "–",
            f"{gpu.link_bandwidth / 1e9:.0f}",
            f"{gpu.host_bandwidth / 1e9:.0f}",
            LINKS.get(gpu.link, gpu.link),
        ]
        for gpu in gpus.values()
    ]
    lines = [*table(_chip_columns("GPU"), rows, width), "", *_tpu_lines(tpus, width), ""]
    network_rows = [
        [key, network.name, f"{network.bandwidth / 1e9:g}", f"{network.latency_us:g}"]
        for key, network in networks.items()
    ]
    network_columns = (
        TextColumn("network"),
        TextColumn("kind"),
        TextColumn("GB/s per GPU", right=True),
        TextColumn("latency, µs", right=True),
    )
    lines += [*table(network_columns, network_rows, width), ""]
    lines += paragraph(
        "Peaks, dense, one direction. A machine is 8xH200, 4x8xH100 (hosts × GPUs), "
        "2x4x8xB200 (slices × hosts × GPUs), v5p-128 or v5p:4x4x4 (TPUs), 2xv5e-256 (slices × "
        "TPUs) or a .toml file of your own.",
        width,
    )
    return Text("\n".join(lines))


def _chip_columns(kind: str) -> tuple[TextColumn, ...]:
    return (
        TextColumn(kind),
        TextColumn("memory", right=True),
        TextColumn("TB/s", right=True),
        TextColumn("bf16, T", right=True),
        TextColumn("f8, T", right=True),
        TextColumn("link GB/s", right=True),
        TextColumn("host GB/s", right=True),
        TextColumn("link", min_width=6),
    )


def _tpu_lines(tpus: Mapping[str, Tpu], width: int) -> list[str]:
    """All known TPUs; figures are of a chip."""
    rows = [
        [
            tpu.name,
            format_bytes(tpu.memory_bytes * tpu.devices_per_chip),
            f"{tpu.memory_bandwidth * tpu.devices_per_chip / 1e12:.1f}",
            f"{tpu.peak_flops['bf16'] * tpu.devices_per_chip / 1e12:.0f}",
            f"{tpu.peak_flops['f8'] * tpu.devices_per_chip / 1e12:.0f}"
            if "f8" in tpu.peak_flops
            else "–",
            f"{tpu.link_bandwidth / 1e9:.0f}",
            f"{tpu.host_bandwidth * tpu.devices_per_chip / 1e9:.0f}",
            f"ICI, {tpu.ici_links} links",
        ]
        for tpu in tpus.values()
    ]
    return table(_chip_columns("TPU"), rows, width)


def render_overview(found: MachineOverview, width: int = 80) -> Text:
    """One machine: its facts, their sources, and times of collectives."""
    machine = found.machine
    lines = wrap(_counts(machine), width) + [""]
    for label, text in _facts(machine):
        lines += paragraph(text, width, f"{label:<10}", " " * 10)
    if found.samples:
        lines += ["", *_sample_lines(found.samples, width)]
    lines.append("")
    for source in (*machine.chip.sources, *machine.network.sources):
        lines += paragraph(source, width, "source    ", " " * 10)
    return Text("\n".join(lines))


def _facts(machine: Machine) -> list[tuple[str, str]]:
    chip, network = machine.chip, machine.network
    facts = [
        ("memory", f"{format_bytes(chip.memory_bytes)}, {chip.memory_bandwidth / 1e12:.2f} TB/s"),
        ("peak", _peaks(chip)),
        ("cores", f"{chip.cores}, {chip.clock_hz / 1e9:.2f} GHz"),
    ]
    host = f"{chip.host_bandwidth / 1e9:.0f} GB/s each way"
    if isinstance(chip, Tpu):
        return [
            *facts,
            ("vmem", format_bytes(chip.vmem_bytes)),
            ("link", f"ICI, {chip.ici_links} links of {chip.ici_bandwidth / 1e9:.0f} GB/s each "
                     f"way{_shared(chip)}, {_torus(machine)}"),
            ("host", f"{host}; {machine.gpus_per_host} devices a host"),
            ("network", f"{network.name}, {machine.host_network_bandwidth * 8 / 1e9:g} Gb/s per "
                        f"host, each way, {network.latency_us:g} µs"),
        ]  # fmt: skip
    return [
        *facts,
        ("power", f"{chip.power_w:,.0f} W at most" if chip.power_w else "unknown"),
        ("link", f"{LINKS.get(chip.link, chip.link)}, {chip.link_bandwidth / 1e9:.0f} GB/s each way"
                 + (f", connects {chip.link_domain} GPUs" if chip.link_domain else "")),
        ("host", host),
        ("network", f"{network.name}, {network.bandwidth / 1e9:g} GB/s per GPU, each way, "
                    f"{network.latency_us:g} µs"),
        ("measured", _calibrated(machine)),
    ]  # fmt: skip


def _shared(tpu: Tpu) -> str:
    return f" for {tpu.devices_per_chip} devices" if tpu.devices_per_chip > 1 else ""


def _torus(machine: Machine) -> str:
    """`torus 8x16 that wraps around along 16`."""
    assert machine.torus is not None
    wrapping = [
        str(length)
        for length, wraps in zip(machine.torus.shape, machine.torus.wraps, strict=True)
        if wraps
    ]
    if not wrapping:
        return f"mesh {machine.torus} that doesn't wrap around"
    along = "" if all(machine.torus.wraps) else f" that wraps around along {', '.join(wrapping)}"
    return f"torus {machine.torus}{along}"


def calibrated_lines(
    curves: Iterable[CollectiveCurve],
    kernels: Mapping[str, float],
    path: str,
    calls: Iterable[MeasuredCall] = (),
) -> list[str]:
    """What was measured, and the file written."""
    lines = []
    for curve in curves:
        hosts = f" in {curve.group.domains} hosts" if curve.group.domains > 1 else ""
        span = format_bytes(curve.bytes[0])
        if len(curve.bytes) > 1:
            span += f" to {format_bytes(curve.bytes[-1])}"
        lines.append(
            f"{curve.kind} · {curve.group.size} GPUs{hosts} · "
            f"{plural(len(curve.bytes), 'size')}, {span}"
        )
    for kind, factor in sorted(kernels.items()):
        lines.append(f"{kind} kernels · {factor:.2f} × the model")
    for call in calls:
        lines.append(f"{call.name} · {', '.join(call.operands)} · {time_text(call.us)}")
    return [*lines, f"wrote {path}", f"see it: slipstream machines show {path}"]


def _counts(machine: Machine) -> list[str]:
    parts = [f"{machine.spec}: {machine.devices} × {machine.chip.full_name}"]
    if machine.slices > 1:
        parts.append(plural(machine.slices, "slice"))
    parts.append(plural(machine.slices * machine.hosts, "host"))
    parts.append(f"topology {machine.topology}")
    if isinstance(machine.chip, Tpu):
        return parts
    return [*parts, f"compute capability {'.'.join(map(str, machine.chip.compute_capability))}"]


def _peaks(chip: Gpu | Tpu) -> str:
    stated = [f"{kind} {flops / 1e12:.0f}" for kind, flops in chip.peak_flops.items()]
    return ", ".join(stated) + " TFLOP/s"


def _calibrated(machine: Machine) -> str:
    curves, kernels = (machine.calibration.get(key) for key in ("collectives", "kernels"))
    parts = []
    if isinstance(curves, Sequence) and curves:
        parts.append(plural(len(curves), "curve") + " of collectives")
    if isinstance(kernels, Mapping) and kernels.get("scales"):
        parts.append(f"kernels ({', '.join(kernels['scales'])})")
    if isinstance(calls := machine.calibration.get("calls"), Sequence) and calls:
        parts.append(plural(len(calls), "custom call"))
    nothing = "nothing, models only; to calibrate: slipstream machines calibrate"
    return ", ".join(parts) or nothing


def _sample_lines(samples: Sequence[CollectiveSample], width: int) -> list[str]:
    sizes = list(dict.fromkeys(sample.bytes for sample in samples))
    by_row: dict[tuple[int, str], dict[int, CollectiveSample]] = {}
    for sample in samples:
        by_row.setdefault((sample.group, sample.kind), {})[sample.bytes] = sample
    rows = []
    for (group, kind), of_size in by_row.items():
        last = of_size[sizes[-1]]
        times = [time_text(of_size[size].estimate.us) for size in sizes]
        rate = f"{last.bytes / last.estimate.us / 1e3:.0f}"
        rows.append([str(group), kind, *times, rate, last.estimate.basis])
    columns = (
        TextColumn("GPUs", right=True),
        TextColumn("collective", min_width=12),
        *(TextColumn(format_bytes(size), right=True) for size in sizes),
        TextColumn("GB/s", right=True),
        TextColumn("basis"),
    )
    return table(columns, rows, width)
