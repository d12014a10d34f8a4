"""Custom calls that were measured, from a program to a machine file and back to a prediction."""

import pytest

from slipstream.errors import BadInput
from slipstream.machines.calibrate import machine_data
from slipstream.machines.files import read_machine, with_calls, write_machine
from slipstream.machines.kernel_model import kernel_time
from slipstream.machines.measured_calls import MeasuredCall, measured_calls
from slipstream.sources.hlo.reader import program_from_text

PROGRAM = program_from_text(
    """HloModule calls, is_scheduled=true

ENTRY main {
  x = f32[8,64]{1,0} parameter(0)
  y = f32[16,64]{1,0} parameter(1)
  first = f32[8,64]{1,0} custom-call(x), custom_call_target="mine"
  again = f32[8,64]{1,0} custom-call(first), custom_call_target="mine"
  wider = f32[16,64]{1,0} custom-call(y), custom_call_target="mine"
  pallas = f32[8,64]{1,0} custom-call(again), custom_call_target="__gpu$xla.gpu.triton", backend_config="{name = \\"softmax\\"}"
  ROOT product = (f32[8,8]{1,0}, s8[32]{0}) custom-call(x, x), custom_call_target="__cublas$gemm"
}
"""  # noqa: E501
)
US = {"first": 40.0, "again": 42.0, "pallas": 7.0, "product": 3.0}


def test_calls_of_a_users_own_are_kept_by_name_and_shapes():
    found = measured_calls(PROGRAM, US, "run")
    assert found == [
        MeasuredCall("mine", ("f32[8,64]",), 42.0, "run"),
        MeasuredCall("softmax (Pallas)", ("f32[8,64]",), 7.0, "run"),
    ]


def test_a_machine_file_keeps_them_and_predictions_use_them(tmp_path):
    file = tmp_path / "mine.toml"
    calls = measured_calls(PROGRAM, US, "run")
    write_machine(file, machine_data("H200", [], (1, 1), calls=calls))
    machine = read_machine(file)
    estimate = kernel_time(machine, PROGRAM, PROGRAM.instruction("first"))
    assert (estimate.us, estimate.basis) == (42.0, "calibrated")
    assert estimate.why == "measured with these shapes: run"
    assert kernel_time(machine, PROGRAM, PROGRAM.instruction("pallas")).us == 7.0
    # Other shapes were not measured.
    assert kernel_time(machine, PROGRAM, PROGRAM.instruction("wider")).basis == "default"


def test_new_measurements_are_added_to_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    write_machine(
        file,
        {
            "gpu": "H100",
            "hosts": 4,
            "calibration": {
                "kernels": {"scales": {"gemm": 1.1}},
                "calls": [{"name": "mine", "operands": ["f32[8,64]"], "us": 50.0}],
            },
        },
    )
    added = [MeasuredCall("mine", ("f32[8,64]",), 41.0), MeasuredCall("other", (), 5.0)]
    write_machine(file, with_calls(file, added))
    machine = read_machine(file)
    assert (machine.gpu.name, machine.hosts) == ("H100", 4)
    assert machine.calibration["kernels"] == {"scales": {"gemm": 1.1}}
    assert [(row["name"], row["us"]) for row in machine.calibration["calls"]] == [
        ("mine", 41.0),
        ("other", 5.0),
    ]


@pytest.mark.parametrize(
    "row",
    [
        'name = "mine"',
        'name = "mine"\noperands = ["f32[8]"]\nus = -1',
        "name = 3\noperands = []\nus = 1",
        'name = "mine"\noperands = "f32[8]"\nus = 1',
    ],
)
def test_rows_that_cannot_be_used_are_named(row, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f'gpu = "H200"\n[[calibration.calls]]\n{row}\n')
    with pytest.raises(BadInput, match=r"call 1 in calibration.calls of .*expected name"):
        read_machine(file)


def test_a_calibration_in_another_file_is_changed_there(tmp_path):
    (tmp_path / "other.toml").write_text('gpu = "H200"\n[calibration]\n')
    file = tmp_path / "mine.toml"
    file.write_text('gpu = "H200"\ncalibration = "other.toml"\n')
    with pytest.raises(BadInput, match="add the calls to that file: -o .*other.toml"):
        with_calls(file, [])
