"""A model of NCCL: its algorithms and protocols over links and networks; the fastest is used.

    ring       every GPU passes chunks to the next          S/G per step, G-1 steps (twice: reduce)
    tree       up to a root and down again, host by host    few steps, twice the wire of a ring
    nvls       the switch reduces and multicasts            each GPU sends its data once
    nvlstree   nvls inside a host, a tree between hosts

    µs  │ LL ─── LL128 ──── Simple      latency + steps × hop + bytes on the wire / bandwidth
        │      ╲      ╲                 each protocol trades latency for bandwidth; NCCL chooses
        └────────────── bytes           by size, and so does `nccl_time`

The terms follow NCCL; the parameters (`links.json`) are fitted to published tables by
`benchmarks/collectives.py --fit`, which also prints the error on held-out tables. These tables are
of one and two hosts. With more, network cards share more switches: each doubling of the hosts costs
3.4% of the rate (`crowding` = 0.05). The hosts of all groups count. What it rests on:

    InfiniBand, NCCL's own settings   0.035, 0.05     8 B200 a host, 2 to 46 hosts
    InfiniBand, two queue pairs       0 (−0.02)       8 B200 a host, 2 to 64 hosts
      and adaptive routing
    not stated, 400 Gb/s              0.055           8 H100 a host, 4 to 128 hosts, if 8 GiB
                                      0.075                                          if 16 GiB
    GPUDirect-TCPXO (A3 Mega)         0.02, 0.05      128 of 2,048 H100 against 128 of 128:
                                                      all-gather +5%, reduce-scatter +13%
    RoCE, one queue pair              0.135           8 H100 a host, one figure at 32 hosts

So settings decide more than the kind of network does, and one value is used for all: between those
of InfiniBand (0 to 0.05) and Ethernet (0.02 to 0.135), and near that of H100. There are no figures
for EFA and sockets. At the ends of this range, 64 hosts have rates 19% above or 26% below those
here. The table of 46 hosts and A3 Mega were in view when it was chosen, so neither tests it
(docs/accuracy-collectives.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROTOCOLS = ("Simple", "LL128", "LL")
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
EXCHANGES = ("all-to-all", "ragged-all-to-all")
BROADCASTS = ("collective-broadcast", "broadcast")
TRANSFERS = ("collective-permute", "send", "recv")
KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, *EXCHANGES, *BROADCASTS, *TRANSFERS)

Parameters = Mapping[str, Any]

# Channels, each a thread block that occupies a streaming multiprocessor. As NCCL 2.18 to 2.28 log
# them ("24 coll channels, 16 nvls channels, 32 p2p channels") on hosts with A100 and H100; between
# hosts there are two for each of eight network cards. B200 may use a third more.
CHANNELS = {"ring": 24, "tree": 24, "nvls": 16, "nvlstree": 16, "pairs": 32}
CHANNELS_BETWEEN_HOSTS = 16
# Fewer for small sizes: each thread of a channel is to move some bytes (src/enqueue.cc of NCCL).
CHANNEL_THREADS = 512
THREAD_BYTES = {"Simple": 64, "LL128": 8, "LL": 8}


@dataclass(frozen=True)
class NcclLinks:
    """The links that NCCL uses; rates are in bytes per second, per GPU and direction."""

    family: str
    """key of links.json: `nvlink4`, `pcie`, …"""
    link_bandwidth: float
    network_bandwidth: float
    network_latency_us: float
    has_nvls: bool = True
    """whether the switch between GPUs can reduce"""
    domains: int = 1
    """link domains of the whole machine, whose groups communicate at the same time"""


@dataclass(frozen=True)
class Group:
    """The participants: number of GPUs, and of link domains (hosts, or NVLink racks)."""

    size: int
    domains: int = 1

    @property
    def local(self) -> int:
        return math.ceil(self.size / self.domains)


@dataclass(frozen=True)
class Wire:
    """What an algorithm moves over the links of one GPU, or over its network card."""

    us: float = 0.0
    """how long the busier direction is in use, at the rate that the algorithm reaches"""
    out_bytes: float = 0.0
    in_bytes: float = 0.0


@dataclass(frozen=True)
class Choice:
    """One algorithm and protocol, its time, and what it moves."""

    us: float
    algorithm: str
    protocol: str
    link: Wire = Wire()
    network: Wire = Wire()


@cache
def fitted() -> Parameters:
    """The parameters of links.json."""
    path = Path(__file__).with_name("links.json")
    parameters: Parameters = json.loads(path.read_text(encoding="utf-8"))
    return parameters


def nccl_time(
    kind: str,
    size: int,
    group: Group,
    links: NcclLinks,
    parameters: Parameters | None = None,
    algorithm: str | None = None,
) -> Choice:
    """The fastest choice, or the fastest of one algorithm; `size` as nccl-tests counts it."""
    parameters = parameters or fitted()
    found = list(choices(kind, size, group, links, parameters))
    if algorithm is None:
        nvls = _nvls_terms(kind, group, links, parameters["links"][links.family])
        if group.domains == 1 and nvls is not None and nvls.get("replaces_ring"):
            # Published bandwidths show that NCCL uses it even if a ring would be faster.
            algorithm = "nvls"
    allowed = [c for c in found if algorithm is None or c.algorithm == algorithm]
    return min(allowed or found, key=lambda choice: choice.us)


def choices(
    kind: str, size: int, group: Group, links: NcclLinks, parameters: Parameters
) -> Iterator[Choice]:
    """Every algorithm and protocol that NCCL could use."""
    link = parameters["links"][links.family]
    if kind in TRANSFERS:
        yield _transfer(kind, size, group, links, link, parameters)
    elif kind in EXCHANGES:
        yield _exchange(size, group, links, link, parameters)
    else:
        for protocol in PROTOCOLS:
            yield _ring(kind, size, group, links, parameters, protocol)
        if group.domains == 1:
            yield from _nvls(kind, size, group, links, link)
        elif kind == ALL_REDUCE:
            for protocol in PROTOCOLS:
                yield from _trees(size, group, links, parameters, protocol)


def _ring(
    kind: str,
    size: int,
    group: Group,
    links: NcclLinks,
    parameters: Parameters,
    protocol: str,
) -> Choice:
    link = parameters["links"][links.family]
    terms = link[protocol]
    steps = (group.size - 1) * (2 if kind == ALL_REDUCE else 1)
    # A broadcast sends every chunk around the whole ring; otherwise each GPU starts with one chunk.
    sent = size if kind in BROADCASTS else size * steps / group.size
    copied = size / group.size * link["copies"].get(kind, link["copies"][ALL_GATHER])
    bandwidth = links.link_bandwidth * link["efficiency"] * terms["share"]
    us = terms["latency_us"]
    wire_us = 1e6 * (sent + copied) / bandwidth
    # On the way around, one GPU of each host passes a chunk on over its network card.
    away = sent / group.local if group.domains > 1 else 0.0
    across = Wire()
    if group.domains > 1:
        network = parameters["network"][protocol]
        crossings = steps * group.domains / group.size
        rails = _rails(group, links, parameters, protocol) * parameters["network"]["ring_share"]
        us += network["latency_us"] + crossings * network["hops"] * links.network_latency_us
        us += (steps - crossings) * terms["hop_us"]
        across = Wire(1e6 * sent / rails, away, away)
        wire_us = max(wire_us, across.us)
    else:
        us += steps * terms["hop_us"]
    link_us = 1e6 * (sent - away) / bandwidth
    return Choice(us + wire_us, "ring", protocol, Wire(link_us, sent - away, sent - away), across)


def _nvls(
    kind: str, size: int, group: Group, links: NcclLinks, link: Parameters
) -> Iterator[Choice]:
    terms = _nvls_terms(kind, group, links, link)
    if terms is not None:
        us = _nvls_us(size, group.size, links, terms)
        yield Choice(us, "nvls", "Simple", _nvls_wire(kind, size, group.size, links, terms))


def _nvls_terms(kind: str, group: Group, links: NcclLinks, link: Parameters) -> Parameters | None:
    """Parameters of in-switch reduction, if the hosts support it and NCCL would use it."""
    terms: Parameters | None = link.get("nvls", {}).get(kind) if links.has_nvls else None
    return terms if terms is not None and group.local >= terms["least_group"] else None


def _nvls_wire(kind: str, size: int, count: int, links: NcclLinks, terms: Parameters) -> Wire:
    """The switch reads all data of each GPU, and writes each its part, or all of the result."""
    us = 1e6 * size / terms["efficiency"] / links.link_bandwidth
    part = size / count
    both = kind == ALL_REDUCE
    return Wire(us, size + part * both, part + size * both)


def _nvls_us(size: int, count: int, links: NcclLinks, terms: Parameters) -> float:
    us: float = terms["latency_us"] + terms["hop_us"] * math.log2(count)
    # Below some size NCCL uses fewer channels, so that more bytes may take hardly longer.
    few = min(size, terms["few_channels_bytes"]) / terms["few_channels"]
    us += 1e6 * max(size / terms["efficiency"], few) / links.link_bandwidth
    return us


def _trees(
    size: int, group: Group, links: NcclLinks, parameters: Parameters, protocol: str
) -> Iterator[Choice]:
    link = parameters["links"][links.family]
    network = parameters["network"][protocol]
    rails = _rails(group, links, parameters, protocol)
    # With two hosts each is the root of one half; with more, inner ones send up and to two below.
    sends = 1
    if group.domains > 2:
        sends = 2
        rails *= parameters["network"]["ring_share"]
    crossings = 2 * math.log2(group.domains)
    latency = network["latency_us"] + crossings * network["hops"] * links.network_latency_us
    terms = link[protocol]
    chain = parameters["network"]["chain_sends"] if group.local > 1 else 0
    chain_us = 1e6 * chain * size / (links.link_bandwidth * link["efficiency"] * terms["share"])
    inside = terms["latency_us"] + 2 * (group.local - 1) * terms["hop_us"]
    network_us = 1e6 * sends**2 * size / rails
    across = sends * size / group.local
    # Up and down the chain of a host's GPUs.
    chained = 2 * size if chain else 0
    yield Choice(
        latency + inside + max(chain_us, network_us),
        "tree",
        protocol,
        Wire(chain_us, chained, chained),
        Wire(network_us, across, across),
    )
    nvls = _nvls_terms(ALL_REDUCE, group, links, link)
    if nvls is not None and protocol == "Simple":
        switch_us = _nvls_us(size, group.local, links, nvls) - nvls["latency_us"]
        network_us = 1e6 * sends * size / rails
        us = latency + nvls["latency_us"] + max(switch_us, network_us)
        inside_wire = _nvls_wire(ALL_REDUCE, size, group.local, links, nvls)
        yield Choice(us, "nvlstree", protocol, inside_wire, Wire(network_us, across, across))


def _exchange(
    size: int, group: Group, links: NcclLinks, link: Parameters, parameters: Parameters
) -> Choice:
    """Every GPU sends a part to every other: within the host by link, otherwise by network."""
    terms = link["pairs"]
    bandwidth = links.link_bandwidth * terms["efficiency"]
    us: float = terms["latency_us"] + terms["hop_us"] * (group.size - 1)
    near = size * (group.local - 1) / group.size
    inside, across = Wire(1e6 * near / bandwidth, near, near), Wire()
    if group.domains > 1:
        network = parameters["network"]
        away = size * (group.size - group.local) / group.size
        us += network["Simple"]["hops"] * links.network_latency_us
        rate = links.network_bandwidth * network["pairs_share"]
        across = Wire(1e6 * away / rate, away, away)
    return Choice(us + max(inside.us, across.us), "pairs", "Simple", inside, across)


def _transfer(
    kind: str, size: int, group: Group, links: NcclLinks, link: Parameters, parameters: Parameters
) -> Choice:
    """One GPU to another; small sizes use few channels, so more bytes may take no longer."""
    terms = link["pairs"]
    bandwidth = links.link_bandwidth * terms["efficiency"]
    us: float = terms["latency_us"]
    out_bytes, in_bytes = size * (kind != "recv"), size * (kind != "send")
    if group.domains > 1:
        network = parameters["network"]
        us += network["Simple"]["hops"] * links.network_latency_us
        wire_us = 1e6 * size / (links.network_bandwidth * network["pairs_share"])
        across = Wire(wire_us, out_bytes, in_bytes)
        return Choice(us + wire_us, "pairs", "Simple", network=across)
    few = links.link_bandwidth * terms["few_channels"]
    wire = Wire(1e6 * size / bandwidth, out_bytes, in_bytes)
    few_us = 1e6 * min(size, terms["few_channels_bytes"]) / few
    return Choice(us + max(wire.us, few_us), "pairs", "Simple", wire)


def channels(choice: Choice, size: int, group: Group) -> int:
    """The channels of a collective: it occupies one streaming multiprocessor for each."""
    most = CHANNELS[choice.algorithm]
    if group.domains > 1:
        most = min(most, CHANNELS_BETWEEN_HOSTS)
    return max(1, min(most, size // (CHANNEL_THREADS * THREAD_BYTES[choice.protocol])))


def _rails(group: Group, links: NcclLinks, parameters: Parameters, protocol: str) -> float:
    """The combined bandwidth of a host's network cards, one per participating GPU."""
    network = parameters["network"]
    share: float = network["efficiency"] * network[protocol]["share"]
    share *= (2 / max(2, group.domains, links.domains)) ** network["crowding"]
    return group.local * links.network_bandwidth * share
