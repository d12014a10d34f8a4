"""Cost files: what XLA would take, and what is refused."""

import json

import pytest

from slipstream.costs.diff import CostChange, diff_costs
from slipstream.costs.extract import extract_costs
from slipstream.costs.files import read_costs
from slipstream.costs.merge import merge_costs
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput
from slipstream.sources.load import load
from slipstream.sources.proto_schema import message

ONE, OTHER = "1" * 32, "2" * 32


def costs(fingerprint=ONE, policy="typical", communication=(), **us):
    entries = {n: Cost(n, value, 8, n in communication) for n, value in us.items()}
    return CostTable((ProgramCosts(fingerprint, "jit_step(1)", entries),), policy)


def test_one_program_is_written_without_prefix(tmp_path):
    costs(dot=3.0).write(tmp_path / "a.pb")
    proto = message("ProfiledInstructionsProto").FromString((tmp_path / "a.pb").read_bytes())

    assert [(c.name, c.cost_us) for c in proto.costs] == [("dot", 3.0)]


def test_several_programs_are_told_apart_by_their_fingerprints(tmp_path):
    two = CostTable(costs(dot=3.0).programs + costs(OTHER, dot=4.0).programs, "typical")
    two.write(tmp_path / "a.pbtxt")
    again = read_costs(tmp_path / "a.pbtxt")

    assert f'name: "{ONE}::dot"' in (tmp_path / "a.pbtxt").read_text()
    assert {n: c.us for n, c in again.of(OTHER).items()} == {"dot": 4.0}
    assert again.of("3" * 32) == {}


def test_unprefixed_costs_are_for_any_program(tmp_path):
    costs(dot=3.0).write(tmp_path / "a.pb")

    assert read_costs(tmp_path / "a.pb").of(OTHER)["dot"].us == 3.0


def test_a_folder_has_a_file_for_each_fingerprint(tmp_path):
    CostTable(costs(dot=3.0).programs + costs(OTHER, dot=4.0).programs).write(tmp_path / "all")

    names = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert names == [f"{ONE}.pb", f"{ONE}.pb.json", f"{OTHER}.pb", f"{OTHER}.pb.json"]
    assert read_costs(tmp_path / "all").of(OTHER)["dot"].us == 4.0


def test_the_manifest_describes_the_costs(tmp_path):
    table = CostTable(costs(dot=3.0).programs, "typical", {"jaxlib_version": "0.11.2"})
    table.write(tmp_path / "a.pb")

    manifest = json.loads((tmp_path / "a.pb.json").read_text())
    assert manifest == {
        "policy": "typical",
        "jaxlib_version": "0.11.2",
        "programs": [
            {
                "program": "jit_step(1)",
                "fingerprint": ONE,
                "instructions": 1,
                "executions": {"dot": 8},
                "communication": [],
            }
        ],
    }


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "XLA ignores anything else"),
        ("a.pb", b"\xff\xff", "is not a binary ProfiledInstructionsProto"),
        ("a.pbtxt", b"costs { nome: 1 }", "is not a text ProfiledInstructionsProto"),
        (
            "a.pbtxt",
            b'costs { name: "x" cost_us: -1 }',
            "a.pbtxt: the cost of x is -1 µs; expected",
        ),
        ("a.pbtxt", b'costs { name: "x" cost_us: nan }', "a.pbtxt: the cost of x is nan µs; expec"),
        ("a.pbtxt", b'costs { name: "x" cost_us: inf }', "a.pbtxt: the cost of x is inf µs; expec"),
        (
            "a.pbtxt",
            b'costs { name: "x" cost_us: 9e99 }',
            "the cost of x is 9e.99 µs; expected 0 to",
        ),
    ],
)
def test_unreadable_files_are_refused(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(BadInput, match=said):
        read_costs(tmp_path / name)


def test_missing_files_and_empty_folders_say_what_to_do(tmp_path):
    with pytest.raises(BadInput, match="can't read .*none.pb: no such file"):
        read_costs(tmp_path / "none.pb")
    with pytest.raises(BadInput, match="slipstream costs PROFILE -o"):
        read_costs(tmp_path)


def test_an_ending_that_xla_ignores_is_not_written(tmp_path):
    with pytest.raises(BadInput, match=r"XLA ignores a\.proto.*write to a\.pb instead"):
        costs(dot=3.0).write(tmp_path / "a.proto")
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_matches_nothing_is_not_written(tmp_path):
    entries = {"command_buffer_1": Cost("command_buffer_1", 9.0)}
    useless = ProgramCosts(None, "all programs", entries, looked_up=frozenset({"fusion.1"}))

    with pytest.raises(BadInput, match="not written: none of the costs"):
        CostTable((useless,), "jax").write(tmp_path / "a.pb")
    assert list(tmp_path.iterdir()) == []


def test_merging_hosts_takes_the_transfer_and_not_the_wait():
    waiting = costs(communication=("ag",), ag=90.0, dot=4.0)
    prompt = costs(communication=("ag",), ag=30.0, dot=6.0)

    merged = merge_costs([waiting, prompt]).programs[0].costs

    assert {n: c.us for n, c in merged.items()} == {"ag": 30.0, "dot": 5.0}
    assert merged["dot"].executions == 16


def test_merging_other_policies():
    a, b = ((costs(policy=p, communication=("ag",), ag=x, dot=y)) for p, x, y in [
        ("max-communication", 90.0, 4.0), ("max-communication", 30.0, 6.0)
    ])  # fmt: skip

    assert {n: c.us for n, c in merge_costs([a, b]).programs[0].costs.items()} == {
        "ag": 90.0,
        "dot": 4.0,
    }


def test_merging_unrelated_costs_is_refused():
    with pytest.raises(BadInput, match="different policies"):
        merge_costs([costs(dot=1.0), costs(policy="jax", dot=1.0)])
    with pytest.raises(BadInput, match="no program and no instruction in common"):
        merge_costs([costs(dot=1.0), costs(OTHER, conv=1.0)])


def test_diff_shows_the_largest_change_first():
    found = diff_costs(costs(dot=3.0, same=1.0, gone=0.5), costs(dot=9.0, same=1.0, new=2.0))

    assert found.same == 1
    assert found.changes == (
        CostChange("jit_step(1)", "dot", 3.0, 9.0),
        CostChange("jit_step(1)", "new", None, 2.0),
        CostChange("jit_step(1)", "gone", 0.5, None),
    )


@pytest.mark.parametrize("name", ["../escaped", "a/b", "..", "", "A" * 32, "1" * 31])
def test_a_fingerprint_that_is_none_names_no_file(tmp_path, name):
    with pytest.raises(BadInput, match="32 hexadecimal digits.*write one file instead"):
        costs(name, dot=3.0).write(tmp_path / "deep" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_recording_whose_fingerprint_is_a_path(tmp_path, hostile):
    table = extract_costs(load(hostile / "fingerprint_traversal.xplane.pb"))
    with pytest.raises(BadInput, match="32 hexadecimal digits"):
        table.write(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
