"""XLA's log, as jaxlib 0.10.2 and 0.12.0.1 wrote it, into messages."""

from slipstream.compiler.messages import CompilerMessage, naming_costs, parse_messages, read_log

REMAT = """\
W1115 05:25:10.929380   20586 spmd_partitioner.cc:656] [SPMD] Involuntary full rematerialization. \
The compiler cannot go from sharding {devices=[2,1,4]<=[8]} to {devices=[1,8,1]<=[2,4]T(1,0)} \
efficiently for HLO operation %sharding_constraint.1 = bf16[32,64,192]{2,1,0} copy(%mul.5), \
sharding={devices=[2,1,4]<=[8]}, metadata={op_name="jit(f)/sharding_constraint" \
stack_frame_id=5}. As the last resort, SPMD will replicate the tensor and then partition it to \
obtain the target sharding, which is inefficient.
"""
MEMORY = """\
E1115 05:24:43.930934   20230 gpu_hlo_schedule.cc:968] The byte size of input/output arguments \
(137438953488) exceeds the base limit (120087904256). This indicates an error in the calculation!
W1115 05:24:44.083772   20230 hlo_rematerialization.cc:3231] Can't reduce memory use below \
96.00GiB (103079215120 bytes) by rematerialization; only reduced to 448.00GiB (481036337184 \
bytes), down from 464.00GiB (498216206384 bytes) originally
"""
PGLE = """\
I1115 05:25:18.618704   20727 gpu_hlo_schedule.cc:377] Using PGLE profile from /tmp/c.pbtxt
I1115 05:25:18.759438   20727 gpu_hlo_schedule.cc:506] PGLE fallback: using SolLatencyEstimator
W1115 05:24:46.242191   20277 profile_guided_latency_estimator.cc:192] Found 1 instructions from \
the profile.
W1115 05:24:46.242212   20277 profile_guided_latency_estimator.cc:194] Missing 2 instructions \
from the profile.
W1115 05:24:46.242216   20277 profile_guided_latency_estimator.cc:197]   wrapped_convert
W1115 05:24:46.242218   20277 profile_guided_latency_estimator.cc:197]   custom-call.1
I1115 05:24:46.242511   20277 latency_hiding_scheduler.cc:4325] [latency-hiding-scheduler] current
"""
FALLBACK = """\
I1115 05:25:15.973792   20680 gpu_hlo_schedule.cc:559] Cannot construct unified latency \
estimator, falling back to T-shirt sizes. Reason: NOT_FOUND: Cannot find key: sm_100_GB200
"""


def test_entries_go_on_over_several_lines():
    log = "a traceback\n" + FALLBACK + "  goes on\n" + PGLE
    first, second, *_ = read_log(log)
    assert (first.severity, first.file) == ("I", "gpu_hlo_schedule.cc")
    assert first.text.endswith("sm_100_GB200\n  goes on")
    assert second.text == "Using PGLE profile from /tmp/c.pbtxt"


def test_involuntary_rematerialization():
    (found,) = parse_messages(REMAT + REMAT)
    assert (found.code, found.severity) == ("involuntary-remat", "warning")
    assert found.instruction == "sharding_constraint.1"
    assert found.text.startswith(
        "jit(f)/sharding_constraint can't be resharded from {devices=[2,1,4]<=[8]} to "
        "{devices=[1,8,1]<=[2,4]T(1,0)} directly"
    )


def test_memory_that_can_not_be_had():
    arguments, limit = parse_messages(MEMORY)
    assert (arguments.code, limit.code) == ("arguments-too-big", "memory-not-reduced")
    assert "need 137 GB of the 120 GB" in arguments.text
    assert "below 103 GB, only to 481 GB" in limit.text


def test_costs_with_a_space_in_their_path_are_named_in_full():
    log = PGLE.replace("/tmp/c.pbtxt", "/tmp/my costs/c.pbtxt")
    assert parse_messages(log)[0].text == "the scheduler uses the costs in /tmp/my costs/c.pbtxt"
    line = "W1115 05:25:18.618704   20727 a.cc:1] PGLE profile file does not exist: /tmp/my costs/c"
    (absent,) = parse_messages(line)
    assert absent.text == "XLA found no cost file for this program (/tmp/my costs/c)"


