"""Every rule finds its planted problem, and nothing in the twin without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders import profile
from diagnosis.rules import planted
from megascale_builder import EXPECTED, GBPS, HEALTHY, PROBLEMS, megascale_profile
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.diagnosis.diagnose import diagnose
from slipstream.machines.topology import machine
from slipstream.profile.profile import Profile
from slipstream.results.diagnosis import BASES, Diagnosis, Finding
from slipstream.sources.load import load

Make = Callable[[], Profile]
TWINS: dict[str, tuple[Make, Make, set[str]]] = {
    "host-copies": (lambda: planted.captured(True), lambda: planted.captured(False), {"offload"}),
    "attention": (planted.attention, planted.fused_attention, set()),
    "float32": (lambda: planted.products("f32"), lambda: planted.products("bf16"), set()),
    "odd-shapes": (
        lambda: planted.odd_products(50257),
        lambda: planted.odd_products(50304),
        set(),
    ),
    "layout-copies": (
        lambda: planted.moved(planted.TRANSPOSE, 100),
        lambda: planted.moved(planted.NEGATE, 100),
        set(),
    ),
    "converts": (
        lambda: planted.moved(planted.CONVERT, 100),
        lambda: planted.moved(planted.CONVERT, 5),
        set(),
    ),
    "resharding": (planted.resharded, lambda: planted.resharded(us=5), {"zero-slack"}),
    "host-callbacks": (lambda: planted.callbacks(300), lambda: planted.callbacks(1), set()),
    "remat": (planted.remat, lambda: planted.remat(again=False), set()),
    "offload": (planted.offloaded, lambda: planted.offloaded(compute=1e7), {"zero-slack"}),
    "transfers": (lambda: planted.transfers(500), lambda: planted.transfers(5), set()),
    "small-collectives": (
        lambda: planted.gathers(16),
        lambda: planted.gathers(1, 16, us=5.0),
        {"zero-slack", "pgle-unused"},
    ),
    "scheduler-off": (
        lambda: planted.synchronous(4, is_sync=True),
        lambda: planted.synchronous(4, is_sync=False),
        set(),
    ),
    "zero-slack": (
        lambda: planted.late_gather(60),
        lambda: planted.late_gather(60, early=True),
        {"pgle-unused"},
    ),
    "straggler": (
        lambda: planted.straggling(300),
        lambda: planted.straggling(0),
        # What it waits at is an all-gather of activations.
        {"zero-slack", "pgle-unused", "resharding"},
    ),
    "slow-links": (
        lambda: planted.gathers(1, 64, us=20_000.0),
        lambda: planted.gathers(1, 64, us=5.0),
        {"zero-slack"},
    ),
    "input-bound": (
        lambda: planted.idle(200, "$api.py:99 device_put"),
        lambda: planted.idle(4, "$api.py:99 device_put"),
        set(),
    ),
    "host-bound": (
        lambda: planted.idle(200, "$train.py:7 log"),
        lambda: planted.idle(4, "$train.py:7 log"),
        set(),
    ),
    "compile-pauses": (
        lambda: planted.idle(200, "backend_compile"),
        lambda: planted.idle(4, "backend_compile"),
        set(),
    ),
    "launch-bound": (
        lambda: planted.idle(200, "GpuExecutable::ExecuteThunks"),
        lambda: planted.idle(4, "GpuExecutable::ExecuteThunks"),
        set(),
    ),
}
"""rule: the step with the problem, the same without it, and other rules that find it"""


def rules(found: Diagnosis) -> list[str]:
    return [finding.rule for finding in found.findings]


def only(found: Diagnosis, rule: str) -> Finding:
    (one,) = [finding for finding in found.findings if finding.rule == rule]
    return one


@pytest.mark.parametrize("rule", TWINS)
def test_a_planted_problem_is_found_and_its_twin_is_healthy(rule: str) -> None:
    sick, healthy, symptoms = TWINS[rule]
    assert set(rules(diagnose(sick()))) == {rule, *symptoms}
    assert rules(diagnose(healthy())) == []


@pytest.mark.parametrize("rule", TWINS)
def test_findings_are_complete(rule: str) -> None:
    found = diagnose(TWINS[rule][0]())
    one = only(found, rule)
    assert one.title and one.evidence and one.changes and one.exhibits
    assert one.see.startswith("slipstream ") and " PATH" in one.see
    assert one.gain.basis in BASES and one.gain.why
    assert all(exhibit.us > 0 for exhibit in one.exhibits)
    likely = one.gain.high_us if one.gain.us is None else one.gain.us
    assert likely is not None and one.gain.high_us is not None
    assert 0 <= one.gain.low_us <= likely <= one.gain.high_us <= found.step_us


def test_findings_show_source_lines() -> None:
    for rule in ("attention", "float32", "remat", "offload", "small-collectives", "zero-slack"):
        shown = only(diagnose(TWINS[rule][0]()), rule).exhibits
        assert "model.py:7" in {exhibit.source for exhibit in shown}, rule


def test_a_copy_that_graphs_serialise_would_be_hidden() -> None:
    """4 ms in line with 9 ms of products: all of it hides behind them, even if it slows down."""
    one = only(diagnose(planted.captured(True)), "host-copies")
    assert one.gain.us == pytest.approx(4000, rel=0.01)
    assert one.gain.low_us == pytest.approx(4000 - 130, rel=0.01)
    assert one.changes[0].text == "--xla_gpu_enable_command_buffer="
    assert [change.kind for change in one.changes] == ["flag"], "no loop to unroll"


def test_attention_is_modelled() -> None:
    """1,400 µs now; 2 products of 64 × 2048 × 2048 × 128 in bf16 at cuDNN's speed."""
    one = only(diagnose(planted.attention()), "attention")
    flops = 2 * 2 * planted.HEADS * planted.TOKENS**2 * planted.HEAD
    assert one.gain.us is not None
    fused = 1400 - one.gain.us
    assert flops / 989e12 * 1e6 < fused < 3 * flops / 989e12 * 1e6
    assert {e.name for e in one.exhibits} == {"dot.1", "fusion.1", "dot.2"}
    assert "64 × 2048 × 2048 scores" in one.evidence
    assert one.changes[0].text == 'jax.nn.dot_product_attention(q, k, v, implementation="cudnn")'


