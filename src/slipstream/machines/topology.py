"""Machine specs, as in `--on`.

H200                 one GPU                        8xH200       one host of 8
64xH200              8 hosts of 8, the usual number of GPUs per host
4x8xH100             hosts × GPUs                   2x4x8xB200   slices × hosts × GPUs
v5p-128, v5p:4x4x4   a slice of TPUs                2xv5e-256    slices × TPUs of each
cluster.toml         your own, from a file          16xcluster.toml   16 of the same GPUs
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from slipstream.errors import BadInput
from slipstream.machines.files import read_machine
from slipstream.machines.gpus import gpu, usual_network
from slipstream.machines.machine import Machine
from slipstream.machines.tpus import is_slice, tpu_machine
from slipstream.remote.paths import any_path

_SPEC = re.compile(r"^(?P<counts>(?:\d+\s*[x×*]\s*)*)(?P<name>\S.*)$", re.IGNORECASE)
_FORMS = (
    "expected H200, 8xH200, 4x8xH100 (hosts × GPUs), 2x4x8xB200 (slices × hosts × GPUs), "
    "v5p-128 or v5p:4x4x4 (TPUs), or a .toml file"
)
MOST_DEVICES = 1_000_000


@cache
def chip_name(spec: str) -> str:
    """`H100` for `8x8xH100`, `v5e` for `2xv5e-256` and for `v5e-8`."""
    return machine(spec).chip.name


def machine(spec: str) -> Machine:
    """The machine that `spec` describes."""
    text = spec.strip()
    if is_slice(text):
        return tpu_machine(text)
    matched = _SPEC.match(text)
    if matched is None or re.fullmatch(r"[\dx×*\s]+", text):
        raise BadInput(f"{spec!r} names no GPU; {_FORMS}")
    counts = [int(number) for number in re.findall(r"\d+", matched["counts"])]
    if len(counts) > 3:
        raise BadInput(f"{spec!r} has {len(counts)} counts; {_FORMS}")
    if 0 in counts:
        raise BadInput(f"{spec!r} has a count of 0; {_FORMS}")
    base = _described(text, matched["name"], bool(counts))
    found = _counted(base, counts, text)
    if found.devices > MOST_DEVICES:
        raise BadInput(f"{spec!r} has {found.devices:,} GPUs; the limit is {MOST_DEVICES:,}")
    return replace(found, spec=text)


def _described(spec: str, name: str, is_counted: bool) -> Machine:
    """One GPU by name, or the machine in a file."""
    if name.endswith(".toml") or any_path(name).is_file():
        found = read_machine(name)
        if is_counted and found.kind == "tpu":
            raise BadInput(f"{name} has TPUs; write the number of slices in the file")
        return replace(found, slices=1, hosts=1, gpus_per_host=1) if is_counted else found
    if "," in name:
        raise BadInput(f"{spec!r} names several machines; this command takes one")
    model = gpu(name)
    return Machine(spec=name, chip=model, network=usual_network(model.name))


def _counted(base: Machine, counts: list[int], spec: str) -> Machine:
    if not counts:
        return base
    if len(counts) > 1:
        slices, hosts, gpus = ([1] * (3 - len(counts)) + counts)[-3:]
        return replace(base, slices=slices, hosts=hosts, gpus_per_host=gpus)
    count, usual = counts[0], base.gpu.gpus_per_host
    if count <= usual:
        return replace(base, gpus_per_host=count)
    if count % usual:
        raise BadInput(
            f"{spec!r}: a host usually has {usual} {base.gpu.name}, and {count} is not a multiple "
            f"of that; write hosts × GPUs, for example {-(-count // usual)}x{usual}x{base.gpu.name}"
        )
    return replace(base, hosts=count // usual, gpus_per_host=usual)
