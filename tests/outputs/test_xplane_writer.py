"""Simulated steps written to a file, and read back by everybody's reader."""

from pathlib import Path

import pytest

from recorded import protos, recorded
from schedules import MACHINE, NOTHING, costs, gather, gathered, kernel, program
from slipstream import load, summary
from slipstream.outputs.xplane_writer import write_timeline
from slipstream.profile.profile import Profile
from slipstream.profile.validation import validate
from slipstream.simulate.engine import simulation
from slipstream.simulate.recorded import costs_of

TEXT = """HloModule toy, is_scheduled=true

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] negate(%a)
  ROOT %c = f32[8] negate(%b)
}
"""


def cells(profile: Profile) -> list[tuple[object, ...]]:
    events = profile.events
    rows = sorted(range(len(events)), key=lambda row: int(events["correlation"][row]))
    texts = ("name", "op", "program", "instruction")
    numbers = ("start_ps", "duration_ps", "correlation", "graph", "graph_node", "execution")
    return [
        (
            profile.lanes[int(events["lane"][row])].name,
            *(events.text(column, row) for column in texts),
            *(int(events[column][row]) for column in numbers),
        )
        for row in rows
    ]


def test_a_program_from_text_comes_back(tmp_path: Path) -> None:
    from slipstream.sources.hlo.reader import program_from_text

    step = simulation(
        program_from_text(TEXT), MACHINE, estimates=costs(b=10, c=5), overheads=NOTHING
    )
    file = write_timeline(step.profile, tmp_path / "step.xplane.pb", TEXT.encode())
    found = load(file)
    validate(found)
    assert cells(found) == cells(step.profile)
    assert [w.code for w in found.warnings] == ["simulated"]
    assert found.programs["toy(0)"].instruction("c").opcode == "negate"
    assert summary(found).step_median_us == 15
    assert found.devices[0].model == "Toy GPU"


def test_a_program_from_a_proto_comes_back(tmp_path: Path, data: Path) -> None:
    """A real one: loops, copies on four streams, wrapped operations."""
    name = "jit_step(342693)"
    real = recorded("off_lhs_nocb", name)
    measured = costs_of(load(data / "off_lhs_nocb.xplane.pb.gz"))
    from slipstream.machines.topology import machine

    step = simulation(real, machine("H200"), measured.costs, command_buffers=False)
    proto = protos("off_lhs_nocb")[name]
    found = load(write_timeline(step.profile, tmp_path / "step.xplane.pb", proto))
    validate(found)
    ours = [row[:4] + row[5:] for row in cells(step.profile)]
    assert [row[:4] + row[5:] for row in cells(found)] == ours
    assert {cell[4] for cell in cells(found)} == {cell[4] for cell in cells(step.profile)}


def test_a_module_without_its_envelope_is_wrapped(tmp_path: Path) -> None:
    from slipstream.sources.proto_schema import message

    whole = message("HloProto").FromString(protos("off_lhs_nocb")["jit_step(342693)"])
    module = whole.hlo_module.SerializeToString()
    found = program(kernel("b", "a", root=True))
    step = simulation(found, MACHINE, estimates=costs(b=1))
    file = write_timeline(step.profile, tmp_path / "step.xplane.pb", module)
    space = message("XSpace").FromString(file.read_bytes())
    (metadata,) = [plane for plane in space.planes if plane.name == "/host:metadata"]
    (entry,) = metadata.event_metadata.values()
    kept = message("HloProto").FromString(entry.stats[0].bytes_value)
    # As bytes: protobuf 5.26 finds messages with fields that the schema lacks different.
    kept_bytes = kept.hlo_module.SerializeToString(deterministic=True)
    assert kept_bytes == whole.hlo_module.SerializeToString(deterministic=True)


def test_communication_is_known_as_such(tmp_path: Path) -> None:
    lines = (gather("g", "a"), kernel("b", "a"), gathered("gd", "g"), kernel("c", "b", root=True))
    step = simulation(program(*lines), MACHINE, estimates=costs(g=9, b=2, c=1), overheads=NOTHING)
    text = "HloModule toy, is_scheduled=true\n\nENTRY %main (a: f32[8]) -> f32[8] {\n"
    text += "  %a = f32[8] parameter(0)\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"
    found = load(write_timeline(step.profile, tmp_path / "step.xplane.pb", text.encode()))
    assert summary(found).per_step.exposed_communication_us == pytest.approx(7)
