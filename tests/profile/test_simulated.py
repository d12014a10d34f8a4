"""Simulated profiles say so, and of which machine, in memory and in a file."""

from pathlib import Path

from recorded import DATA
from slice_programs import HIDDEN, MACHINE, last, slice_text
from slipstream.analyses.network.network import network
from slipstream.machines.topology import machine
from slipstream.outputs.xplane_writer import write_timeline
from slipstream.profile.simulated import is_simulated, simulated_machine
from slipstream.simulate.engine import simulate
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load


def test_the_machine_is_known_from_the_file_too(tmp_path: Path) -> None:
    text = slice_text(HIDDEN + last(3), 2048)
    made = simulate(program_from_text(text), machine(MACHINE))
    read = load(write_timeline(made, tmp_path / "t.xplane.pb", text.encode()))
    for profile in (made, read):
        assert is_simulated(profile)
        assert simulated_machine(profile) == MACHINE
        found = network(profile)
        assert found.machine == MACHINE and not found.notes


def test_a_recording_is_none() -> None:
    profile = load(DATA / "off_default.xplane.pb.gz")
    assert not is_simulated(profile) and simulated_machine(profile) is None
