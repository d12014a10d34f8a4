"""`--what-if network`: the step with other networks between slices and hosts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schedules import kernel
from schedules import program as gpu_program
from slice_programs import HIDDEN, MACHINE, RECEIVE, SEND, compute, last, slice_program, slice_text
from slipstream.cli.main import app
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.outputs.html.report import report_page
from slipstream.outputs.html.report_data import results
from slipstream.outputs.html.sections.prediction import prediction_section
from slipstream.simulate.engine import simulation
from slipstream.simulate.prediction import predict
from slipstream.simulate.what_if import CLOSE, asked_networks, check_network, network_what_if
from slipstream.sources.hlo.reader import program_from_text

SLICES = machine(MACHINE)
# 84 MB of each of 4 chips of a host, with 10 ms of compute to hide them.
LARGE_TEXT = slice_text(
    SEND + compute(1, 10) + RECEIVE + compute(3, 2, "kernel.1") + last(3), rows=20480
)
LARGE = program_from_text(LARGE_TEXT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("network", ()),
        ("network=50Gb/s", ((50.0, None),)),
        ("network=50 Gbit/s@2ms", ((50.0, 2000.0),)),
        ("network=@250us,1Tb/s, .5GB/s@1s", ((None, 250.0), (1000.0, None), (4.0, 1e6))),
    ],
)
def test_networks_as_people_write_them(text: str, expected: object) -> None:
    assert asked_networks(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disk=5", "does not begin with network; expected network (several"),
        ("network=", "has an empty case"),
        ("network=50Gb/s,", "has an empty case"),
        ("network=50", "'50' is no bandwidth; expected a number and Gb/s (bits) or GB/s (bytes)"),
        ("network=50ms", "'50ms' is no bandwidth"),
        ("network=-5Gb/s", "'-5Gb/s' is no bandwidth"),
        ("network=0Gb/s", "a network of 0 Gb/s never ends a transfer"),
        ("network=50Gb/s@2", "'2' is no latency; expected a number and us, ms or s"),
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        asked_networks(text)
    assert said in str(error.value)


def test_a_machine_without_a_network_is_refused_before_the_compile() -> None:
    with pytest.raises(BadInput, match="is one slice.* such as --on 2xv5e:4x4"):
        check_network([machine("v5e:4x4")])
    with pytest.raises(BadInput, match="8xH100 is one NVLink domain"):
        check_network([machine("8xH100")])
    check_network([machine("8xH100"), machine("2x8xH100")])
    alone = machine("v5e:4x4")
    assert network_what_if(LARGE, alone, simulation(LARGE, alone)) is None


def test_one_transfer_needs_its_bytes_within_its_slack() -> None:
    found = predict(LARGE, SLICES, networks=()).what_if
    assert found is not None
    (one,) = found.transfers
    assert (one.instruction, one.kind, one.times) == ("send", "all-reduce", 1)
    assert one.bytes == 20480 * 1024 * 4
    assert one.slack_us == pytest.approx(10_000, rel=0.02)
    # A host of v5e has 4 chips, and the network's latency is 250 µs.
    exact = 4 * one.bytes * 8 / (one.slack_us - 250) / 1e3
    assert one.needs_gbps is not None and exact <= one.needs_gbps <= exact * CLOSE
    assert one.wait_us == pytest.approx(one.us - one.slack_us, rel=0.01) == found.now.wait_us
    # It alone decides from where on transfers are hidden, to 1% of the step.
    assert found.hidden_from_gbps is not None
    assert exact * 0.95 < found.hidden_from_gbps < exact * CLOSE


def test_the_grid_has_every_bandwidth_and_latency_and_the_machines_own() -> None:
    step = predict(LARGE, SLICES, networks=())
    found = step.what_if
    assert found is not None
    assert [(case.gbps, case.latency_us) for case in found.cases] == [
        (gbps, us) for us in (250, 1000, 2000, 4000) for gbps in (50, 100, 200)
    ]
    by_network = {(case.gbps, case.latency_us): case for case in found.cases}
    assert by_network[100, 250] == found.now
    assert found.now.step_us == step.step_us
    for case in found.cases:
        # All of the transfer is one wait, so that is what the step gains or loses.
        assert case.step_us - found.now.step_us == pytest.approx(case.wait_us - found.now.wait_us)
        assert case.waits == {"send": case.wait_us}
    twice = by_network[50, 250].wait_us + found.transfers[0].slack_us - 250
    assert twice == pytest.approx(2 * (found.transfers[0].us - 250), rel=0.01)


def test_a_hidden_transfer_stays_hidden_up_to_a_latency() -> None:
    program = slice_program(HIDDEN + last(3), rows=2048)
    found = predict(program, SLICES, networks=((None, 100.0),)).what_if
    assert found is not None
    (case,) = found.cases
    assert (case.gbps, case.latency_us, case.wait_us, case.waits) == (100.0, 100.0, 0.0, {})
    (one,) = found.transfers
    latest = one.slack_us - (one.us - 250)
    assert found.hidden_to_latency_us == pytest.approx(latest, rel=0.06)


def test_measured_times_are_scaled_by_the_ratio_of_the_models() -> None:
    step = simulation(LARGE, SLICES)
    slow = replace(step.estimates["send"], us=2 * step.estimates["send"].us, basis="measured")
    known = simulation(LARGE, SLICES, estimates={**step.estimates, "send": slow})
    asked = ((1.0, None), (2.0, None), (2.0, 50_000.0))
    found = network_what_if(LARGE, SLICES, known, asked)
    assert found is not None
    once, twice, late = (case.wait_us + found.transfers[0].slack_us for case in found.cases)
    assert once == pytest.approx(2 * twice, rel=0.01)
    assert late == pytest.approx(twice + 50_000 - 250, abs=1)  # a latency is not scaled
    plain = network_what_if(LARGE, SLICES, step, ((1.0, None),))
    assert plain is not None
    assert once == pytest.approx(2 * (plain.cases[0].wait_us + 10_000), rel=0.01)


@pytest.mark.parametrize("curve", [None, {"bytes": [2**20, 2**30], "us": [200, 20_000]}])
def test_gpus_and_their_hosts(curve: dict[str, object] | None) -> None:
    groups = "replica_groups={{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}}, channel_id=1"
    found = gpu_program(
        "%big = f32[4194304] parameter(1)",
        f"%s = f32[4194304] all-reduce-start(%big), {groups}",
        kernel("k", "a"),
        "%d = f32[4194304] all-reduce-done(%s)",
        "ROOT %t = (f32[8], f32[4194304]) tuple(%k, %d)",
    )
    hosts = machine("2x8xH100")
    if curve is not None:  # calibrated by measurements on its own network
        measured = {"kind": "all-reduce", "group": 16, "hosts": 2, **curve}
        hosts = replace(hosts, calibration={"collectives": [measured]})
    what_if = predict(found, hosts, networks=((800.0, None), (3200.0, None))).what_if
    assert what_if is not None and what_if.between == "hosts"
    (one,) = what_if.transfers
    assert (one.instruction, one.kind) == ("s", "all-reduce")
    slow, now = what_if.cases
    assert now == what_if.now and slow.wait_us > now.wait_us > 0


def test_nothing_between_slices() -> None:
    program = slice_program(compute(1, 5) + last(1), rows=8)
    step = predict(program, SLICES, networks=())
    assert step.what_if is not None
    assert (step.what_if.transfers, step.what_if.cases) == ((), ())
    assert "Nothing of this program crosses the network" in str(prediction_section([step]).body)


def run(program: Path, *arguments: str) -> str:
    arguments = ("simulate", str(program), "--on", MACHINE, *arguments)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_screen_of_a_real_program(data: Path) -> None:
    lines = run(data / "tpu" / "v5e_2slices.hlo.gz", "--what-if", "network").splitlines()
    assert "between slices of 2xv5e:4x4 · 100 Gb/s per host, 250 µs latency" in lines
    (first,) = (line.split() for line in lines if line.startswith("∂p.embedding"))
    assert first[1:4] == ["train.py:31", "8.19", "MB"]
    at = next(i for i, line in enumerate(lines) if line.startswith("step at"))
    assert " ".join(lines[at].split()) == "step at 50 Gb/s 100 Gb/s (now) 200 Gb/s"
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == ["250", "1", "2", "4"]
    assert max(map(len, lines)) <= 80


def test_single_networks_and_the_json(tmp_path: Path) -> None:
    program = tmp_path / "large.hlo"
    program.write_text(LARGE_TEXT)
    listed = run(program, "--what-if", "network=50Gb/s@2ms").splitlines()
    assert any(line.startswith("50 Gb/s, 2 ms ") for line in listed)
    found = json.loads(run(program, "--what-if", "network=50Gb/s@2ms", "--json"))["what_if"]
    assert found.keys() == {
        "between", "now", "transfers", "cases", "hidden_from_gbps", "hidden_to_latency_us",
    }  # fmt: skip
    assert found["transfers"][0].keys() == {
        "instruction", "kind", "description", "source", "times", "bytes", "slack_us",
        "needs_gbps", "us", "wait_us",
    }  # fmt: skip
    (case,) = found["cases"]
    assert case.keys() == {"gbps", "latency_us", "step_us", "wait_us", "waits"}


def test_the_page() -> None:
    step = predict(LARGE, SLICES, networks=())
    shown = str(prediction_section([step]).body)
    assert "Other networks between slices of 2xv5e:4x4" in shown
    assert "100 Gb/s (now)" in shown and "Needs, Gb/s per host" in shown
    assert step.timeline is not None
    shown = report_page(results(step.timeline, MACHINE, predictions=(step,)))
    latency = shown[shown.index('data-rule="latency"') :]
    assert "Waits for other slices are below 1% of the step from" in latency
