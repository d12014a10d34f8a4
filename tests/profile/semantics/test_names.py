import gc
from pathlib import Path
from weakref import ref

import pytest

from recorded import recorded
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics import names
from slipstream.profile.semantics.dataflow import parameter_name
from slipstream.profile.semantics.names import PHASES, describe, phase, phase_of, scope, source
from slipstream.sources.hlo.reader import program_from_text, read_program


def label(program: Program, instruction: Instruction) -> str:
    """One line for an instruction: phase · scope · description · source."""
    found = phase_of(program, instruction)
    scopes = scope(instruction.op_name)
    parts = (
        found if found != "other" else "",
        scopes if scopes != found else "",  # not "optimizer · optimizer"
        describe(program, instruction),
        source(program, instruction),
    )
    return " · ".join(part for part in parts if part)


@pytest.mark.parametrize(
    ("op_name", "expected"),
    [
        ("jit(step)/jvp()/while/body/eval_jaxpr/dot_general", "forward"),
        ("jit(step)/transpose(jvp())/while/body/checkpoint/mul", "backward"),
        ("jit(step)/transpose(jvp())/checkpoint/rematted_computation/dot_general", "remat"),
        ("jit(step)/optimizer/mul", "optimizer"),
        ("jit(step)/optax.adamw/update/mul", "optimizer"),
        ("jit(step)/jvp(jit(transpose))/transpose", "forward"),
        ("jit(step)/transpose", "other"),
        ("params['w1']", "other"),
        ("", "other"),
    ],
)
def test_phase(op_name: str, expected: str) -> None:
    assert phase(op_name) == expected


@pytest.mark.parametrize(
    ("op_name", "expected"),
    [
        ("jit(step)/jvp()/while/body/eval_jaxpr/dot_general", ""),
        ("jit(step)/transpose(jvp(Model))/block/mlp/checkpoint/dot_general", "Model/block/mlp"),
        ("jit(f)/jvp(block/mlp)/jit(silu)/mul", "block/mlp"),
        ("jit(f)/vmap(attention)/vmap(BTNH,BSNH->BNTS)/dot_general", "attention"),
        ("jit(f)/shard_map/ring/cond/branch_1_fun/ppermute", "ring"),
        (
            "pjit(step)/jit(main)/jvp(lm.apply)/lm/lm.loss/x_layers_7/self_attention/qkv/"
            "einsum/ABD,KDNH->KABNH/dot_general[dimension_numbers=(((1,), (2,)), ((), ()))]",
            "lm/x_layers_7/self_attention/qkv",
        ),
        ("jit(f)/a/transpose;jit(f)/b/mul", "a"),
        ("params['w1']", ""),
    ],
)
def test_scope(op_name: str, expected: str) -> None:
    assert scope(op_name) == expected


@pytest.mark.parametrize(
    ("op_name", "expected"),
    [
        ("params['w1']", "w1"),
        ("state.params['layers_0']['mlp']['kernel']", "mlp.kernel"),
        ("state.opt_state[0].mu['w1']", "w1"),
        ("args[0]", "args"),
        ("tok", "tok"),
    ],
)
def test_parameter_name(op_name: str, expected: str) -> None:
    assert parameter_name(op_name) == expected


OFFLOAD = """
copy.77                        backward · copy 4 B
loop_convert_gather_fusion     forward · gather emb · dev_off.py:10
loop_broadcast_fusion          mask 537 MB · model.py:22
while.16                       forward · loop ×8 · dev_off.py:18
custom-call.5                  forward · x @ embᵀ · dev_off.py:19
input_reduce_fusion.7          forward · sum of exp · dev_off.py:20
gemm_fusion_dot.35             backward · dy @ emb · dev_off.py:19
custom-call.15                 backward · ∂emb = xᵀ @ dy · dev_off.py:19
loop_subtract_fusion.2         optimizer · update w1 · dev_off.py:23
input_scatter_fusion           backward · scatter ∂emb · dev_off.py:10
dynamic-update-slice-start.1   forward · copy to host 134 MB · dev_off.py:18
dynamic-update-slice-done.1    forward · wait for copy to host 134 MB · dev_off.py:18
wrapped_dynamic-update-slice   forward · copy to host 134 MB · dev_off.py:18
dynamic-slice-start.1          backward · copy from host 134 MB · dev_off.py:18
loop_convert_fusion.4          forward · slice wqkv 201 MB · model.py:18
fusion.171                     forward · rms norm · model.py:16
custom-call.11                 forward · x @ wqkv · model.py:18
input_transpose_fusion.6       forward · split, transpose 134 MB · model.py:19
gemm_fusion_dot.46             forward · einsum BTNH,BSNH→BNTS · model.py:22
fusion.164                     forward · softmax · model.py:22
gemm_fusion_dot.13             forward · x @ wo + residual · model.py:23
loop_multiply_fusion.2         forward · gelu · model.py:25
loop_add_fusion.2              forward · loop counter · dev_off.py:18
wrapped_convert.1              remat · cast wqkv to bf16 · model.py:18
fusion.240                     remat · cast to bf16
loop_convert_fusion            remat · x × ln1 · model.py:16
custom-call.4                  backward · dy @ w2ᵀ · model.py:25
loop_add_multiply_fusion       remat · gelu′ · model.py:25
custom-call.3                  backward · dy @ woᵀ · model.py:23
fusion.79                      backward · softmax′ · model.py:22
custom-call.13                 backward · ∂w1 = xᵀ @ dy · model.py:25
fusion-start.9                 backward · store ∂ln2 16.4 kB · dev_off.py:18
"""


