"""What limits a step: its parts, and what its communication moves over which link."""

from dataclasses import replace

import pytest

from recorded import DATA
from schedules import MACHINE
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.machines.topology import machine
from slipstream.plan.report.limits import _is_network, _moved, limits_of, link_name
from slipstream.profile.program import Collective, Program
from slipstream.results.planning import COMMUNICATION_PARTS, Limit
from slipstream.results.prediction import Prediction
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import program_from_text, read_program

HOSTS = replace(MACHINE, spec="2x2xToy", hosts=2)
LOOP = """
%body (s: (s32[], f32[64,64], f32[32,64])) -> (s32[], f32[64,64], f32[32,64]) {
  %s = (s32[], f32[64,64], f32[32,64]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %h = f32[64,64] get-tuple-element(%s), index=1
  %part = f32[32,64] get-tuple-element(%s), index=2
  %gather = (f32[32,64], f32[64,64]) all-gather-start(%part), replica_groups={{0,2},{1,3}}, dimensions={0}, channel_id=1
  %norm = f32[64,64] negate(%h), metadata={op_name="jit(step)/jvp()/norm"}
  %whole = f32[64,64] all-gather-done(%gather)
  %product = f32[64,64] dot(%norm, %whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/jvp()/mlp/dot"}
  %again = f32[64,64] negate(%product), metadata={op_name="jit(step)/transpose(jvp())/rematted_computation/mlp/neg"}
  %sum = f32[64,64] all-reduce(%again), replica_groups={{0,1},{2,3}}, to_apply=%add, channel_id=2, metadata={op_name="jit(step)/jvp()/mlp/psum"}
  ROOT %next = (s32[], f32[64,64], f32[32,64]) tuple(%i, %sum, %part)
}
%condition (s: (s32[], f32[64,64], f32[32,64])) -> pred[] {
  %s = (s32[], f32[64,64], f32[32,64]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(4)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}
"""  # noqa: E501
TEXT = f"""HloModule toy, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}}
{LOOP}
ENTRY %main (x: f32[64,64], w: f32[32,64]) -> f32[64,64] {{
  %x = f32[64,64] parameter(0)
  %w = f32[32,64] parameter(1), metadata={{op_name="params['layers']['up']"}}
  %zero = s32[] constant(0)
  %state = (s32[], f32[64,64], f32[32,64]) tuple(%zero, %x, %w)
  %loop = (s32[], f32[64,64], f32[32,64]) while(%state), condition=%condition, body=%body, backend_config={{"known_trip_count":{{"n":"4"}}}}
  ROOT %y = f32[64,64] get-tuple-element(%loop), index=1
}}
"""  # noqa: E501
COSTS = {"gather": 300.0, "norm": 100.0, "product": 500.0, "again": 60.0, "sum": 40.0}


@pytest.fixture(scope="module")
def program() -> Program:
    return program_from_text(TEXT)


def predicted(program: Program) -> Prediction:
    table = {name: Cost(name, us) for name, us in COSTS.items()}
    costs = CostTable((ProgramCosts(None, "toy", table),))
    found = predict(program, HOSTS, costs, command_buffers=False)
    return replace(found, memory_bytes=600_000_000)


def test_parts_and_limits_of_a_step(program: Program) -> None:
    prediction = predicted(program)
    limits, parts = limits_of(prediction, program, HOSTS)
    assert sum(parts.values()) == pytest.approx(prediction.step_us)
    assert parts == pytest.approx(
        {
            "products": 2000,
            "memory traffic": 400,
            "recomputation": 240,
            "exposed NVLink": 160,
            "exposed network": 800,
            "idle": parts["idle"],
        },
        abs=30,
    )
    assert list(parts)[0] == "products" and list(parts)[-1] == "idle"
    assert [(limit.kind, limit.text) for limit in limits if limit.kind != "idle"] == [
        ("products", "matrix products"),
        (
            "exposed communication",
            "all-gathers of weights (up) over InfiniBand (80 Gb/s), in a loop × 4",
        ),
        ("memory traffic", "kernels that move data through memory"),
        ("recomputation", "values computed again for the backward pass"),
        ("exposed communication", "all-reduces of activations in mlp over NVLink, in a loop × 4"),
        ("memory", "600 MB of 1 GB"),
    ]
    times = [limit for limit in limits if limit.us is not None]
    assert all(
        limit.share == pytest.approx((limit.us or 0) / prediction.step_us) for limit in times
    )
    assert limits[-1] == Limit("memory", 0.6, None, "600 MB of 1 GB")


def test_the_parts_agree_with_the_prediction(program: Program) -> None:
    prediction = predicted(program)
    _, parts = limits_of(prediction, program, HOSTS)
    exposed = sum(parts.get(part, 0.0) for part in COMMUNICATION_PARTS)
    assert exposed == pytest.approx(prediction.exposed_communication_us)
    assert parts["idle"] == pytest.approx(prediction.idle_us, abs=0.01)


def test_without_a_timeline_only_memory_is_known(program: Program) -> None:
    bare = replace(predicted(program), timeline=None, memory_bytes=None)
    assert limits_of(bare, program, HOSTS) == ((), {})


def test_the_bubble_of_a_pipeline_is_taken_from_what_its_loop_does(program: Program) -> None:
    """As above, with the state handed along chains of two devices: one of four turns is empty."""
    permute = "collective-permute(%h), source_target_pairs={{0,1},{2,3}}, channel_id=3"
    text = TEXT.replace(
        "  %norm = f32[64,64] negate(%h)",
        f"  %moved = f32[64,64] {permute}\n  %norm = f32[64,64] negate(%moved)",
    )
    pipeline = program_from_text(text)
    prediction = predicted(pipeline)
    limits, parts = limits_of(prediction, pipeline, HOSTS)
    assert sum(parts.values()) == pytest.approx(prediction.step_us)
    assert parts["products"] == pytest.approx(1500, abs=30)
    assert parts["pipeline bubble"] == pytest.approx(prediction.step_us / 4, rel=0.05)
    (bubble,) = (limit for limit in limits if limit.kind == "pipeline bubble")
    assert bubble.text == "1 of 4 turns of a pipeline of 2 stages have no microbatch to work on"


def test_links_are_called_what_they_are():
    names = [(spec, link_name(machine(spec), False)) for spec in ("8xH200", "A100-PCIe", "v5p-8")]
    assert names == [("8xH200", "NVLink"), ("A100-PCIe", "PCIe"), ("v5p-8", "ICI")]
    assert link_name(machine("2xv5e-256"), True) == "the data-centre network (25 Gb/s)"


def test_between_slices_of_tpus_there_is_the_network():
    slices = machine("2xv5e-4")
    sent = Collective("send", 10**6, 2, ((0, 4),))
    assert _is_network(slices, sent) and not _is_network(slices, replace(sent, kind="all-reduce"))


def test_gradients_that_go_to_other_slices_are_named():
    program = read_program(DATA / "tpu" / "v5e_2slices.hlo.gz")
    assert _moved(program, program.instruction("send.10")) == ("gradients", ("qkv",))
