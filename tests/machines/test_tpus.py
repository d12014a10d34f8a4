"""TPUs, and slices of them as people write them."""

import pytest

from slipstream.errors import BadInput
from slipstream.machines.machine import Torus
from slipstream.machines.topology import machine
from slipstream.machines.tpus import known_tpu, tpus

TYPES = {
    "v4": "8=2x2x1 16=2x2x2 32=2x2x4 64=2x4x4 128=4x4x4 384=4x4x12 1536=8x8x12 4096=8x16x16",
    "v5p": "8=2x2x1 64=2x4x4 128=4x4x4 256=4x4x8 512=4x8x8 640=4x4x20 768=4x8x12 1024=8x8x8 "
        "1152=4x12x12 2304=8x12x12 3072=8x12x16 3456=12x12x12 6144=12x16x16 8192=16x16x16 "
        "9216=12x16x24 10240=16x16x20 10368=12x12x36 12288=16x16x24 17920=16x20x28",
    "v5e": "1=1x1 16=4x4 32=4x8 64=8x8 128=8x16 256=16x16",
    "v6e": "4=2x2 8=2x4 256=16x16",
    "tpu7x": "2=1x1x1 8=2x2x1 128=4x4x4 768=4x8x12",
}  # fmt: skip
"""topologies by number, as in MaxText's accelerator_to_spec_map.py"""
PAIRS = [
    (f"{name}-{number}", shape)
    for name, sizes in TYPES.items()
    for number, _, shape in (one.partition("=") for one in sizes.split())
]


@pytest.mark.parametrize(("spec", "shape"), PAIRS)
def test_an_accelerator_type_is_a_topology(spec: str, shape: str) -> None:
    found = machine(spec)

    assert found.topology == f"{spec.partition('-')[0]}:{shape}"
    assert found.devices == machine(found.topology).devices
    assert found.spec == spec


@pytest.mark.parametrize(
    ("spec", "topology", "devices", "hosts", "per_host"),
    [
        ("v5p:4x4x4", "v5p:4x4x4", 64, 16, 4),
        ("v5p-128", "v5p:4x4x4", 64, 16, 4),
        ("v5litepod-256", "v5e:16x16", 256, 64, 4),
        ("2xv5e-256", "2xv5e:16x16", 512, 64, 4),
        ("32 × V5E:16x16", "32xv5e:16x16", 8192, 64, 4),
        ("trillium-256", "v6e:16x16", 256, 64, 4),
        ("tpu-v5p-8", "v5p:2x2x1", 4, 1, 4),
        ("tpu7x:2x2x1", "tpu7x:2x2x1", 8, 1, 8),
        ("v5e:1x1", "v5e:1x1", 1, 1, 1),
        ("v5p:4X4X4", "v5p:4x4x4", 64, 16, 4),
    ],
)
def test_specs(spec: str, topology: str, devices: int, hosts: int, per_host: int) -> None:
    found = machine(spec)

    assert (found.topology, found.devices) == (topology, devices)
    assert (found.hosts, found.gpus_per_host, found.kind) == (hosts, per_host, "tpu")
    assert found.link_domain * found.slices == found.devices


@pytest.mark.parametrize(
    ("spec", "wraps"),
    [
        ("v5e:16x16", (True, True)),
        ("v6e:8x16", (False, True)),
        ("v5e:8x8", (False, False)),
        ("v5p:4x4x4", (True, True, True)),
        ("v5p:8x4x4", (True, True, True)),
        ("v5p:2x4x4", (False, False, False)),
    ],
)
def test_full_axes_and_whole_cubes_wrap_around(spec: str, wraps: tuple[bool, ...]) -> None:
    shape = tuple(map(int, spec.partition(":")[2].split("x")))
    assert machine(spec).torus == Torus(shape, wraps)


def test_slices_are_linked_by_the_network_of_their_hosts() -> None:
    found = machine("2xv5e-256")

    assert [found.domain_of(device) for device in (0, 255, 256)] == [0, 0, 1]
    assert found.host_network_bandwidth == 12.5e9  # 200 Gb/s for 8 chips
    assert machine("v5p-8").host_network_bandwidth == 25e9
    assert machine("tpu7x-8").host_network_bandwidth == 50e9


