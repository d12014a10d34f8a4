"""Machine files: read, written, and refused with a reason."""

import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import BadInput
from slipstream.machines.files import read_machine, write_machine
from slipstream.machines.gpus import gpu
from slipstream.machines.power import activity, static_w
from slipstream.machines.topology import machine

NEW = """
gpus_per_host = 4
network = "efa"
[gpu]
full_name = "Mine 1000"
compute_capability = [9, 0]
memory_bytes = 100_000_000_000
memory_bandwidth = 3e12
peak_flops = {bf16 = 1e15, f32 = 6e13}
cores = 100
clock_hz = 1.5e9
link_bandwidth = 200e9
host_bandwidth = 32e9
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_gpu_by_name(tmp_path: Path) -> None:
    found = read_machine(written(tmp_path, 'gpu = "H200"\nhosts = 2\ngpus_per_host = 8\n'))
    assert (found.gpu.name, found.devices, found.network.name) == ("H200", 16, "infiniband")
    assert found.calibration == {}


def test_the_values_that_programs_work_on(tmp_path: Path) -> None:
    found = read_machine(written(tmp_path, 'gpu = "H200"\nvalues = "made up"\n'))
    assert found.activity == activity("made up") < 1
    assert read_machine(written(tmp_path, 'gpu = "H200"\n')).activity == 1


def test_facts_over_those_of_a_known_gpu(tmp_path: Path) -> None:
    text = '[gpu]\nbase = "H200"\nname = "H200-cut"\nmemory_bytes = 70_000_000_000\n'
    found = read_machine(written(tmp_path, text + '[network]\nbase = "ethernet"\nlatency_us = 5\n'))
    assert (found.gpu.name, found.gpu.memory_bytes) == ("H200-cut", 70_000_000_000)
    assert found.gpu.cores == 132
    faster = read_machine(written(tmp_path, '[gpu]\nbase = "H200"\npeak_flops = {bf16 = 1e15}\n'))
    assert faster.gpu.peak_flops == {**found.gpu.peak_flops, "bf16": 1e15}
    assert (found.network.name, found.network.latency_us) == ("ethernet", 5)
    assert "mine.toml" in found.gpu.sources[0]


def test_another_power_cap(tmp_path: Path) -> None:
    """The chip is the same, and so is what it draws without work."""
    found = read_machine(written(tmp_path, '[gpu]\nbase = "H200"\npower_w = 500\n')).gpu
    known = gpu("H200")
    assert (found.power_w, static_w(found)) == (500, static_w(known))
    assert found.peak_clock_hz == known.peak_clock_hz
    own = read_machine(written(tmp_path, f"{NEW}power_w = 450\npeak_clock_hz = 1.2e9\n")).gpu
    assert own.at(1.0).peak_flops == {"bf16": 1.25e15, "f32": 6e13}
    assert static_w(own) / own.power_w == pytest.approx(static_w(known) / known.power_w)


def test_a_gpu_of_ones_own(tmp_path: Path) -> None:
    found = read_machine(written(tmp_path, NEW))
    assert found.gpu.power_w == 0  # not known
    assert (found.gpu.name, found.gpu.compute_capability) == ("Mine 1000", (9, 0))
    assert (found.network.name, found.gpus_per_host) == ("efa", 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "doesn't say which GPU"),
        ("gpu = ", "as TOML"),
        ('gpu = "H9"', "no GPU 'H9'"),
        ('gpu = "H200"\nhost = 2', "the key 'host'; did you mean hosts? known: gpu"),
        ('gpu = "H200"\nhosts = 0', "expected a whole number from 1"),
        ("[gpu]\ncores = 3", "lacks full_name, compute_capability"),
        ('[gpu]\nbase = "H200"\nmemory_byte = 3', "did you mean memory_bytes?"),
        ('gpu = "H200"\nnetwork = "ndrr"', "there is no network 'ndrr'; did you mean ndr?"),
        ('[gpu]\nbase = "H200"\ncores = "many"', "cores in [gpu] of"),
        ('[gpu]\nbase = "H200"\npower_w = "500 W"', "expected a number above 0"),
        ('[gpu]\nbase = "H200"\npeak_clock_hz = 0', "expected a number above 0"),
        ('[gpu]\nbase = "H200"\npeak_flops = {bf16 = -1}', "expected a table of numbers by type"),
        (NEW.replace(", f32 = 6e13", ""), "lacks f32, which stands for other types"),
        ('gpu = "H200"\nvalues = "zeros"', "expected one of random, made up, equal tokens"),
        ('gpu = "H200"\nnetwork = 3', "expected a name or a table"),
        ("gpu = " + "[" * 100_000, "as TOML: nesting that is too deep"),
        ("[gpu]\nbase = 3", "base in [gpu] of"),
        ('[gpu]\nbase = ["H200"]', "expected the name of a GPU"),
        ('gpu = "H200"\n[network]\ngbps = nan', "expected a number above 0"),
        ('gpu = "H200"\n[calibration.kernels.scales]\ngemm = "x"', "expected a number above 0"),
        ('gpu = "H200"\ncalibration = 3', "neither a table nor the name of a file"),
        (
            'gpu = "H200"\n[[calibration.collectives]]\nkind = "all-gather"\ngroup = 8\n'
            "bytes = [1, 2]\nus = [1.0]",
            "curve 1 in calibration.collectives",
        ),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_machine(written(tmp_path, text))
    assert message in str(raised.value)


def test_calibration_in_a_file_beside_it(tmp_path: Path) -> None:
    curve = {"kind": "all-gather", "group": 8, "bytes": [1024], "us": [9.5]}
    write_machine(tmp_path / "measured.toml", {"calibration": {"collectives": [curve]}})
    text = 'gpu = "H200"\ncalibration = "measured.toml"\n'
    assert read_machine(written(tmp_path, text)).calibration == {"collectives": [curve]}


PLAIN = st.one_of(
    st.integers(-(2**62), 2**62),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.lists(st.integers(0, 9)),
)
KEYS = st.text("abc_", min_size=1, max_size=3)
TABLE = st.dictionaries(KEYS, PLAIN, min_size=1)


@given(st.dictionaries(KEYS, st.one_of(PLAIN, TABLE, st.lists(TABLE, min_size=1))))
def test_what_is_written_is_read_again(data: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "machine.toml"
        write_machine(file, data, "two\nlines")
        assert file.read_text().startswith("# two\n# lines\n")
        assert tomllib.loads(file.read_text()) == data


def test_slices_of_tpus_with_another_network(tmp_path: Path) -> None:
    file = tmp_path / "slices.toml"
    file.write_text('tpu = "2xv5e-256"\n[network]\nhost_gbps = 50\nlatency_us = 2000\n')
    found = machine(str(file))
    assert (found.topology, found.spec) == ("2xv5e:16x16", str(file))
    assert (found.host_network_bandwidth, found.network.latency_us) == (6.25e9, 2000)
    assert found.network.sources == (str(file),)
    with pytest.raises(BadInput, match="write the number of slices in the file"):
        machine(f"4x{file}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpu = 7", 'expected slices such as "2xv5e-256"'),
        ('tpu = "H200"', 'expected slices such as "2xv5e-256"'),
        ('tpu = "v5e-7"', "the nearest is v5e-8"),
        ('tpu = "v5e-8"\nhosts = 2', "has the key 'hosts'; known: tpu, network"),
        ('tpu = "v5e-8"\nnetwork = "ndr"', "expected a table"),
        ('tpu = "v5e-8"\nnetwork = {gbps = 1}', "has the key 'gbps'; did you mean host_gbps?"),
        ('tpu = "v5e-8"\nnetwork = {host_gbps = 0}', "expected a number above 0"),
    ],
)
def test_bad_files_of_tpus(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "slices.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as raised:
        machine(str(file))
    assert message in str(raised.value)
