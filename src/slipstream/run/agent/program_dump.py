"""A watched program as files, for `predict`, `tune` and a later run; and what tells it from others.

programs/jit_step.stablehlo    what JAX lowered (MLIR bytecode): slipstream predict takes it
programs/jit_step.hlo.pb       what XLA made of it, scheduled: slipstream simulate takes it
programs/jit_step.options.pb   how it was compiled (CompileOptionsProto)
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.compiling import stablehlo_text
from slipstream.writing import atomic_write


def content_of(watched: CompiledProgram) -> str:
    """A hash of what is computed; where it stands in the sources doesn't count."""
    text = stablehlo_text(watched.stablehlo, enable_debug_info=False, large_elements_limit=64)
    return hashlib.sha256(text.encode()).hexdigest()


def save_program(watched: CompiledProgram, folder: Path) -> dict[str, Path]:
    """Write a program, all three files; by what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]", "_", watched.name)
    (module, *_) = watched.original.hlo_modules()
    contents = {
        "stablehlo": (f"{name}.stablehlo", watched.stablehlo),
        "program": (f"{name}.hlo.pb", module.as_serialized_hlo_module_proto()),
        "options": (f"{name}.options.pb", watched.options),
    }
    return {what: _write(folder / file, content) for what, (file, content) in contents.items()}


def _write(path: Path, content: bytes) -> Path:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return path
