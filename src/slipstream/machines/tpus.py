"""The TPUs that Slipstream knows, and slices of them as people write them.

v5p:4x4x4       JAX's topology: chips along each axis of the torus
v5p-128         Cloud's accelerator type: cores of a v4, v5p or TPU7x, chips of a v5e or v6e
2xv5e-256       slices × either of them
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput
from slipstream.machines.machine import Fabric, Machine, Torus, Tpu

_SLICE = re.compile(
    r"^(?P<counts>(?:\d+\s*[x×*]\s*)*)(?P<name>tpu[ _-]?v?\d\w*|v\d[a-z]*|trillium|ironwood)"
    r"(?:\s*(?P<sign>[:-])\s*(?P<size>.*))?$",
    re.IGNORECASE,
)
_DCN_LATENCY_US = 250.0
_DCN_SOURCE = (
    "data-centre network: 250 µs for a small transfer between hosts is a guess; of 64 MiB per "
    "device on TPU7x, 2.8 ms are not explained by the bandwidth of 1 GiB, dcn/RESULTS.md of "
    "https://github.com/elbertwang/google_support"
)
_SMALL = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}
"""topologies smaller than a cube of 4x4x4, by chips"""
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
"""topologies of v5e and v6e, by chips"""
MOST_SLICES = 1024
_NO_FACTS = ("v2", "v3")


@cache
def tpus() -> Mapping[str, Tpu]:
    """Every known TPU, by JAX's name of it."""
    return MappingProxyType({name: _tpu(name, facts) for name, facts in _facts().items()})


def known_tpu(model: str) -> Tpu | None:
    """The TPU that JAX or its profiler calls so; None if it is not in the catalogue.

    JAX says `TPU v6 lite` and `TPU v5`; profiles say `TPU v6 Lite` and `TPU v5p`.
    """
    wanted = model.casefold()
    for tpu in tpus().values():
        if wanted in (tpu.full_name.casefold(), f"tpu {tpu.name}"):
            return tpu
    return None


def is_slice(spec: str) -> bool:
    """Whether a spec names TPUs: `v5p-8`, `2xv5e:4x4`, and misspelt ones such as `v5x-8`."""
    return _SLICE.match(spec.strip()) is not None


def tpu_machine(spec: str) -> Machine:
    """The slices that `spec` describes."""
    text = spec.strip()
    matched = _SLICE.match(text)
    assert matched is not None, spec
    name = _name(matched["name"], text)
    if not matched["sign"] or not matched["size"]:
        raise BadInput(f"{spec!r} doesn't say how many chips; {_examples(name)}")
    size, sign = matched["size"].lower(), matched["sign"]
    if "," in size:
        raise BadInput(f"{spec!r} names several machines; this command takes one")
    shape = _shape(size, name, text) if sign == ":" else _of_type(size, name, text)
    counts = [int(one) for one in re.findall(r"\d+", matched["counts"])]
    slices = math.prod(counts)
    if len(counts) > 1:
        rest = text[matched.start("name") :]
        raise BadInput(
            f"{spec!r} has {len(counts)} numbers before the TPU; expected one, of slices, such as "
            f"{slices}x{rest}"
        )
    if not 1 <= slices <= MOST_SLICES:
        raise BadInput(f"{spec!r} has {slices} slices; expected 1 to {MOST_SLICES}")
    return _machine(text, name, shape, slices)


def _machine(spec: str, name: str, shape: tuple[int, ...], slices: int) -> Machine:
    tpu, facts = tpus()[name], _facts()[name]
    chips = math.prod(shape)
    per_host = min(chips, math.prod(tpu.host_shape))
    bandwidth = facts["network_bandwidth"] / tpu.devices_per_chip
    return Machine(
        spec=spec,
        chip=tpu,
        network=Fabric("dcn", bandwidth, _DCN_LATENCY_US, (_DCN_SOURCE,)),
        slices=slices,
        hosts=chips // per_host,
        gpus_per_host=per_host * tpu.devices_per_chip,
        torus=Torus(shape, _wraps(shape, facts)),
    )


