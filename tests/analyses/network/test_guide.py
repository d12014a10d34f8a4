"""The questions of Megascale's guide: answered, and from what."""

from pathlib import Path

import pytest

from megascale_builder import EXPECTED, GBPS, HEALTHY, PROBLEMS, megascale_profile
from recorded import DATA
from slice_programs import (
    COPIED,
    HIDDEN,
    MACHINE,
    RECEIVE,
    SEND,
    TOO_LARGE,
    compute,
    last,
    slice_text,
)
from slipstream.analyses.network.guide import GuideAnswer
from slipstream.analyses.network.network import network, with_prediction
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.outputs.html.network import network_page
from slipstream.profile.profile import Profile
from slipstream.simulate.engine import simulate
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import program_from_text, read_program
from slipstream.sources.load import load
from tpu_recording import Built

ORDER = [
    "profile",
    "map-dma-buffer",
    "memory-copies",
    "small-slack",
    "bandwidth",
    "latency",
    "hlo-dump",
]
HOSTS_ONLY = {"profile", "map-dma-buffer", "memory-copies"}
"""what a prediction can't answer"""


def predicted(body: str, rows: int, gradient: str = "g") -> Profile:
    text = slice_text(body + last(3), rows, gradient).replace("jit_step", "jit_train_step")
    return simulate(program_from_text(text), machine(MACHINE))


def answers(found: tuple[GuideAnswer, ...]) -> dict[str, tuple[str, str]]:
    return {one.code: (one.verdict, one.basis) for one in found}


