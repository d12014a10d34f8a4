"""The hot program as files, for `predict`, `tune` and a later run; and a hash of its content.

programs/jit_step.stablehlo    what JAX lowered (MLIR bytecode): for slipstream predict
programs/jit_step.hlo.pb       what XLA compiled and scheduled: for slipstream simulate
programs/jit_step.options.pb   how it was compiled (CompileOptionsProto)
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from weakref import WeakKeyDictionary

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.compiling import stablehlo_text
from slipstream.jaxhooks.custom_calls import compilable_elsewhere
from slipstream.writing import atomic_write, file_name

_CONTENTS: WeakKeyDictionary[CompiledProgram, str] = WeakKeyDictionary()


def content_of(program: CompiledProgram) -> str:
    """A hash of what the program computes, without its source locations."""
    found = _CONTENTS.get(program)
    if found is None:
        text = stablehlo_text(program.stablehlo, enable_debug_info=False, large_elements_limit=64)
        found = _CONTENTS[program] = hashlib.sha256(text.encode()).hexdigest()
    return found


def save_program(program: CompiledProgram, folder: Path) -> dict[str, Path]:
    """Write the three files of a program; their paths by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(program.name)
    (module, *_) = program.original.hlo_modules()
    contents = {
        "stablehlo": (f"{name}.stablehlo", compilable_elsewhere(program.stablehlo)),
        "program": (f"{name}.hlo.pb", module.as_serialized_hlo_module_proto()),
        "options": (f"{name}.options.pb", program.options),
    }
    return {what: _write(folder / file, content) for what, (file, content) in contents.items()}


def _write(path: Path, content: bytes) -> Path:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return path