def test_full_float32_gains_more_than_tf32() -> None:
    full = only(diagnose(planted.products("f32", "highest")), "float32")
    half = only(diagnose(planted.products("f32")), "float32")
    assert full.title == "matmuls run in full float32: TF32 is off"
    assert full.changes[0].text.endswith('"tensorfloat32")')
    assert half.title == "matmuls have float32 operands"
    assert full.gain.us is not None and half.gain.us is not None
    # 494 against 67, and 989 against 494, TFLOP/s of an H200; not all reach the same share.
    assert full.gain.us / 6000 == pytest.approx(1 - 67 / 494, abs=0.03)
    assert half.gain.us / 6000 == pytest.approx(0.55, abs=0.1)
    # High, one below highest, is TF32 too.
    high = only(diagnose(planted.products("f32", "high")), "float32")
    assert high.title == half.title


def test_remat_is_kept_where_there_is_room() -> None:
    one = only(diagnose(planted.remat()), "remat")
    policies = [change.text.rpartition(".")[2] for change in one.changes]
    assert policies == ["dots_with_no_batch_dims_saveable", "everything_saveable"]
    # One result of 134 MB, written and read at 4.8 TB/s instead of 2 ms of computing.
    assert one.gain.us == pytest.approx(2000 - 2 * 8192**2 * 2 / 4.8e12 * 1e6, rel=1e-3)
    # 43 GB each of x, what is computed and its sum leave no room for another.
    assert rules(diagnose(planted.remat(rows=2_600_000))) == []


def test_offloading_is_right_where_memory_is_short() -> None:
    one = only(diagnose(planted.offloaded()), "offload")
    assert "268 MB live in host memory" in one.evidence
    assert one.changes[0].text == "jax.checkpoint_policies.save_only_these_names(…)"
    assert "offload" not in rules(diagnose(planted.offloaded(size=40 << 30)))