def _wraps(shape: tuple[int, ...], facts: Mapping[str, Any]) -> tuple[bool, ...]:
    """Along which axes links wrap around.

    v5e, v6e: along a full axis of the pod.  Others: optical switches connect the faces of whole
    cubes, so along all axes or none.
    """
    cube = facts["cube"]
    if len(shape) == 2:
        return tuple(length == cube for length in shape)
    return (all(length % cube == 0 for length in shape),) * len(shape)


# Names and sizes.


def _name(written: str, spec: str) -> str:
    plain = re.sub(r"^tpu[ _-]?(?=v)|[ _]", "", written.lower())
    names = {alias: name for name, facts in _facts().items() for alias in facts["aliases"]}
    names |= {name: name for name in _facts()}
    if plain in _NO_FACTS:
        raise BadInput(
            f"{plain} in {spec!r} is not supported: the bandwidths of its host link and network "
            f"are not known here; choose from: {', '.join(tpus())}"
        )
    if plain not in names:
        raise BadInput(
            f"there is no TPU {written!r} in {spec!r}; {did_you_mean(plain, tpus())}"
            f"choose from: {', '.join(tpus())}; for example v5p:4x4x4 or v5e-256"
        )
    return names[plain]


def _shape(size: str, name: str, spec: str) -> tuple[int, ...]:
    """`4x4x4` as numbers; BadInput if no slice has this shape."""
    axes = len(tpus()[name].host_shape)
    if not re.fullmatch(r"\d+(x\d+)*", size):
        raise BadInput(f"{spec!r} has no shape such as 4x4 after the colon; {_examples(name)}")
    shape = tuple(map(int, size.split("x")))
    if len(shape) != axes:
        raise BadInput(
            f"{spec!r} has {len(shape)} axes, but chips of {name} are linked along {axes}; "
            f"{_examples(name)}"
        )
    if problem := _problem(shape, name):
        raise BadInput(f"there is no slice {spec!r}: {problem}; {_examples(name)}")
    return shape


def _problem(shape: tuple[int, ...], name: str) -> str | None:
    """Why no slice has this shape."""
    facts = _facts()[name]
    host, cube, chips = facts["host"], facts["cube"], math.prod(shape)
    if 0 in shape:
        return "an axis has no chips"
    if chips == 1:
        return None if name in ("v5e", "v6e", "tpu7x") else _less_than_host(1, host)
    if chips < math.prod(host):
        return _less_than_host(chips, host)
    if any(length % own for length, own in zip(shape, host, strict=True)):
        return f"a host has {_text(host)} chips, and {_text(shape)} can't be divided into hosts"
    if chips > facts["pod_chips"]:
        return f"it has {chips:,} chips, and a pod has {facts['pod_chips']:,}"
    if len(shape) == 2 and max(shape) > cube:
        return f"a pod has {cube}x{cube} chips"
    is_in_cube = max(shape) <= cube
    if len(shape) == 3 and not is_in_cube and any(length % cube for length in shape):
        return f"beyond 4x4x4, every axis is a multiple of {cube}"
    return None


def _less_than_host(chips: int, host: list[int]) -> str:
    count = f"{chips} chip" + ("s" if chips > 1 else "")
    return f"{count} {'are' if chips > 1 else 'is'} less than a host, which has {_text(host)}"


def _of_type(size: str, name: str, spec: str) -> tuple[int, ...]:
    """The topology of an accelerator type, such as v5p-128."""
    if re.fullmatch(r"\d+(x\d+)+", size):
        raise BadInput(f"{spec!r}: write a topology with a colon: {name}:{size}")
    if not size.isdigit():
        raise BadInput(f"{spec!r} has no number of {_counted(name)}; {_examples(name)}")
    number = int(size)
    chips, rest = divmod(number, _per_chip(name))
    found = None if rest or not chips else _topology(chips, name)
    if found is None:
        near = min(_sizes(name), key=lambda one: abs(one - number))
        kinds = f"the number of {name} counts {_counted(name)}"
        largest = max(_sizes(name))
        more = f"; for more, several slices: 2x{name}-{largest}" if number > largest else ""
        raise BadInput(f"there is no slice {spec!r}: {kinds}; the nearest is {name}-{near}{more}")
    return found


