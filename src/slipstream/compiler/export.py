"""A compiled program into a file of one's own: proto or text, by the file's ending."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from slipstream.compiler.compilation import Compilation
from slipstream.errors import BadInput
from slipstream.writing import atomic_write

PROTO, TEXT = (".pb",), (".hlo", ".txt")


def write_program(compilation: Compilation, path: str | os.PathLike[str]) -> Path:
    """`.pb` gets an HloModuleProto, `.hlo` and `.txt` what `compiled.as_text()` would print."""
    target = Path(path)
    if target.suffix not in PROTO + TEXT:
        raise BadInput(
            f"{target.name} says not what to write: end it in .hlo.pb for a proto, or in .hlo or "
            ".txt for text"
        )
    data = compilation.proto.read_bytes()
    if target.suffix in TEXT:
        data = _text(data).encode()
    with atomic_write(target) as temporary:
        temporary.write_bytes(data)
    return target


def _text(proto: bytes) -> str:
    importlib.import_module("jax")  # jaxlib's parts can't be imported before it
    hlo = importlib.import_module("jaxlib._hlo")
    return str(hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string())