def test_costs_are_called_as_they_were_given():
    found = parse_messages(PGLE)
    used, *others = naming_costs(found, "s3://bucket/my costs.pb", is_folder=False)
    assert used.text == "the scheduler uses the costs in s3://bucket/my costs.pb"
    assert tuple(others) == found[1:]
    used, *_ = naming_costs(found, "s3://bucket/costs/", is_folder=True)
    assert used.text == "the scheduler uses the costs in s3://bucket/costs/c.pbtxt"


def test_what_became_of_the_costs():
    assert parse_messages(PGLE) == (
        CompilerMessage("pgle-used", "the scheduler uses the costs in /tmp/c.pbtxt"),
        CompilerMessage("pgle-fallback", "for missing costs: using SolLatencyEstimator"),
        CompilerMessage("pgle-found", "1 instructions have a cost in the file"),
        CompilerMessage(
            "pgle-missing",
            "2 instructions have no cost in the file: wrapped_convert, custom-call.1",
            "warning",
        ),
    )
    # The same where the log ends with the names.
    assert parse_messages(PGLE.rpartition("I1115")[0])[-1].text.endswith("custom-call.1")


def test_an_estimator_that_is_not_there():
    (found,) = parse_messages(FALLBACK)
    assert (found.code, found.severity) == ("estimator-fallback", "warning")
    assert "sm_100_GB200" in found.text


def test_errors_without_a_gpu_and_errors():
    log = (
        "E0000 00:00:1731650000.000000 1 cuda_executor.cc:1] failed call to cuInit: 303\n"
        "E1115 05:25:15.000000   1 some_pass.cc:12] Something broke\nin two lines\n"
        "W1115 05:25:15.000000   1 other.cc:12] harmless\n"
    )
    assert parse_messages(log) == (CompilerMessage("xla-error", "Something broke", "warning"),)


def test_autotuning_results_that_are_of_no_use():
    """Results of 2024 are loaded, and no kernel is found in them: their keys were others."""
    log = (
        "I1115 05:47:18.290184   1 autotuner_cache.cc:422] Autotune results loaded from file: /a\n"
        "E1115 05:47:18.290184   1 text_format.cc:1] Error parsing text-format "
        "xla.autotuner.AutotuneCache: 1:8: no field named version\n"
    )
    assert [one.text for one in parse_messages(log)] == ["autotuning results loaded from /a"]
    old = (
        log
        + "I1115 05:47:19.612   1 autotuner_pass.cc:423] Autotuner cache stats: hits=0, misses=1"
    )
    new = (
        log + "I1115 05:47:26.888816   1 config_assigner_pass.cc:533] Config assigner cache stats: "
        "hits=2, misses=0 (strict_hits=0, in_memory_hits=0)"
    )
    (none,), (all_of_them,) = parse_messages(old), parse_messages(new)
    assert none.text.startswith("0 of 1 kernels use the autotuning results in /a; it has no more")
    assert (none.severity, all_of_them.severity) == ("warning", "info")
    assert all_of_them.text == "2 of 2 kernels use the autotuning results in /a"


def test_spills_are_one_message() -> None:
    """As an H200 with autotuning logs them, one for each kernel that is tried."""
    line = (
        "W0000 00:00:1794723325.490106   25553 subprocess_compilation.cc:348] ptxas warning : "
        "Registers are spilled to local memory in function '{}', 4 bytes spill stores"
    )
    log = "\n".join(line.format(name) for name in ("gemm_fusion_dot_4", "gemm_fusion_dot_41") * 3)
    (found,) = parse_messages(log)
    assert (found.code, found.severity) == ("spilling", "info")
    assert found.text.startswith("2 kernels spill registers to memory: gemm_fusion_dot_4, gemm_")
