from __future__ import annotations

import pytest
from rich.cells import cell_len

from outputs.results import PROGRAMS
from slipstream.outputs.json import dumps
from slipstream.outputs.terminal.programs import (
    program_json,
    render_program,
    render_programs,
)
from slipstream.profile.program import Collective, Computation, Instruction, Program
from slipstream.profile.shapes import Shape

PARAMETER = Instruction("p.0", "parameter", Shape("f32", (8,)), (), "main", 0, parameter_number=0)
GATHER = Instruction(
    "all-gather-start.1",
    "all-gather-start",
    Shape("f32", (64,)),
    ("p.0",),
    "body",
    0,
    source_file="/home/someone/model.py",
    source_line=24,
    collective=Collective("all-gather", 436_000_000, group_size=8),
)
DONE = Instruction(
    "all-gather-done.1",
    "all-gather-done",
    Shape("f32", (64,)),
    ("all-gather-start.1",),
    "body",
    1,
    collective=Collective("all-gather", 436_000_000, group_size=8),
)
LOOP = Instruction(
    "while.3", "while", Shape("f32", (8,)), ("p.0",), "main", 1, called=("body",), trip_count=12
)
ENDLESS = Instruction("while.4", "while", Shape("f32", (8,)), ("p.0",), "main", 2)


def program() -> Program:
    main = Computation("main", (PARAMETER, LOOP, ENDLESS), ENDLESS)
    body = Computation("body", (GATHER, DONE), DONE)
    return Program(
        "jit_step", main, {"main": main, "body": body}, program_id=7, fingerprint="7733d8da"
    )


def test_a_program_on_a_terminal():
    assert render_program(program()).plain == (
        """\
jit_step · id 7 · fingerprint 7733d8da · 5 instructions · 2 computations

instructions by opcode
  while 2  all-gather-done 1  all-gather-start 1  parameter 1

collectives
  instruction         kind        payload  devices  runs  async  source
  all-gather-start.1  all-gather   436 MB        8    12  yes    model.py:24

loops
  while.3 · 12 times · 2 instructions
  while.4 · an unknown number of times"""
    )


def test_a_program_as_json():
    assert program_json(program()) == {
        "name": "jit_step",
        "program_id": 7,
        "fingerprint": "7733d8da",
        "jaxlib_version": None,
        "computations": 2,
        "instructions": 5,
        "opcodes": {"while": 2, "all-gather-done": 1, "all-gather-start": 1, "parameter": 1},
        "collectives": [
            {
                "instruction": "all-gather-start.1",
                "kind": "all-gather",
                "bytes": 436_000_000,
                "group_size": 8,
                "asynchronous": True,
                "executions": 12,
                "source": "/home/someone/model.py:24",
            }
        ],
        "loops": [
            {"instruction": "while.3", "trip_count": 12, "body_instructions": 2, "source": ""},
            {"instruction": "while.4", "trip_count": None, "body_instructions": None, "source": ""},
        ],
        "megacore": None,
    }
    assert dumps(program_json(program())).startswith("{")


def test_programs():
    assert render_programs(PROGRAMS).plain == (
        """\
program               fingerprint  executions  instructions  device time  graphs
jit_step(1)           7733d8da              3           116       1.34 s  yes
jit_conver…_type(22)  –                     1             –      12.5 µs  no"""
    )


@pytest.mark.parametrize("width", [72, 80, 100])
def test_no_line_is_too_long(width):
    lines = render_programs(PROGRAMS, width).plain.splitlines()
    assert max(cell_len(line) for line in lines) <= width
