"""Diagnoses of real recordings and of predictions: what comes first, and what it would win."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from diagnosis.rules.test_rules import TWINS, only, rules
from slipstream.analyses.slack import slack
from slipstream.costs.extract import extract_costs
from slipstream.diagnosis.diagnose import RULES, diagnose
from slipstream.diagnosis.evidence import few_steps
from slipstream.diagnosis.flag_advice import FlagAdvice
from slipstream.flags.catalogue.history import catalogue_of, history
from slipstream.flags.lint.lint import lint
from slipstream.flags.settings import read_text
from slipstream.flags.thresholds.thresholds import ALL_GATHER, thresholds
from slipstream.machines.topology import machine
from slipstream.profile.profile import Profile
from slipstream.results.diagnosis import Diagnosis
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import costs_of
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = sorted(
    str(file.relative_to(DATA)).removesuffix(".xplane.pb.gz")
    for file in (*DATA.glob("*.xplane.pb.gz"), *DATA.glob("accuracy/*.xplane.pb.gz"))
    if not any(setting in file.name for setting in (".cublas.", ".untuned."))
)
"""of the settings in accuracy/, those with graphs and those without"""
MEASURED = (0.028, 0.043)
"""what turning command buffers off won, by the clock, interleaved, on two H200 (460.8 to 448.1 ms
and 460.0 to 440.3 ms)"""
ON_DEVICE = 1 - 437.3 / 459.5
"""the same by the device time of the recordings, minutes apart: docs/accuracy.md"""


def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


@cache
def diagnosis(name: str) -> Diagnosis:
    return diagnose(recording(name))


def test_as_many_are_without_slack_as_slack_says() -> None:
    profile = recording("nccl2_lhs_r0")
    rows = slack(profile).rows
    none = sum(row.is_zero for row in rows)
    said = only(diagnose(profile), "zero-slack").evidence
    assert said.startswith(f"{none} of {len(rows)} collectives and copies have no slack; the step")


def test_serialised_host_copies_come_first_with_the_measured_gain() -> None:
    found = diagnosis("off_default")
    first = found.findings[0]
    assert first.rule == "host-copies"
    assert [(e.name, e.source, e.times) for e in first.exhibits] == [
        ("wrapped_dynamic-slice", "dev_off.py:18", 8),
        ("wrapped_dynamic-update-slice", "dev_off.py:18", 8),
    ]
    assert first.changes[0].kind == "flag"
    assert first.changes[0].text == "--xla_gpu_enable_command_buffer="
    gain = first.gain
    assert gain.basis == "simulated" and gain.us is not None and gain.high_us is not None
    won = gain.us / found.step_us
    assert all(abs(won - measured) < 0.02 for measured in (0.03, 0.04, *MEASURED, ON_DEVICE))
    assert gain.low_us / found.step_us < MEASURED[0] < MEASURED[1] < gain.high_us / found.step_us
    assert gain.high_us / found.step_us > ON_DEVICE


def test_the_gain_comes_from_the_simulator() -> None:
    """Between `predict` with graphs and without, give or take its error; copies slow down."""
    made = recording("off_default")
    costs = costs_of(made)
    assert costs.source is not None
    now, then = (
        predict(costs.source, machine("H200"), costs.costs, command_buffers=on).step_us
        for on in (True, False)
    )
    gain = diagnosis("off_default").findings[0].gain
    assert gain.high_us == pytest.approx(now - then + 0.01 * now, rel=0.01)
    assert gain.us is not None
    assert gain.us < now - then


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name != "off_default"])
def test_host_copies_are_not_blamed_elsewhere(name: str) -> None:
    """No graphs, or no host copies, or (`off_nolhs`) a schedule that leaves nothing to win."""
    assert "host-copies" not in rules(diagnosis(name))


def test_each_recording_shows_its_planted_problems() -> None:
    found = {name: set(rules(diagnosis(name))) for name in RECORDINGS}
    for name in RECORDINGS:
        # All models but these have a softmax between two products; `mixer` is all in float32.
        plain = any(word in name for word in ("cudnn", "attention_", "convolution", "resnet"))
        expected = not plain and "mixer" not in name and "nccl2" not in name
        assert ("attention" in found[name]) == expected, name
        assert ("float32" in found[name]) == ("mixer" in name), name
        checkpointed = any(word in name for word in ("off_", "single", "gpt_scan", "gpt_fsdp"))
        assert ("remat" in found[name]) == (checkpointed or "attention_" in name), name
        assert ("offload" in found[name]) == ("off_" in name), name
        assert ("slow-links" in found[name]) == ("nccl2" in name), name
        assert ("scheduler-off" in found[name]) == (name == "nccl2_nolhs_r0"), name
        # Many short kernels, launched one by one.
        launched = name in ("accuracy/resnet.no_graphs", "accuracy/resnet.unscheduled")
        assert ("launch-bound" in found[name]) == launched, name
        assert not found[name] & {"input-bound", "compile-pauses", "straggler", "host-bound"}, name


def test_graphs_gain_what_was_measured_if_launches_are_slow() -> None:
    """25.2 to 24.8 ms by the clock, 24.5 to 22.8 ms on the device (tests/data/accuracy)."""
    gain = only(diagnosis("accuracy/resnet.no_graphs"), "launch-bound").gain
    assert gain.us is not None and gain.high_us is not None
    assert 400 < gain.us < 1700
    assert gain.low_us <= 400


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_rule_is_accounted_for(name: str) -> None:
    found = diagnosis(name)
    said = {one.rule for one in (*found.findings, *found.abstained)} | set(found.clear)
    assert said == {rule.name for rule in RULES}
    assert found.jaxlib == "0.11.2"
    assert found.notes == ()


def test_certain_gains_come_first() -> None:
    for found in (
        *map(diagnosis, RECORDINGS),
        *(diagnose(sick()) for sick, _, _ in TWINS.values()),
    ):
        keys = []
        for one in found.findings:
            likely = (one.gain.high_us or 0.0) / 2 if one.gain.us is None else one.gain.us
            keys.append((one.gain.low_us, likely))
        assert keys == sorted(keys, reverse=True)


def test_costs_that_fit_are_not_stale() -> None:
    made = recording("off_lhs_nocb")
    assert not [r for r in rules(diagnose(made, costs=extract_costs(made))) if "pgle" in r]
    others = extract_costs(recording("single"))
    stale = only(diagnose(made, costs=others), "pgle-stale")
    assert "71% of the device time" in stale.evidence
    assert "fingerprint: costs of 2c2be1e5, program 7733d8da" in stale.evidence


# Flags.


def recommended() -> set[str]:
    made = [*map(diagnosis, RECORDINGS), *(diagnose(sick()) for sick, _, _ in TWINS.values())]
    changes = [change for found in made for one in found.findings for change in one.changes]
    return {change.text for change in changes if change.kind == "flag"}


def test_recommended_flags_are_accepted_by_the_jaxlib() -> None:
    texts = recommended()
    assert len(texts) >= 5
    refused = set()
    made = recording("single")
    for version in history().versions:
        host = replace(made.hosts[0], versions={"jaxlib_version": version})
        flags = FlagAdvice(replace(made, hosts=(host,)), {}, False)
        assert flags.catalogue is catalogue_of(version)
        for text in texts:
            name, _, value = text.removeprefix("--").partition("=")
            complaints = lint(read_text(f"export XLA_FLAGS={text}"), catalogue_of(version))
            wrong = [one for one in complaints if one.severity in ("abort", "error")]
            if flags.change(name, value) is None:
                refused.add((version, name))
            else:
                assert not wrong, (version, text, wrong)
    assert ("0.4.18", "xla_gpu_enable_command_buffer") in refused


def test_the_flags_are_those_of_the_release_that_was_recorded() -> None:
    made = recording("off_default")
    old = replace(made.hosts[0], versions={"jaxlib_version": "0.4.18"})
    found = diagnose(replace(made, hosts=(old,)))
    assert found.jaxlib == "0.4.18"
    first = found.findings[0]
    assert first.rule == "host-copies"
    assert [change.kind for change in first.changes] == ["code"]
    unheard = replace(made.hosts[0], versions={"jaxlib_version": "99.1"})
    noted = diagnose(replace(made, hosts=(unheard,)))
    assert noted.notes[0].startswith("the flags of jaxlib 99.1 are unknown: using those of ")
    silent = diagnose(replace(made, hosts=(replace(made.hosts[0], versions={}),)))
    assert silent.notes[0].startswith("the profile doesn't name its jaxlib")


# Predictions, and long recordings.


def test_a_predicted_timeline_is_diagnosed_like_a_recording() -> None:
    program = read_program(DATA / "off_default.hlo.gz")
    with_graphs, without = (
        predict(program, machine("H200"), command_buffers=on).timeline for on in (True, False)
    )
    assert with_graphs is not None and without is not None
    found = diagnose(with_graphs)
    assert found.findings[0].rule == "host-copies"
    assert "these steps are simulated" in found.notes[-1]
    gain = found.findings[0].gain.us
    assert gain is not None and 0.02 < gain / found.step_us < 0.06
    assert "host-copies" not in rules(diagnose(without))


def test_thresholds_come_from_the_layers() -> None:
    """A GPT under FSDP, recorded on one GPU without its collectives, predicted for eight."""
    costs = costs_of(recording("accuracy/gpt_fsdp.default"))
    assert costs.source is not None
    made = predict(costs.source, machine("8xH200"), costs.costs, source=costs.source).timeline
    assert made is not None
    one = only(diagnose(made), "small-collectives")
    proposed = thresholds(costs.source).all_gather
    assert one.changes[0].text == f"--{ALL_GATHER}={proposed.bytes}"
    assert one.changes[0].note == proposed.basis


def test_a_long_recording_is_sampled() -> None:
    made = recording("off_default")
    third = few_steps(made, most=1)
    assert third is made, "three steps are the least"
    long = _repeated(made, 4)
    few = few_steps(long, most=len(long.events) // 4)
    assert few.steps.count == 3 < long.steps.count == 12
    first, last = (long.events["start_ps"][0], long.events["start_ps"][-1])
    assert first < few.events["start_ps"].min() < few.events["start_ps"].max() < last
    assert rules(diagnose(few)) == rules(diagnosis("off_default"))


def _repeated(made: Profile, times: int) -> Profile:
    """The steps again and again; annotations would tell the copies apart, so they go."""
    import numpy as np

    events = made.events
    span = int((events["start_ps"] + events["duration_ps"]).max())
    runs, launches = int(events["execution"].max()) + 1, int(events["correlation"].max()) + 1
    rows = np.tile(np.arange(len(events)), times)
    turn = np.repeat(np.arange(times), len(events))
    longer = events.take(rows)
    longer = longer.replace(
        start_ps=longer["start_ps"] + turn * span,
        execution=(longer["execution"] + turn * runs).astype(np.int32),
        correlation=longer["correlation"] + turn * launches,
    )
    return Profile(made.hosts, made.devices, made.lanes, longer, programs=made.programs)


def test_an_export_of_gpus_that_mostly_copy(external: Path) -> None:
    """Two H100 that copy for 97% of a second, recorded without XLA's ranges."""
    found = diagnose(load(external / "nsys_h100_2gpu_1s.sqlite"))
    (finding,) = found.findings
    assert (finding.rule, finding.gain.high_us) == ("transfers", pytest.approx(920_800, rel=0.01))
    assert "of the recording (95%)" in finding.evidence
    assert [change.kind for change in finding.changes] == ["code", "command"]
