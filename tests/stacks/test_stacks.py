"""Training scripts of all kinds end under `slipstream run` as they do without it."""

import re

import pytest

from stacks.both_ways import is_compared, run_both_ways
from stacks.rows import ROWS, keep_row
from stacks.table import STACKS

VERDICTS = {"faster", "no different", "slower", "can't tell"}


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_a_script_is_left_as_it_is_and_its_step_is_measured(stack, tmp_path):
    if stack.missing:
        pytest.skip(f"not installed: {', '.join(stack.missing)}; make test-stacks runs it")
    # That takes as long as the machine needs; `make test` does without.
    both = run_both_ways(stack, tmp_path, until_compared=bool(ROWS))
    bare, ours = both.bare, both.ours
    if ROWS:
        keep_row(stack, both)
    assert bare.code == stack.code, bare.err
    assert ours.code == bare.code, ours.err
    assert len(bare.losses) >= 10
    assert ours.losses == bare.losses
    assert ours.files == bare.files
    assert re.fullmatch(stack.function, both.function), both.receipt["why"]
    assert both.receipt["verdict"] in VERDICTS
    assert not ROWS or is_compared(both.receipt), both.receipt["why"]
