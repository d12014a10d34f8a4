"""GPUs and networks: facts that hang together, found by any of their names."""

import pytest

from slipstream.errors import BadInput
from slipstream.machines.gpus import gpu, gpus, networks, usual_network


def test_every_gpu_that_the_issue_names_is_there() -> None:
    assert list(gpus()) == [
        "A100-40", "A100", "A100-PCIe", "H100-PCIe", "H100", "H200", "B200", "GB200",
    ]  # fmt: skip


@pytest.mark.parametrize("name", gpus())
def test_facts_are_plausible_and_sourced(name: str) -> None:
    found = gpus()[name]
    assert found.name == name
    assert found.sources and all(" " in source for source in found.sources)
    assert any("https://" in source for source in found.sources)
    # Tensor cores: twice the rate at half the width; memory at 1 to 10 TB/s.
    assert found.peak_flops["bf16"] == found.peak_flops["f16"]
    assert found.peak_flops["bf16"] == pytest.approx(2 * found.peak_flops["tf32"], rel=0.01)
    assert 40e9 < found.memory_bytes < 200e9
    assert 1e12 < found.memory_bandwidth < 10e12
    assert found.link_bandwidth >= found.host_bandwidth
    assert found.link in ("nvlink", "nvswitch", "pcie")
    assert usual_network(name).bandwidth in (25e9, 50e9)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("H100", "H100"),
        ("h100-sxm", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("A100", "A100"),
        ("A100-80", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("A100-PCIE-80", "A100-PCIe"),
        ("GB200-NVL72", "GB200"),
    ],
)
def test_other_spellings(spelling: str, name: str) -> None:
    assert gpu(spelling).name == name


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no GPU 'H2000'; did you mean H200\? choose from: A"):
        gpu("H2000")


def test_networks_have_a_source() -> None:
    assert "ndr" in networks() and "sockets" in networks()
    assert all(network.sources for network in networks().values())
