"""Machine files in TOML: your own GPUs, network and calibration.

gpu = "H200"                     hosts = 4        gpus_per_host = 8

[gpu]                            instead: properties that override those of `base`
base = "H200"
[network]                        properties that override those of `base` (ndr, hdr, efa, …)
base = "ethernet"
gbps = 200
values = "made up"               what programs work on, of power.activity

tpu = "2xv5e-256"                slices of TPUs instead
[network]                        between the slices
host_gbps = 50                   of a host, in one direction
latency_us = 2000
[[calibration.collectives]]      curves from `slipstream machines calibrate`
[[calibration.calls]]            custom calls that it measured, by name and operand shapes
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput
from slipstream.machines.collectives import curve_from
from slipstream.machines.gpus import gpu, gpu_from, network, usual_network
from slipstream.machines.machine import Fabric, Gpu, Machine
from slipstream.machines.measured_calls import MeasuredCall, call_from, rows_of
from slipstream.machines.power import activity, kinds_of_values, static_w
from slipstream.machines.tpus import is_slice, tpu_machine
from slipstream.reading import DAMAGE, describe, read_input
from slipstream.remote.paths import any_path
from slipstream.writing import atomic_write

_KEYS = ("gpu", "slices", "hosts", "gpus_per_host", "network", "values", "calibration")
_NEEDED = ("full_name", "compute_capability", "memory_bytes", "memory_bandwidth", "peak_flops",
           "cores", "clock_hz", "link_bandwidth", "host_bandwidth")  # fmt: skip
NEXT = "see docs/machines.md"
_LARGEST = 1e24


class _Type(NamedTuple):
    """What a value must be."""

    expected: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= _LARGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value) and value >= 0


_POSITIVE = _Type("a number above 0", lambda v: _is_number(v) and v > 0)
_COUNT = _Type("a whole number from 0", _is_count)
_TEXT = _Type("a text", lambda v: isinstance(v, str))
_GPU_TYPES = {
    **dict.fromkeys(("name", "full_name", "link"), _TEXT),
    **dict.fromkeys(
        ("memory_bytes", "memory_bandwidth", "cores", "clock_hz", "link_bandwidth",
         "host_bandwidth", "gpus_per_host", "power_w", "static_w", "peak_clock_hz"),
        _POSITIVE,
    ),
    **dict.fromkeys(("l2_bytes", "link_domain"), _COUNT),
    "sources": _Type("a list of texts", lambda v: isinstance(v, list) and all(map(_TEXT.holds, v))),
    "compute_capability": _Type(
        "two numbers, [9, 0]", lambda v: isinstance(v, list) and [*map(_is_count, v)] == [True] * 2
    ),
    "peak_flops": _Type(
        "a table of numbers by type, bf16 = 9.9e14",
        lambda v: isinstance(v, dict) and all(map(_POSITIVE.holds, v.values())),
    ),
}  # fmt: skip
_NETWORK_TYPES = {
    "base": _TEXT, "name": _TEXT, "bandwidth": _POSITIVE, "gbps": _POSITIVE,
    "latency_us": _POSITIVE, "host_gbps": _POSITIVE,
}  # fmt: skip


def read_machine(path: str | os.PathLike[str]) -> Machine:
    """The machine that a TOML file describes."""
    file = any_path(path)
    data = _load(file)
    if "tpu" in data:
        return _tpu_machine(data, file)
    _check_keys(data, _KEYS, f"{file}")
    model = _gpu(data.get("gpu"), file)
    return Machine(
        spec=str(path),
        chip=model,
        network=_network(data.get("network"), model, file),
        slices=_count(data, "slices", file),
        hosts=_count(data, "hosts", file),
        gpus_per_host=_count(data, "gpus_per_host", file),
        calibration=_calibration(data.get("calibration", {}), file),
        activity=_activity(data.get("values", "random"), file),
    )


def _activity(values: object, file: Path) -> float:
    """The energy of the values that the program works on."""
    known = kinds_of_values()
    if values not in known:
        raise BadInput(f"values of {file} is {values!r:.60}; expected one of {', '.join(known)}")
    return activity(str(values))


def _tpu_machine(data: Mapping[str, Any], file: Path) -> Machine:
    """Slices of TPUs with another network between them."""
    _check_keys(data, ("tpu", "network"), f"{file}")
    spec, stated = data["tpu"], data.get("network", {})
    if not isinstance(spec, str) or not is_slice(spec):
        raise BadInput(
            f'tpu of {file} is {spec!r:.60}; expected slices such as "2xv5e-256"; {NEXT}'
        )
    if not isinstance(stated, dict):
        raise BadInput(f"network of {file} is {stated!r:.60}; expected a table; {NEXT}")
    place = f"[network] of {file}"
    _check_keys(stated, ("host_gbps", "latency_us"), place)
    _check_types(stated, _NETWORK_TYPES, place)
    found = tpu_machine(spec)
    facts: dict[str, Any] = {key: stated[key] for key in ("latency_us",) if key in stated}
    if "host_gbps" in stated:
        facts["bandwidth"] = stated["host_gbps"] * 1e9 / 8 / found.gpus_per_host
    network = replace(found.network, **facts, sources=(str(file),)) if facts else found.network
    return replace(found, spec=str(file), network=network)


def with_calls(path: str | os.PathLike[str], calls: Iterable[MeasuredCall]) -> dict[str, Any]:
    """The data of an existing machine file, with measured calls added to its calibration."""
    file = any_path(path)
    read_machine(file)  # its own errors, before anything is written
    data = _load(file)
    calibration = data.get("calibration", {})
    if isinstance(calibration, str):
        raise BadInput(
            f"{file} takes its calibration from {calibration}; add the calls to that file: "
            f"-o {file.parent / calibration}"
        )
    known = [call_from(row) for row in calibration.get("calls", [])]
    return {**data, "calibration": {**calibration, "calls": rows_of(calls, known)}}


def write_machine(path: str | os.PathLike[str], data: Mapping[str, Any], comment: str = "") -> None:
    """Write tables and plain values as TOML, below a comment."""
    import tomli_w

    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    with atomic_write(path) as temporary:
        text = "\n".join([*lines, tomli_w.dumps(data)])
        temporary.write_text(text, encoding="utf-8")


def _load(file: Path) -> dict[str, Any]:
    data = read_input(
        file,
        "a machine file; make one with: "
        "slipstream machines calibrate NCCL_TESTS_OUTPUT --gpu H200 -o my.toml",
    )
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"can't read {file} as TOML: {describe(error)}; {NEXT}") from None


def _gpu(stated: Any, file: Path) -> Gpu:
    if isinstance(stated, str):
        return gpu(stated)
    if not isinstance(stated, dict):
        raise BadInput(
            f'{file} doesn\'t say which GPU; expected gpu = "H200" or a table [gpu]; {NEXT}'
        )
    facts = dict(stated)
    base = facts.pop("base", None)
    if base is not None and not isinstance(base, str):
        raise BadInput(f"base in [gpu] of {file} is {base!r:.60}; expected the name of a GPU")
    known = tuple(field.name for field in fields(Gpu))
    _check_keys(facts, known, f"[gpu] of {file}")
    _check_types(facts, _GPU_TYPES, f"[gpu] of {file}")
    if "sources" in facts:
        facts["sources"] = tuple(facts["sources"])
    if base is not None:
        known_gpu = gpu(base)
        if "compute_capability" in facts:
            facts["compute_capability"] = tuple(facts["compute_capability"])
        if "peak_flops" in facts:
            facts["peak_flops"] = {**known_gpu.peak_flops, **facts["peak_flops"]}
        if "power_w" in facts:  # the same chip with another cap
            facts.setdefault("static_w", static_w(known_gpu))
        return replace(known_gpu, **{"sources": (f"{file}, over {base}",), **facts})
    missing = [key for key in _NEEDED if key not in facts]
    if missing:
        raise BadInput(
            f'[gpu] of {file} lacks {", ".join(missing)}; state them, or base = "H200" and only '
            f"what differs; {NEXT}"
        )
    if "f32" not in facts["peak_flops"]:
        raise BadInput(f"peak_flops in [gpu] of {file} lacks f32, which stands for other types")
    facts.setdefault("name", facts["full_name"])
    return gpu_from({"sources": (str(file),), **facts})


def _network(stated: Any, model: Gpu, file: Path) -> Fabric:
    if stated is None:
        return usual_network(model.name)
    if isinstance(stated, str):
        stated = {"base": stated}
    if not isinstance(stated, dict):
        raise BadInput(f"network of {file} is {stated!r:.60}; expected a name or a table; {NEXT}")
    facts = dict(stated)
    _check_types(facts, _NETWORK_TYPES, f"[network] of {file}")
    base = facts.pop("base", None)
    _check_keys(facts, ("name", "bandwidth", "gbps", "latency_us"), f"[network] of {file}")
    if "gbps" in facts:
        facts["bandwidth"] = facts.pop("gbps") * 1e9 / 8
    usual = network(base) if base is not None else usual_network(model.name)
    return replace(usual, **{**facts, "sources": (str(file),)}) if facts else usual


def _calibration(stated: Any, file: Path) -> Mapping[str, object]:
    if isinstance(stated, str):
        stated = _load(file.parent / stated).get("calibration", {})
    if not isinstance(stated, dict):
        raise BadInput(f"calibration of {file} is neither a table nor the name of a file; {NEXT}")
    curves, kernels = stated.get("collectives", []), stated.get("kernels", {})
    scales = kernels.get("scales", {}) if isinstance(kernels, dict) else None
    if not isinstance(curves, list) or not isinstance(scales, dict):
        raise BadInput(f"calibration of {file} has no curves or scales where expected; {NEXT}")
    _check_types(scales, dict.fromkeys(scales, _POSITIVE), f"calibration.kernels.scales of {file}")
    _check_calls(stated.get("calls", []), file)
    for number, item in enumerate(curves, 1):
        try:
            curve_from(item)
        except DAMAGE as error:
            raise BadInput(
                f"curve {number} in calibration.collectives of {file} can't be used "
                f"({describe(error)}); "
                "expected kind, group, and as many bytes as us"
            ) from None
    return stated


def _check_calls(rows: Any, file: Path) -> None:
    if not isinstance(rows, list):
        raise BadInput(f"calibration.calls of {file} is no list of calls; {NEXT}")
    for number, row in enumerate(rows, 1):
        try:
            call_from(row)
        except DAMAGE as error:
            raise BadInput(
                f"call {number} in calibration.calls of {file} can't be used "
                f"({describe(error)}); expected name, operands and us"
            ) from None


def _count(data: Mapping[str, Any], key: str, file: Path) -> int:
    value = data.get(key, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{key} of {file} is {value!r}; expected a whole number from 1")
    return value


def _check_types(data: Mapping[str, Any], types: Mapping[str, _Type], place: str) -> None:
    for key, value in data.items():
        if key in types and not types[key].holds(value):
            raise BadInput(f"{key} in {place} is {value!r:.60}; expected {types[key].expected}")


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in data:
        if key not in known:
            raise BadInput(
                f"{place} has the key {key!r}; {did_you_mean(key, known)}known: {', '.join(known)}"
            )
