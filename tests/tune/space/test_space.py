"""Which knobs a screen, one process and a launched job can tell apart."""

from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.tune.space.knob import Knob
from slipstream.tune.space.program_traits import ProgramTraits
from slipstream.tune.space.space import UNLAUNCHED, UNMEASURED, SpaceOptions, space_of

COLLECTIVES = {"all-gather": (1 << 20,), "all-reduce": (1 << 10,)}
VARIABLES = {"NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS", "CUDA_DEVICE_MAX_CONNECTIONS"}
AUTOTUNING = "xla_gpu_autotune_level"


def whole(traits: ProgramTraits, **asked):
    catalogue = installed_catalogue()
    return space_of(
        traits, catalogue, is_measured=True, is_launched=True, options=SpaceOptions(**asked)
    )


def test_which_knobs_need_a_launch_a_measurement_or_only_a_screen():
    space = whole(ProgramTraits(8, 1, COLLECTIVES, matmuls=1))
    names = {knob.name for knob in space.knobs}
    assert names >= VARIABLES | {AUTOTUNING} and "NCCL_IB_QPS_PER_CONNECTION" not in names
    process, screen = space.in_process, space.screened
    assert {process.left_out[name] for name in VARIABLES} == {UNLAUNCHED}
    assert process.knob(AUTOTUNING) is not None
    assert {screen.left_out[name] for name in (*VARIABLES, AUTOTUNING)} == {UNMEASURED}
    assert not [knob for knob in screen.knobs if knob.seen_by == "measurement"]
    without = space.without(["NCCL_PROTO", "HOME"], "set already")
    assert without.left_out["NCCL_PROTO"] == "set already" and "HOME" not in without.left_out


def test_nothing_for_nccl_without_collectives_between_devices():
    for traits in (ProgramTraits(1, 1, COLLECTIVES), ProgramTraits(8, 1)):
        assert not [knob for knob in whole(traits).knobs if "nccl" in knob.name.lower()]
    assert whole(ProgramTraits(16, 2, COLLECTIVES)).knob("NCCL_IB_QPS_PER_CONNECTION") is not None


def test_a_placeholders_default_is_its_first_value():
    space = whole(ProgramTraits(8, 1), added={"processes": ("8", "1")}, placeholders=("processes",))
    knob = space.knob("processes")
    assert knob is not None and (knob.default, knob.values) == ("8", ("8", "1"))
    assert knob.seen_by == "measurement" and space.in_process.knob("processes") is None


def test_unset_sorts_before_all_numbers():
    knob = Knob("NCCL_X", ("(unset)", "16", "8"), "why", "measurement", is_ordered=True)
    assert knob.ordered_values == ("(unset)", "8", "16")