def test_thresholds_hold_what_is_combined() -> None:
    one = only(diagnose(planted.gathers(16)), "small-collectives")
    assert one.changes[0].text == "--xla_gpu_all_gather_combine_threshold_bytes=33554432"
    assert "16 all-gathers per step, 1.05 MB to 1.05 MB each" in one.evidence
    assert "could be combined into 1" in one.evidence
    # 96 of them make 96 MiB, three times 32.
    many = only(diagnose(planted.gathers(96)), "small-collectives")
    assert many.changes[0].text.endswith("=100663296")


def test_a_chain_of_collectives_can_not_be_combined() -> None:
    assert "small-collectives" not in rules(diagnose(planted.synchronous(8, is_sync=True)))


def test_the_scheduler_is_off_where_the_settings_say_so() -> None:
    # One collective alone may be synchronous for good reasons.
    one = planted.synchronous(1, is_sync=True)
    assert "scheduler-off" not in rules(diagnose(one))
    off = {
        "xla_gpu_enable_latency_hiding_scheduler": "false",
        "xla_gpu_enable_analytical_sol_latency_estimator": "false",
    }
    found = only(diagnose(one, settings=off), "scheduler-off")
    assert found.title == "the latency-hiding scheduler is off"
    assert found.changes[0].text == "--xla_gpu_enable_latency_hiding_scheduler=true"
    assert "0 of" not in found.evidence, "none of them is synchronous"
    # The analytical estimator alone switches it on.
    assert "scheduler-off" not in rules(diagnose(one, settings={next(iter(off)): "false"}))


def test_settings_that_turn_the_scheduler_on_are_not_contradicted() -> None:
    on = {"xla_gpu_enable_latency_hiding_scheduler": "true"}
    found = only(diagnose(planted.synchronous(4, is_sync=True), settings=on), "scheduler-off")
    assert found.title == "collectives run synchronously"
    assert "the run's settings turn the latency-hiding scheduler on" in found.evidence
    assert [change.text for change in found.changes] == ["slipstream slack PATH"]


def test_costs_are_checked_where_they_are_given() -> None:
    found = planted.late_gather(60)
    fitting = {"negate.1": 1000.0, "all-gather-start.1": 60.0, "add.1": 100.0}
    assert _with_costs(found, fitting) == set()
    most = {name: us for name, us in fitting.items() if name != "add.1"}
    assert _with_costs(found, most) == set(), "91% of the device time"
    assert _with_costs(found, {"negate.1": 1000.0}) == {"pgle-stale"}, "86% of it"
    assert _with_costs(found, {"fusion.9": 1000.0}) == {"pgle-stale"}
    slow = {name: 3 * us for name, us in fitting.items()}
    assert _with_costs(found, slow) == {"pgle-stale"}


def _with_costs(found: Profile, us: dict[str, float]) -> set[str]:
    costs = {name: Cost(name, one) for name, one in us.items()}
    table = CostTable((ProgramCosts(None, "", costs),))
    return {rule for rule in rules(diagnose(found, costs=table)) if rule.startswith("pgle")}


def test_a_run_with_costs_is_asked_for_them() -> None:
    given = {"xla_gpu_pgle_profile_file_or_directory_path": "costs.pb"}
    found = diagnose(planted.late_gather(60), settings=given)
    assert "pgle-unused" not in rules(found)
    assert {one.rule: one.why for one in found.abstained}["pgle-unused"] == (
        "the run had a PGLE profile; name it to have it checked: --costs PATH"
    )


def test_a_slow_link_differs_from_a_network_if_the_machine_is_known() -> None:
    """64 MiB in 1 ms: much for NVLink, little for a network of 50 GB/s."""
    made = planted.gathers(1, 64, us=1_000.0)
    found = diagnose(made)
    assert "slow-links" not in rules(found)
    assert {one.rule: one.why for one in found.abstained}["slow-links"] == (
        "collectives take over 4 times as long as modelled for 1x2xH200, but not if each GPU has "
        "its own host; specify how they are connected: --on"
    )
    together = diagnose(made, machine=machine("2xH200"))
    one = only(together, "slow-links")
    assert "take over 4 times as long as modelled for 2 H200: all-gather-start.0" in one.evidence
    assert "in 1 ms, modelled" in one.evidence
    apart = diagnose(made, machine=machine("2x1xH200"))
    assert "slow-links" not in {*rules(apart), *(one.rule for one in apart.abstained)}


