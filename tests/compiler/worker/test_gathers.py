"""What devices receive where an array in pieces is stated to be whole: counted by hand."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from slipstream.compiler.worker.gathers import Gather, received_bytes


@dataclass(frozen=True)
class Axes:
    """A mesh of devices that need not exist."""

    shape: dict

    @property
    def axis_names(self):
        return tuple(self.shape)

    @property
    def devices(self):
        count = int(np.prod(list(self.shape.values())))
        devices = [SimpleNamespace(id=number) for number in range(count)]
        return np.array(devices, object).reshape(*self.shape.values())


@dataclass(frozen=True)
class Sharding:
    mesh: Axes
    spec: P
    memory_kind: str = "device"

    def shard_shape(self, shape):
        ways = np.ones(len(shape), int)
        for place, axes in enumerate(self.spec):
            for axis in (axes,) if isinstance(axes, str) else axes or ():
                ways[place] *= self.mesh.shape[axis]
        return tuple(np.array(shape) // ways)


MESH = Axes({"data": 2, "fsdp": 4, "one": 1, "tensor": 2})
CUT = P("fsdp", "tensor")
KB = 64 * 8 * 2
"""bytes of the whole array: 64 × 8 of bfloat16"""


def received(before, after, mesh=MESH, domain=8, **more):
    gather = Gather((64, 8), 16, Sharding(mesh, before), Sharding(mesh, after), **more)
    return received_bytes([gather], domain)


@pytest.mark.parametrize(
    ("domain", "network"),
    [
        # The four devices of a group, for each of two tensor ranks, are in one domain.
        (8, 0),
        (16, 0),
        # Two devices of each of two groups: the other two have the other half of each.
        (4, 2 * (4 - 2) * KB // 8),
        # The devices of a domain are in two groups.
        (2, 2 * (4 - 1) * KB // 8),
        (1, 3 * KB // 8),
    ],
)
def test_a_weight_that_is_gathered(domain, network):
    assert received(CUT, P(None, "tensor"), domain=domain) == (3 * KB // 8, network)


def test_every_group_gathers_by_itself():
    """Copies of a weight on one host are gathered as often as there are copies."""
    mesh = Axes({"fsdp": 2, "context": 4})
    assert received(P("fsdp"), P(), mesh=mesh, domain=4) == (KB // 2, 4 * KB // 2)


def test_loops_and_several_axes():
    assert received(CUT, P(None, "tensor"), times=10) == (10 * 3 * KB // 8, 0)
    assert received(P(("tensor", "fsdp")), P("tensor")) == (3 * KB // 8, 0)
    assert received(P(("fsdp", "one")), P()) == (3 * KB // 4, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CUT, CUT),
        (P(), CUT),
        (P("fsdp"), P("tensor")),
        (P(("fsdp", "tensor")), P("tensor")),
        (P("fsdp"), P(P.UNCONSTRAINED)),
    ],
)
def test_what_is_no_gather_counts_nothing(before, after):
    assert received(before, after, domain=1) == (0, 0)


def test_other_memory_and_abstract_meshes_count_nothing():
    there = Sharding(MESH, CUT, "pinned_host")
    abstract = Sharding(SimpleNamespace(shape=MESH.shape), CUT)
    gathers = [Gather((64, 8), 16, one, Sharding(MESH, P())) for one in (there, abstract)]
    assert received_bytes(gathers, 1) == (0, 0)
