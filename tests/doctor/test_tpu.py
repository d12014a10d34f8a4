"""Checks of a machine with TPUs."""

from pathlib import Path

import pytest

from slipstream.doctor.doctor import examine
from slipstream.doctor.machine_facts import MachineFacts, read_machine_facts
from slipstream.outputs.terminal.doctor import render_doctor

PACKAGES = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"}
JOINED = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_COORDINATOR_ADDRESS": "a:8081"}


def codes(environment=None, **fields):
    facts = {"packages": PACKAGES, "tpus": ("v5p",) * 4, "libtpu": "0.0.42.*", **fields}
    found = examine(MachineFacts(**facts, environment=environment or {}))
    return [(finding.code, finding.level) for finding in found]


def test_a_good_machine_has_no_findings():
    assert codes(huge_pages="always") == []
    assert codes(JOINED | {"MEGASCALE_SLICE_ID": "1"}) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"packages": {"jax": "0.10.2", "jaxlib": "0.10.2"}}, [("no-libtpu", "error")]),
        ({"packages": PACKAGES | {"libtpu": "0.0.50.1"}}, [("libtpu-version", "warning")]),
        ({"packages": PACKAGES | {"libtpu": "0.0.50.1"}, "tpus": ()}, []),
        ({"huge_pages": "madvise"}, [("huge-pages", "warning")]),
        ({"huge_pages": "madvise", "tpus": ("v4",)}, []),
        ({"packages": {}}, [("no-jax", "note")]),
    ],
)
def test_the_machine(fields, expected):
    assert codes(**fields) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TPU_PREMAPPED_BUFFER_SIZE": "17179869184"}, []),
        ({"TPU_PREMAPPED_BUFFER_SIZE": "17000000000"}, [("premapped-buffer", "error")]),
        ({"TPU_PREMAPPED_BUFFER_SIZE": "16G"}, [("premapped-buffer", "error")]),
        ({"MEGASCALE_NUM_SLICES": "two"}, [("megascale-slices", "error")]),
        (JOINED | {"MEGASCALE_SLICE_ID": "2"}, [("megascale-slices", "error")]),
        (JOINED, [("megascale-slices", "note")]),
        ({"MEGASCALE_NUM_SLICES": "2"}, [("megascale-slices", "note")] * 2),
        ({"MEGASCALE_COORDINATOR_ADDRESS": "a:8081"}, [("megascale-slices", "warning")]),
        ({"MEGASCALE_NUM_SLICES": "1"}, []),
    ],
)
def test_variables(environment, expected):
    assert codes(environment) == expected


def test_the_chips_on_the_bus(tmp_path: Path):
    bus = tmp_path / "sys" / "bus" / "pci" / "devices"
    for number, (vendor, device) in enumerate(
        [("0x1ae0", "0x0062"), ("0x1ae0", "0x0062"), ("0x1ae0", "0x001f"), ("0x8086", "0x0062")]
    ):
        (bus / str(number)).mkdir(parents=True)
        (bus / str(number) / "vendor").write_text(f"{vendor}\n")
        (bus / str(number) / "device").write_text(f"{device}\n")
    pages = tmp_path / "sys" / "kernel" / "mm" / "transparent_hugepage"
    pages.mkdir(parents=True)
    (pages / "enabled").write_text("always [madvise] never\n")
    facts = read_machine_facts({}, lambda command: None, tmp_path)

    assert (facts.tpus, facts.huge_pages) == (("v5p", "v5p"), "madvise")
    assert str(render_doctor(facts, ())).startswith("2 × TPU v5p · jax ")
    assert read_machine_facts({}, lambda command: None, tmp_path / "none").tpus is None