def test_a_chip_of_two_devices_is_divided() -> None:
    half = tpus()["tpu7x"]

    assert half.peak_flops["bf16"] == 2307e12 / 2
    assert (half.cores, half.devices_per_chip, half.link_bandwidth) == (1, 2, 600e9)
    assert all(tpu.sources for tpu in tpus().values())


def test_clocks_are_those_of_the_peaks() -> None:
    """Operations in a cycle are whole matrix units: 128 × 128 × 2 of each, or four times that."""
    for tpu in tpus().values():
        units = tpu.peak_flops["bf16"] / tpu.clock_hz / (2 * 128 * 128)
        assert units == pytest.approx(round(units / 4) * 4, rel=2e-3), tpu.name


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("v5x-8", "there is no TPU 'v5x' in 'v5x-8'; did you mean v5p? choose from: v4, v5e"),
        ("v9:2x2", "there is no TPU 'v9'"),
        ("v2:2x2", "v2 in 'v2:2x2' is not supported: the bandwidths of its host link and network"),
        ("TPU v3-8", "v3 in 'TPU v3-8' is not supported"),
        ("v5e", "doesn't say how many chips; expected v5e-256 (chips) or v5e:16x16"),
        ("v5p:1x1x1", "1 chip is less than a host, which has 2x2x1; expected v5p-128 (cores"),
        ("v5e:1x2", "2 chips are less than a host, which has 2x2"),
        ("v5e:3x4", "a host has 2x2 chips, and 3x4 can't be divided into hosts"),
        ("v5e:32x32", "it has 1,024 chips, and a pod has 256"),
        ("v5e:32x8", "a pod has 16x16 chips"),
        ("v5p:2x2x16", "beyond 4x4x4, every axis is a multiple of 4"),
        ("v5p:16x16x64", "it has 16,384 chips, and a pod has 8,960"),
        ("v5p:0x2x2", "an axis has no chips"),
        ("v6e:4x4x4", "has 3 axes, but chips of v6e are linked along 2"),
        ("v5p:4by4", "has no shape such as 4x4 after the colon"),
        ("v5p-100", "the number of v5p counts cores, two a chip; the nearest is v5p-128"),
        ("v5p-7", "the nearest is v5p-8"),
        (
            "v5e-512",
            "counts chips; the nearest is v5e-256; for more, several slices: 2xv5e-256",
        ),
        ("tpu7x-3", "the nearest is tpu7x-2"),
        ("2x2xv5e-4", "has 2 numbers before the TPU; expected one, of slices, such as 4xv5e-4"),
        ("v5x - 8", "there is no TPU 'v5x'"),
        ("v5e-4,v6e-4", "names several machines; this command takes one"),
        ("v4-4x4x4", "write a topology with a colon: v4:4x4x4"),
        ("v4-many", "has no number of cores, two a chip"),
        ("0xv5e-16", "has 0 slices; expected 1 to 1024"),
    ],
)
def test_errors_say_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        machine(spec)
    assert message in str(raised.value)


def test_gpus_keep_their_names() -> None:
    for spec in ("8x", "4x8", "V100", "8xV100-32"):
        with pytest.raises(BadInput, match="GPU"):
            machine(spec)


def test_what_only_one_kind_has_is_asked_of_it() -> None:
    with pytest.raises(BadInput, match="v5p-8 has TPUs"):
        _ = machine("v5p-8").gpu
    with pytest.raises(BadInput, match="8xH200 has GPUs"):
        _ = machine("8xH200").tpu
    assert machine("v5p-8").at(0.5).tpu.peak_flops["bf16"] == 459e12 / 2


def test_tpus_are_known_by_the_names_of_jax_and_of_its_profiler() -> None:
    names = ["TPU v6 lite", "TPU v6 Lite", "TPU v5", "TPU v5p", "TPU v5 Lite", "TPU v4", "TPU7x"]
    found = [known_tpu(name) for name in names]
    assert [tpu and tpu.name for tpu in found] == [
        "v6e", "v6e", "v5p", "v5p", "v5e", "v4", "tpu7x",
    ]  # fmt: skip
    assert known_tpu("TPU") is None
