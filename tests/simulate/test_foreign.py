"""Programs of one kind of machine on another."""

import pytest

from slice_programs import HIDDEN, MACHINE, last, slice_program
from slipstream.machines.topology import machine
from slipstream.simulate.foreign import CODE, foreign
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import program_from_text

BETWEEN = slice_program(HIDDEN + last(3), 2048)
OF_GPUS = program_from_text("""
HloModule jit_step, is_scheduled=true

ENTRY main (a: bf16[1024,1024]) -> bf16[1024,1024] {
  a = bf16[1024,1024]{1,0} parameter(0)
  ROOT b = bf16[1024,1024]{1,0} custom-call(a, a), custom_call_target="__cublas$gemm"
}
""")


@pytest.mark.parametrize(
    ("program", "on", "said"),
    [
        (
            BETWEEN,
            "8xH200",
            "XLA compiled this program for TPUs, and another one for GPUs; compile",
        ),
        (BETWEEN, "v5e:4x4", "this program is for 2 slices, and v5e:4x4 has 1 slice; compile it"),
        (OF_GPUS, "v5e-4", "XLA compiled this program for GPUs, and another one for TPUs; compile"),
    ],
)
def test_a_prediction_says_that_the_program_is_of_another_machine(program, on, said):
    notices = [one for one in predict(program, machine(on)).messages if one.code == CODE]

    assert [one.text.startswith(said) for one in notices] == [True]
    assert notices[0].text.endswith(f"--on {on}")


def test_programs_of_the_machine_itself():
    assert foreign(BETWEEN, machine(MACHINE)) is None
    assert foreign(BETWEEN, machine("4xv5e:4x4")) is None
    assert foreign(OF_GPUS, machine("8xH200")) is None