def test_a_large_collective_is_not_small() -> None:
    assert "small-collectives" not in rules(diagnose(planted.gathers(4, 512, us=3_000.0)))


def test_the_straggler_is_named() -> None:
    one = only(diagnose(planted.straggling(300)), "straggler")
    assert one.title == "the other devices wait for GPU:1 of other"
    assert one.gain.us == pytest.approx(300, rel=0.01)
    assert "It computes for 1.3 ms per step, 30% longer than the others." in one.evidence


def test_idle_time_is_attributed_to_host_activity() -> None:
    one = only(diagnose(planted.idle(200, "$api.py:99 device_put")), "input-bound")
    assert one.exhibits[0].name == "$api.py:99 device_put"
    assert one.gain.us == pytest.approx(195)
    late = diagnose(profile().kernel("dot.1", 100).idle(50).kernel("dot.2", 100).build())
    assert rules(late) == []
    assert {one.rule for one in late.abstained} == {
        "launch-bound",
        "input-bound",
        "host-bound",
        "compile-pauses",
    }


@pytest.mark.parametrize("trouble", PROBLEMS)
def test_problems_of_megascales_guide_are_found(trouble: str, tmp_path: Path) -> None:
    found = diagnose(megascale_profile(tmp_path, PROBLEMS[trouble]), slice_gbps=GBPS)
    assert set(rules(found)) == {f"megascale-{code}" for code in EXPECTED[trouble]}
    if trouble == "map-dma-buffer":
        (one,) = found.findings
        assert one.changes[0].text == (
            "LIBTPU_INIT_ARGS=--megascale_grpc_premap_memory_bytes=BYTES"
        )


def test_a_healthy_run_of_slices(tmp_path: Path) -> None:
    assert rules(diagnose(megascale_profile(tmp_path, HEALTHY), slice_gbps=GBPS)) == []


def test_rules_that_need_the_program_abstain_without_it() -> None:
    built = profile(known=False)
    for _ in range(3):
        built.kernel("dot.1", 100).all_reduce(50).execution_of()
    found = diagnose(built.build())
    assert (found.findings, found.program) == ((), "")
    said = {one.rule: one.why for one in found.abstained}
    assert (
        said.pop("straggler")
        == "only one device was recorded, so waits between devices are unknown"
    )
    assert set(said.values()) == {"the profile has no copy of the program"}
    assert {"host-copies", "attention", "zero-slack", "pgle-unused"} <= said.keys()
    assert set(found.clear) == {
        "launch-bound",
        "input-bound",
        "host-bound",
        "compile-pauses",
        "megascale",
        "transfers",
    }


def test_gpu_rules_abstain_on_tpus(tmp_path: Path) -> None:
    found = diagnose(megascale_profile(tmp_path, HEALTHY))
    said = {one.rule for one in found.abstained if one.why.startswith("it applies to GPUs")}
    assert {"host-copies", "attention", "scheduler-off", "launch-bound", "slow-links"} <= said


def test_an_empty_profile() -> None:
    found = diagnose(profile().build())
    assert found.findings == () and found.abstained == ()
    assert found.notes == ("the profile has no device events, so there is nothing to diagnose",)


def test_events_that_take_no_time() -> None:
    built = profile().kernel("dot.1", 0).copy(0).all_reduce(0).build()
    found = diagnose(built)
    assert found.findings == () and found.abstained == () and found.step_us == 0
    assert found.notes == (
        "the device events of the profile take no time, so there is nothing to diagnose",
    )


