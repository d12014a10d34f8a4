"""Machines as people write them."""

from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.machines.topology import machine


@pytest.mark.parametrize(
    ("spec", "topology", "name", "domain"),
    [
        ("H200", "1x1x1", "H200", 1),
        ("8xH200", "1x1x8", "H200", 8),
        ("64xH200", "1x8x8", "H200", 8),
        ("4x8xH100", "1x4x8", "H100", 8),
        ("2x4x8xB200", "2x4x8", "B200", 8),
        ("1x16xH100", "1x1x16", "H100", 16),
        ("72xGB200", "1x18x4", "GB200", 72),
        ("2×8×h100", "1x2x8", "H100", 8),
        ("16xA100-SXM4-80GB", "1x2x8", "A100", 8),
    ],
)
def test_specs(spec: str, topology: str, name: str, domain: int) -> None:
    found = machine(spec)
    assert (found.topology, found.gpu.name, found.link_domain) == (topology, name, domain)
    assert found.spec == spec


def test_hosts_and_linked_sets_are_counted_over_slices() -> None:
    found = machine("2x2x8xH100")
    assert [found.host_of(device) for device in (0, 7, 8, 16, 31)] == [0, 0, 1, 2, 3]
    rack = machine("144xGB200")
    assert [rack.domain_of(device) for device in (0, 71, 72)] == [0, 0, 1]
    assert rack.host_of(71) == 17


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("12xH200", "not a multiple of that; write hosts × GPUs, for example 2x8xH200"),
        ("8xH20", "did you mean H200"),
        ("", "names no GPU; expected H200, 8xH200"),
        ("8x", "names no GPU"),
        ("4x8", "names no GPU"),
        ("0xH100", "count of 0"),
        ("1x2x3x4xH100", "has 4 counts"),
        ("64xH100,2xv5e-256", "'64xH100,2xv5e-256' names several machines; this command takes one"),
        ("9000x9000xH100", "81,000,000 GPUs"),
        (
            "nowhere.toml",
            "can't read nowhere.toml: no such file or directory; expected a machine file; make",
        ),
    ],
)
def test_errors_say_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        machine(spec)
    assert message in str(raised.value)


def test_counts_in_front_of_a_file_replace_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('gpu = "H200"\nhosts = 2\ngpus_per_host = 8\n[network]\ngbps = 200\n')
    assert machine(str(file)).topology == "1x2x8"
    found = machine(f"4x8x{file}")
    assert (found.topology, found.network.bandwidth) == ("1x4x8", 25e9)