def test_a_healthy_recording_answers_every_question(tmp_path: Path) -> None:
    profile = megascale_profile(tmp_path, HEALTHY)
    for gbps in (None, GBPS):  # nothing waits, so the network's rate is not needed
        found = network(profile, slice_gbps=gbps).guide
        assert [one.code for one in found] == ORDER
        assert set(answers(found).values()) == {("fine", "recorded")}
        assert not any(one.remedy or one.per_step_us for one in found)
    said = {one.code: one.evidence for one in found}
    assert said["map-dma-buffer"].endswith("3 calls before them, which is normal")
    assert "median 120 µs" in said["latency"] and "jit_train_step" in said["hlo-dump"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_the_answer_to_its_question(name: str, tmp_path: Path) -> None:
    found = network(megascale_profile(tmp_path, PROBLEMS[name]), slice_gbps=GBPS).guide
    seen = {one.code for one in found if one.verdict == "problem"}
    # A wait that nothing else explains needs more overlap.
    assert seen == (EXPECTED[name] - {"recv-done"} or {"small-slack"})
    for one in found:
        assert one.basis == "recorded"
        assert bool(one.remedy) == bool(one.per_step_us) == (one.verdict == "problem")
        assert one.source.startswith("https://openxla.org/xla/megascale/performance#")


@pytest.mark.parametrize("name", ["bandwidth", "latency, always"])
def test_without_the_network_s_rate_waits_are_unexplained(name: str, tmp_path: Path) -> None:
    found = network(megascale_profile(tmp_path, PROBLEMS[name])).guide
    for one in found[4:6]:
        assert (one.verdict, one.basis) == ("unknown", "neither")
        assert "--slice-gbps" in one.remedy


def test_a_prediction_answers_what_follows_from_the_schedule() -> None:
    found = network(predicted(TOO_LARGE, 20480)).guide  # the machine is the one simulated
    assert [one.code for one in found] == ORDER
    assert answers(found) == {
        **dict.fromkeys(HOSTS_ONLY, ("unknown", "neither")),
        "small-slack": ("problem", "predicted"),
        "bandwidth": ("problem", "predicted"),
        "latency": ("fine", "predicted"),
        "hlo-dump": ("fine", "predicted"),
    }
    hidden = answers(network(predicted(HIDDEN, 2048)).guide)
    assert hidden["small-slack"] == hidden["bandwidth"] == ("fine", "predicted")


@pytest.mark.parametrize(
    ("ms", "verdict", "said"),
    [
        # 8.4 MB of each of 4 chips take 2.7 ms at 100 Gb/s, and the network's latency is 250 µs.
        (20, "fine", "1 transfer stays hidden up to 17.3 ms of latency (all-reduce.1_0)"),
        (2.8, "problem", "all-reduce.1_0 stays hidden only up to 115 µs"),
        (1, "fine", "all-reduce.1_0 stays hidden at no latency"),
    ],
)
def test_a_prediction_says_which_latency_its_slack_allows(
    ms: float, verdict: str, said: str
) -> None:
    body = compute(1, 1) + SEND + compute(2, ms, "kernel.1") + RECEIVE + compute(3, 2, "kernel.2")
    (one,) = (a for a in network(predicted(body, 2048)).guide if a.code == "latency")
    assert (one.verdict, one.basis) == (verdict, "predicted")
    tail = "each alone at 100 Gb/s per host; the prediction assumes 250 µs"
    assert one.evidence == f"{said}, {tail}"
    assert bool(one.remedy) == bool(one.per_step_us) == (verdict == "problem")


@pytest.mark.parametrize(
    ("program", "on"),
    [("tpu/v5e_2slices.hlo.gz", MACHINE), (slice_text(HIDDEN + last(3), 2048), MACHINE)],
)
def test_network_and_what_if_agree_on_what_hides_a_transfer(program: str, on: str) -> None:
    is_file = program.endswith(".gz")
    compiled = read_program(DATA / program) if is_file else program_from_text(program)
    step = predict(compiled, machine(on), networks=((None, None),))
    assert step.what_if is not None and step.timeline is not None
    found = {one.send: one for one in network(step.timeline).collectives}
    needs = {one.instruction: one.needs_gbps for one in step.what_if.transfers}
    assert {send: one.needs_gbps for send, one in found.items()} == pytest.approx(needs)
    if not is_file:  # the only transfer decides for the whole step, to 1% of it
        (one,) = found.values()
        assert one.hidden_to_latency_us == pytest.approx(
            step.what_if.hidden_to_latency_us, rel=0.05
        )
    else:
        assert {one.needs_gbps is None for one in found.values()} == {True, False}


def test_copies_on_the_device_are_told_apart_from_copies_on_the_host() -> None:
    (one,) = (a for a in network(predicted(COPIED, 2048, "copied")).guide if "copies" in a.code)
    assert (one.verdict, one.basis) == ("unknown", "neither")
    assert "On the device, 1 value is copied before being sent" in one.evidence


def test_a_prediction_fills_in_what_a_recording_leaves_open(tmp_path: Path) -> None:
    recording = megascale_profile(tmp_path, PROBLEMS["recv-done"])
    from_hlo = predicted(HIDDEN, 2048)
    alone = answers(network(recording).guide)
    assert alone["bandwidth"] == alone["latency"] == ("unknown", "neither")
    both = answers(with_prediction(recording, from_hlo).guide)
    # The prediction names the machine, and so the network's rate.
    assert both["bandwidth"] == both["latency"] == ("fine", "recorded")
    assert both["small-slack"] == ("problem", "recorded")
    # A recording without events of hosts or steps of devices says little.
    swapped = answers(with_prediction(from_hlo, from_hlo).guide)
    assert swapped["small-slack"] == ("fine", "predicted")


def test_predictions_of_something_else_are_refused(tmp_path: Path) -> None:
    recording = megascale_profile(tmp_path, HEALTHY)
    with pytest.raises(BadInput, match="is a recording; write one with: slipstream predict"):
        with_prediction(recording, recording)
    text = slice_text(HIDDEN + last(3), 2048)
    other = simulate(program_from_text(text), machine(MACHINE))
    with pytest.raises(BadInput, match="prediction is of jit_step, and the profile is of jit_tra"):
        with_prediction(recording, other)


def test_nothing_between_slices_asks_nothing() -> None:
    assert network(load(DATA / "off_lhs_nocb.xplane.pb.gz")).guide == ()


def test_a_real_program_names_the_gradient_recorded_and_predicted(tmp_path: Path) -> None:
    built = Built.of("v5e_2slices.hlo.gz", MACHINE)
    recording = load(built.write(tmp_path, slices=2))
    found, seen = network(built.step.profile), network(recording)
    both = with_prediction(recording, built.step.profile)
    for answered, basis in ((found, "predicted"), (seen, "recorded")):
        (slack,) = (one for one in answered.guide if one.code == "small-slack")
        assert (slack.verdict, slack.basis) == ("problem", basis)
        assert "all-reduce.13_0 (∂p.embedding) has" in slack.evidence
    assert seen.machine == "" and both.machine == MACHINE
    assert {one.basis for one in both.guide} == {"recorded"}
    (sent,) = (one for one in found.series if one.link == "dcn")
    # Its transfers overlap, each at its mean rate.
    assert sent.capacity is not None and max(sent.rates) == sent.peak == sent.capacity
    assert max(region.share for region in found.regions) == 1


def test_the_page_has_the_questions_in_order_with_their_basis() -> None:
    shown = network_page(network(predicted(TOO_LARGE, 20480)), "large.xplane.pb")
    places = [shown.index(f'data-rule="{code}"') for code in ORDER]
    assert places == sorted(places)
    assert shown.count("<small>predicted</small>") == 4
    assert shown.count("<small>neither</small>") == 3
    assert "Between slices, out" in shown and "all-reduce.1_0" in shown
    assert "Megascale" not in network_page(network(load(DATA / "off_default.xplane.pb.gz")), "x")
