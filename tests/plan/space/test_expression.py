"""Conditions are evaluated without running anything."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import BadInput
from slipstream.plan.space.expression import parse_where, work_of

VALUES = {"fsdp": 4, "tensor": 2, "remat": "full", "scan": True, "chunk": None, "devices": 8}
NAMES = {name: (value,) for name, value in VALUES.items()}


def holds(text):
    return all(one.holds(VALUES) for one in parse_where(text, NAMES))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor <= 8 and fsdp * tensor == devices", True),
        ("1 < tensor <= 4 < fsdp", False),
        ("remat == 'full'", True),
        ("remat in ('none', 'dots')", False),
        ("fsdp not in [1, 2]", True),
        ("scan and not (tensor > 2 or fsdp % 2 == 1)", True),
        ("devices // tensor - 1 >= +fsdp / 2 + -1", True),
        ("chunk == None", True),
        ("not scan", False),
    ],
)
def test_conditions(text, expected):
    assert holds(text) is expected


def test_the_parts_of_a_condition():
    parts = parse_where("(fsdp > 1 and scan) and (tensor == 1 or fsdp == 2)", NAMES)
    assert [(one.text, sorted(one.names)) for one in parts] == [
        ("fsdp > 1", ["fsdp"]),
        ("scan", ["scan"]),
        ("tensor == 1 or fsdp == 2", ["fsdp", "tensor"]),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensr <= 8", "there is no choice 'tensr'; did you mean tensor\\? choose from: fsdp, "),
        ("remat == full", r"no choice 'full'.* \(a value of remat needs quotes: 'full'\)"),
        ("tensor <=", "can't be read .*expected a condition such as"),
        ("", "can't be read"),
        ("tensor = 8", "can't be read"),
        ("(" * 5000 + "1" + ")" * 5000, "can't be read"),
        ("tensor <= 8; import os", "can't be read"),
        ("__import__('os').system('true')", "is not allowed"),
        ("fsdp.__class__ == 1", "fsdp.__class__ is not allowed"),
        ("[x for x in (1,)] == 1", "is not allowed"),
        ("2 ** fsdp > 1", r"2 \*\* fsdp is not allowed; .*\+ - \* / // %"),
        ("~fsdp > 1", "~fsdp is not allowed"),
        ("(lambda: 1) == 1", "is not allowed"),
        ("f'{fsdp}' == '4'", "is not allowed"),
        ("remat[0] == 'f'", "is not allowed"),
        ("remat == b'full'", "is not allowed"),
        ("remat == '\\d' is 4", "is not allowed"),
        ("fsdp is 4", "is not allowed"),
        ("fsdp * tensor", r"fsdp \* tensor is 8, not true or false; compare it"),
        ("not (tensor > 2 or fsdp % 2)", "fsdp % 2 is 0, not true or false; compare it"),
        ("remat * 9 == 'x'", "remat is 'full'; expected a number there"),
        ("remat <= 8", "compares 'full' with 8; expected values that can be compared"),
        ("chunk > 1", "compares None with 1"),
        ("fsdp in devices", "compares 4 with 8"),
    ],
)
def test_conditions_that_cannot_be_used(text, message):
    with pytest.raises(BadInput, match=message):
        holds(text)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_bad_input(text):
    with suppress(BadInput, ArithmeticError):
        holds(text)


def test_work_is_a_number_of_choices_and_sizes():
    values = {"batch": 4, "data": 8, "devices": 64, "remat": "full"}
    assert work_of("batch * data * 8192", values) == 4 * 8 * 8192
    assert work_of("4096", values) == 4096


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batches * 2", r"--work 'batches \* 2': there is no choice 'batches'; did you mean batch"),
        ("batch / (data - 8)", "--work .* can't be computed"),
        ("-batch", "is -4; expected a number above 0"),
        ("remat", "--work: remat is 'full'; expected a number there"),
        ("batch *", "--work 'batch \\*' can't be read"),
        ("open('x')", "--work .* is not allowed"),
    ],
)
def test_work_that_is_no_number_says_why(text, message):
    with pytest.raises(BadInput, match=message):
        work_of(text, {"batch": 4, "data": 8, "remat": "full"})