def _topology(chips: int, name: str) -> tuple[int, ...] | None:
    """The topology that Cloud gives a slice of so many chips; None if it has no such slice."""
    facts = _facts()[name]
    if len(facts["host"]) == 2:
        return _numbers(_FLAT[chips]) if chips in _FLAT else None
    if chips == 1 and name == "tpu7x":
        return (1, 1, 1)
    if chips in _SMALL:
        return _numbers(_SMALL[chips])
    side = facts["cube"]
    cubes, rest = divmod(chips, side**3)
    if rest or chips > facts["pod_chips"]:
        return None
    a, b, c = min(_boxes(cubes), key=sum)
    return a * side, b * side, c * side


def _boxes(count: int) -> Iterator[tuple[int, int, int]]:
    """All a ≤ b ≤ c whose product is `count`."""
    divisors = [one for one in range(1, count + 1) if count % one == 0]
    for a, b in product(divisors, divisors):
        c, rest = divmod(count, a * b)
        if not rest and a <= b <= c:
            yield a, b, c


def _sizes(name: str) -> list[int]:
    """The numbers of all accelerator types of a TPU."""
    facts = _facts()[name]
    if len(facts["host"]) == 2:
        return [*_FLAT]
    cube = facts["cube"] ** 3
    whole = range(cube, facts["pod_chips"] + 1, cube)
    one = (1,) if name == "tpu7x" else ()
    return [chips * _per_chip(name) for chips in (*one, *_SMALL, *whole)]


def _per_chip(name: str) -> int:
    """What a chip adds to the number of an accelerator type."""
    facts = _facts()[name]
    return int(facts["cores"]) if facts["type_counts"] == "cores" else 1


def slices_with(tpu: Tpu, devices: int) -> str:
    """The smallest slice with so many devices, or several of the largest: `v5e-64`, `2xv5e-256`."""
    of_size = {
        number: number // _per_chip(tpu.name) * tpu.devices_per_chip for number in _sizes(tpu.name)
    }
    large = max(of_size)
    if devices > of_size[large]:
        return f"{-(-devices // of_size[large])}x{tpu.name}-{large}"
    return f"{tpu.name}-{min(number for number in of_size if of_size[number] >= devices)}"


def _counted(name: str) -> str:
    return "cores, two a chip" if _facts()[name]["type_counts"] == "cores" else "chips"


def _examples(name: str) -> str:
    if len(tpus()[name].host_shape) == 2:
        return f"expected {name}-256 (chips) or {name}:16x16 (chips along each axis)"
    return f"expected {name}-128 (cores, two a chip) or {name}:4x4x4 (chips along each axis)"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def _text(shape: list[int] | tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


# The data.


def _tpu(name: str, facts: Mapping[str, Any]) -> Tpu:
    share = 1 / facts["devices"]
    return Tpu(
        name=name,
        full_name=facts["full_name"],
        memory_bytes=int(facts["memory_bytes"] * share),
        memory_bandwidth=facts["memory_bandwidth"] * share,
        peak_flops={dtype: peak * share for dtype, peak in facts["peak_flops"].items()},
        cores=facts["cores"] // facts["devices"],
        clock_hz=facts["clock_hz"],
        vmem_bytes=facts["vmem_bytes"] // facts["devices"],
        host_bandwidth=facts["host_bandwidth"] * share,
        ici_bandwidth=facts["link_bandwidth"],
        ici_links=2 * len(facts["host"]),
        ici_share=facts["link_share"],
        ici_hop_us=facts["hop_us"],
        devices_per_chip=facts["devices"],
        host_shape=tuple(facts["host"]),
        sources=tuple(_read()["sources"][key] for key in facts["sources"]),
    )


def _facts() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = _read()["tpus"]
    return found


@cache
def _read() -> dict[str, Any]:
    file = Path(__file__).with_name("tpus.json")
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data
