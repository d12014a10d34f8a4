"""Machine files in TOML: your own GPUs, network and calibration.

gpu = "H200"                     hosts = 4        gpus_per_host = 8

[gpu]                            instead: properties that override those of `base`
base = "H200"
[network]                        properties that override those of `base` (ndr, hdr, efa, …)
base = "ethernet"
gbps = 200
[[calibration.collectives]]      curves from `slipstream machines calibrate`
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput
from slipstream.machines.collectives import curve_from
from slipstream.machines.gpus import gpu, gpu_from, network, usual_network
from slipstream.machines.machine import Fabric, Gpu, Machine
from slipstream.writing import atomic_write

_KEYS = ("gpu", "slices", "hosts", "gpus_per_host", "network", "calibration")
_NEEDED = ("full_name", "compute_capability", "memory_bytes", "memory_bandwidth", "peak_flops",
           "cores", "clock_hz", "link_bandwidth", "host_bandwidth")  # fmt: skip
NEXT = "see docs/machines.md"


def read_machine(path: str | os.PathLike[str]) -> Machine:
    """The machine that a TOML file describes."""
    file = Path(path)
    data = _load(file)
    _check_keys(data, _KEYS, f"{file}")
    model = _gpu(data.get("gpu"), file)
    counts = {key: _count(data, key, file) for key in ("slices", "hosts", "gpus_per_host")}
    return Machine(
        spec=str(path),
        gpu=model,
        network=_network(data.get("network"), model, file),
        calibration=_calibration(data.get("calibration", {}), file),
        **counts,
    )


def write_machine(path: str | os.PathLike[str], data: Mapping[str, Any], comment: str = "") -> None:
    """Write tables and plain values as TOML, below a comment."""
    import tomli_w

    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    with atomic_write(path) as temporary:
        text = "\n".join([*lines, tomli_w.dumps(data)])
        temporary.write_text(text, encoding="utf-8")


def _load(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(
            f"there is no machine file {str(file)!r}; make one with: "
            "slipstream machines calibrate NCCL_TESTS_OUTPUT --gpu H200 -o my.toml"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"can't read {file} as TOML: {error}; {NEXT}") from None


def _gpu(stated: Any, file: Path) -> Gpu:
    if isinstance(stated, str):
        return gpu(stated)
    if not isinstance(stated, dict):
        raise BadInput(
            f'{file} doesn\'t say which GPU; expected gpu = "H200" or a table [gpu]; {NEXT}'
        )
    facts = dict(stated)
    base = facts.pop("base", None)
    known = tuple(field.name for field in fields(Gpu))
    _check_keys(facts, known, f"[gpu] of {file}")
    if "sources" in facts:
        facts["sources"] = tuple(facts["sources"])
    if base is not None:
        if "compute_capability" in facts:
            facts["compute_capability"] = tuple(facts["compute_capability"])
        return replace(gpu(base), **{"sources": (f"{file}, over {base}",), **facts})
    missing = [key for key in _NEEDED if key not in facts]
    if missing:
        raise BadInput(
            f'[gpu] of {file} lacks {", ".join(missing)}; state them, or base = "H200" and only '
            f"what differs; {NEXT}"
        )
    facts.setdefault("name", facts["full_name"])
    return gpu_from({"sources": (str(file),), **facts})


def _network(stated: Any, model: Gpu, file: Path) -> Fabric:
    if stated is None:
        return usual_network(model.name)
    if isinstance(stated, str):
        stated = {"base": stated}
    facts = dict(stated)
    base = facts.pop("base", None)
    _check_keys(facts, ("name", "bandwidth", "gbps", "latency_us"), f"[network] of {file}")
    if "gbps" in facts:
        facts["bandwidth"] = float(facts.pop("gbps")) * 1e9 / 8
    usual = network(base) if base is not None else usual_network(model.name)
    return replace(usual, **{**facts, "sources": (str(file),)}) if facts else usual


def _calibration(stated: Any, file: Path) -> Mapping[str, object]:
    if isinstance(stated, str):
        stated = _load(file.parent / stated).get("calibration", {})
    if not isinstance(stated, dict):
        raise BadInput(f"calibration of {file} is neither a table nor the name of a file; {NEXT}")
    for number, item in enumerate(stated.get("collectives", ()), 1):
        try:
            curve_from(item)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"curve {number} in calibration.collectives of {file} can't be used ({error}); "
                "expected kind, group, and as many bytes as us"
            ) from None
    return stated


def _count(data: Mapping[str, Any], key: str, file: Path) -> int:
    value = data.get(key, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{key} of {file} is {value!r}; expected a whole number from 1")
    return value


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in data:
        if key not in known:
            raise BadInput(
                f"{place} has the key {key!r}; {did_you_mean(key, known)}known: {', '.join(known)}"
            )