def test_labels_of_a_training_step() -> None:
    program = recorded("off_default", "jit_step(342693)")
    for line in OFFLOAD.strip().split("\n"):
        name, expected = line.split(maxsplit=1)
        assert label(program, program.instruction(name)) == expected


def test_text_gives_the_same_labels(data: Path) -> None:
    proto = recorded("off_default", "jit_step(342693)")
    text = read_program(data / "off_default.hlo.gz")
    for instruction in text.runnable:
        expected = label(proto, proto.instruction(instruction.name))
        assert label(text, instruction) == expected, instruction.name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-gather-start.5", "forward · all-gather wqkv, wo, w1, w2 25.2 MB · model.py:18"),
        ("all-gather.21", "forward · all-gather wqkv, wo, w1, w2 25.2 MB · model.py:18"),
        ("all-gather-done.6", "forward · wait for all-gather emb 16.8 MB · model.py:28"),
        ("reduce-scatter-start", "backward · reduce-scatter ∂wqkv 6.29 MB · model.py:18"),
        ("all-reduce.9", "backward · all-reduce ∂ln2, ∂ln1 8.19 kB · model.py:16"),
        ("all-to-all-start.21", "backward · all-to-all 33.6 MB · model.py:32"),
    ],
)  # fmt: skip
def test_labels_of_collectives(name: str, expected: str) -> None:
    program = recorded("nccl2_lhs_r0", "jit_train_step(605)")
    assert label(program, program.instruction(name)) == expected


@pytest.mark.parametrize(
    ("recording", "program_name", "name", "expected"),
    [
        ("attention_plain", "jit_step(3972)", "dot_product_attention_bwd.8",
         "backward · attention · flash attention′ · record.py:41"),
        ("attention_plain", "jit_step(3972)", "loop_subtract_fusion.1",
         "optimizer · update w1 · record.py:56"),
        ("attention_plain", "jit_step(3972)", "custom-call.11",
         "forward · mlp · x @ w1 · record.py:44"),
        ("convolution_plain", "jit_step(295726)", "cudnn-conv.37",
         "forward · block0 · x ∗ a0 · record.py:78"),
        ("convolution_plain", "jit_step(295726)", "cudnn-conv-bw-filter.22",
         "backward · block0 · ∂a0 = x ∗ dy · record.py:78"),
        ("convolution_plain", "jit_step(295726)", "cudnn-conv-bw-input.29",
         "backward · block0 · dy ∗ a0ᵀ · record.py:78"),
    ],
)  # fmt: skip
def test_labels_of_library_calls(
    recording: str, program_name: str, name: str, expected: str
) -> None:
    program = recorded(recording, program_name)
    assert label(program, program.instruction(name)) == expected


@pytest.mark.parametrize(
    ("recording", "name"),
    [
        ("off_default", "jit_step(342693)"),
        ("nccl2_lhs_r0", "jit_train_step(605)"),
        ("single", "jit_train_step(0)"),
        ("convolution_plain", "jit_step(295726)"),
    ],
)
def test_everything_has_a_short_label_and_a_phase(recording: str, name: str) -> None:
    program = recorded(recording, name)
    seen = set()
    for instruction in program.runnable:
        text = label(program, instruction)
        assert text and "\n" not in text and len(text) < 100
        found = phase_of(program, instruction)
        assert found in PHASES
        seen.add(found)
    assert {"forward", "backward", "optimizer"} <= seen


def test_a_program_without_names_is_asked_for_each_name_once(monkeypatch) -> None:
    """Dumps may be stripped of op names; a value may have a thousand users."""
    count = 300
    adds = "".join(f"  x{i} = f32[] add(p, p)\n" for i in range(count))
    everything = ", ".join(f"x{i}" for i in range(count))
    kinds = ", ".join(["f32[]"] * count)
    program = program_from_text(
        f"HloModule m, is_scheduled=true\n\nENTRY e {{\n  p = f32[] parameter(0)\n{adds}"
        f"  ROOT t = ({kinds}) tuple({everything})\n}}\n"
    )
    asked = []
    monkeypatch.setattr(names, "phase", lambda op_name: asked.append(op_name) or phase(op_name))
    assert {phase_of(program, one) for one in program.entry.instructions} == {"other"}
    assert len(asked) <= 3 * len(program.entry.instructions)


def test_phases_don_t_keep_a_program():
    program = program_from_text(
        "HloModule m, is_scheduled=true\n\n"
        "ENTRY main {\n  p = f32[2] parameter(0)\n  ROOT n = f32[2] negate(p)\n}\n"
    )
    assert phase_of(program, program.instruction("n")) == "other"
    gone = ref(program)
    del program
    gc.collect()
    assert gone() is None