def test_an_unknown_gpu() -> None:
    made = planted.products("f32")
    devices = tuple(replace(device, model="Voodoo 2") for device in made.devices)
    found = diagnose(replace(made, devices=devices))
    assert found.findings == ()
    assert [(one.rule, one.why) for one in found.abstained] == [
        ("float32", "the matmul throughput of Voodoo 2 is unknown")
    ]


def test_wrong_results_come_before_slow_steps() -> None:
    found = diagnose(planted.summed("f32"))
    first = found.findings[0]
    assert (first.rule, first.is_wrong) == ("wrong-results", True)
    assert first.evidence.startswith(
        "bitcast.1 reads bf16[2,512] (2.05 kB) as f32[1024] (4.1 kB): XLA's pass"
    )
    assert first.changes[0].text == "--xla_disable_hlo_passes=all-reduce-contiguous"
    (shown,) = first.exhibits
    assert (shown.name, shown.source) == ("bitcast.1", "model.py:7")
    assert shown.note == "bf16[2,512] as f32[1024], feeds an all-reduce"
    assert "wrong-results" in diagnose(planted.summed("half")).clear


def test_passes_that_are_off_already_stay_off() -> None:
    settings = {"xla_disable_hlo_passes": "algsimp"}
    found = diagnose(planted.summed("f32"), settings=settings)
    changes = found.findings[0].changes
    assert changes[0].text == "--xla_disable_hlo_passes=algsimp,all-reduce-contiguous"


def test_resharding_names_the_line_both_shardings_and_the_constraint() -> None:
    one = only(diagnose(planted.resharded()), "resharding")
    assert (
        "[16, 2048, 4096] is split along dimension 0 before and split along dimension 2 after"
        in (one.evidence)
    )
    assert one.changes[0].text == 'jax.lax.with_sharding_constraint(x, P("axis", None, None))'
    assert "before model.py:7" in one.changes[0].note
    gathered = only(diagnose(planted.resharded("all-gather")), "resharding")
    assert "split along dimension 0 before and whole after" in gathered.evidence


def test_collectives_that_the_model_calls_are_no_resharding() -> None:
    assert "resharding" not in rules(diagnose(planted.resharded(name="all_to_all")))
    # Gathers of weights, as with FSDP.
    assert "resharding" not in rules(diagnose(planted.gathers(1, 64, us=20_000.0)))


def test_resharding_in_a_recording_of_two_ranks(data: Path) -> None:
    """Attention's scores go from a split along the batch to one along the heads."""
    one = only(diagnose(load(data / "nccl2_lhs_r0.xplane.pb.gz")), "resharding")
    assert one.exhibits[0].source == "model.py:22"
    assert [exhibit.note for exhibit in one.exhibits[:3]] == [
        "dimension 0 → 1",
        "dimension 2 → whole",
        "dimension ? → 0",
    ]
    assert "[16, 8, 2048, 2048] is split along dimension 0 before" in one.evidence
    assert one.gain.us is None and one.gain.high_us is not None and one.gain.low_us == 0


def test_odd_shapes_say_what_to_pad_to() -> None:
    one = only(diagnose(planted.odd_products(50257)), "odd-shapes")
    assert one.changes[0].text == "size = 50304  # instead of 50257"
    tiles = only(diagnose(planted.odd_products(8192, rows=450)), "odd-shapes")
    assert "450 is no multiple of 64" in tiles.evidence


def test_copies_in_the_same_layout_are_not_taken_for_another() -> None:
    assert rules(diagnose(planted.moved(planted.KEPT, 100))) == []
    assert rules(diagnose(planted.moved(planted.RELAYOUT, 100))) == ["layout-copies"]


def test_float32_among_products_of_16_bits() -> None:
    one = only(diagnose(planted.mixed_products()), "float32")
    assert one.title == "some matmuls have float32 operands among others of 16 bits"
    assert one.evidence.endswith("Other matmuls with 16-bit operands: 1.")


def test_layout_copies_of_a_recorded_convolution(external: Path) -> None:
    one = only(diagnose(load(external / "jax_mi300_8gpu.xplane.pb")), "layout-copies")
    assert one.exhibits[0].description == "transpose 572 MB"
    assert "NHWC" in one.changes[0].text
