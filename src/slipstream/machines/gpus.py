"""The GPUs that Slipstream knows, and the networks that hosts of them usually have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipstream.did_you_mean import did_you_mean, no_such
from slipstream.errors import BadInput
from slipstream.machines.machine import Fabric, Gpu

_EXTRAS = ("aliases", "network", "sources")
"""keys of gpus.json that are not plain fields of `Gpu`"""


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every known GPU, by its usual name."""
    file = _read("gpus.json")
    found = {}
    for name, facts in file["gpus"].items():
        fields = {key: value for key, value in facts.items() if key not in _EXTRAS}
        sources = tuple(file["sources"][key] for key in facts["sources"])
        found[name] = gpu_from({**fields, "name": name, "sources": sources})
    return MappingProxyType(found)


@cache
def networks() -> Mapping[str, Fabric]:
    """Networks by name: `hdr`, `ndr`, `xdr`, `ethernet`, `efa`, `sockets`."""
    named = _read("networks.json")["networks"]
    return MappingProxyType(
        {
            key: Fabric(**{**facts, "sources": tuple(facts["sources"])})
            for key, facts in named.items()
        }
    )


def gpu(name: str) -> Gpu:
    """The GPU called so, or one of its other names; BadInput with the nearest otherwise."""
    names = _names()
    found = names.get(_plain(name))
    if found is None:
        raise BadInput(
            f"there is no GPU {name!r}; {did_you_mean(name, gpus())}choose from: "
            f"{', '.join(gpus())}; or describe your own in a TOML file (docs/machines.md)"
        )
    return gpus()[found]


def network(name: str) -> Fabric:
    """The network called so; BadInput with the nearest otherwise."""
    if name not in networks():
        raise BadInput(no_such("network", name, networks()))
    return networks()[name]


def usual_network(gpu_name: str) -> Fabric:
    """The usual network between hosts with this GPU; InfiniBand NDR for custom GPUs."""
    facts = _read("gpus.json")["gpus"].get(gpu_name)
    return networks()[facts["network"] if facts else "ndr"]


def gpu_from(facts: Mapping[str, Any]) -> Gpu:
    """A GPU from plain data, as in gpus.json or a TOML file."""
    major, minor = facts["compute_capability"]
    return Gpu(**{**facts, "compute_capability": (int(major), int(minor))})


def _names() -> dict[str, str]:
    """Every spelling, reduced to letters and digits, to the GPU's name."""
    found = {}
    for name, facts in _read("gpus.json")["gpus"].items():
        for spelling in (name, facts["full_name"], *facts["aliases"]):
            found[_plain(spelling)] = name
    return found


def _plain(name: str) -> str:
    return "".join(c for c in name.lower().removeprefix("nvidia") if c.isalnum())


@cache
def _read(file: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return data
