"""Native functions stay inside of their arrays, whatever a file says; a short run of `run.py`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fuzz.guard_pages import name_of
from fuzz.native_inputs import NATIVE
from fuzz.run import campaign
from slipstream.native.warmup import native_functions

EXECUTIONS = 8000


def test_native_functions_stay_inside_of_their_arrays() -> None:
    found = campaign([*NATIVE, "profiles of any times"], EXECUTIONS)
    assert {name: one.defects for name, one in found.items() if one.defects} == {}
    assert sum(one.executions for one in found.values()) == pytest.approx(EXECUTIONS, rel=0.01)
    called = set().union(*(one.called for one in found.values()))
    left_out = {name_of(function) for function in native_functions()} - called
    assert not left_out, "make inputs for these in tests/fuzz/native_inputs.py"


FAULTS = """
    import os, signal, sys
    import numpy as np
    from fuzz.guard_pages import OutsideArray, guarded
    from slipstream.native import native

    @native("i64(i64*, i64, i64)")
    def read(data, at, _):
        return data[at]

    @native("i64(i64*, i64, i64)")
    def write(data, at, value):
        data[at] = value
        return 0

    def outcome(side, function, at):
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with guarded(side):
            try:
                function(np.zeros(3, np.int64), at, 7)
            except OutsideArray:
                os._exit(1)
        os._exit(0)

    read.prepare(), write.prepare()
    for function in (read, write):
        for side in ("left", "right"):
            print(side, *(outcome(side, function, at) for at in (-1, 0, 2, 3)))
"""


def test_what_lies_outside_is_found(tmp_path: Path) -> None:
    """Behind an array at the right, before one at the left; a write on the other side, too."""
    script = tmp_path / "faults.py"
    script.write_text(textwrap.dedent(FAULTS))
    path = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    assert done.stdout.splitlines() == [
        "left -11 0 0 0",
        "right 0 0 0 -11",
        "left -11 0 0 1",
        "right 1 0 0 -11",
    ], done.stderr
